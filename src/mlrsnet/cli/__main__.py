"""`python -m mlrsnet.cli`."""

import sys

from mlrsnet.cli import main

if __name__ == "__main__":
    sys.exit(main())
