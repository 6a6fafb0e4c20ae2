"""`python -m mlrsnet`, and `torchrun -m mlrsnet`."""

import sys

from mlrsnet.cli import main

if __name__ == "__main__":
    sys.exit(main())
