"""``python -m sqllocks``."""

import sys

from sqllocks.cli import main

if __name__ == "__main__":
    sys.exit(main())
