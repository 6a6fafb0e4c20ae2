"""`python -m mlrsnet.integrations.transformers SCRIPT ...` runs a script that then knows `--lr_scheduler_type learned`.

`torchrun -m` and `accelerate launch -m` take this module, too.
"""

import os
import runpy
import sys

from mlrsnet.integrations.transformers import register

USAGE = "usage: python -m mlrsnet.integrations.transformers SCRIPT --lr_scheduler_type learned [its other arguments]"


def main(words: list[str]) -> None:
    """Run `words[0]` with the arguments that follow, as Python itself would."""
    if not words or not os.path.isfile(words[0]):
        sys.exit(f"{USAGE}\nSCRIPT must be a Python file, got {words[0] if words else 'none'}")
    register()
    sys.argv, sys.path[0] = words, os.path.dirname(os.path.abspath(words[0]))
    runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
