"""`python -m ranvier`: the same as the command `ranvier`."""

import sys

from _ranvier_command import main

if __name__ == "__main__":
    sys.exit(main())
