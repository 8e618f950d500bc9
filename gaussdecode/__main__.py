"""``python -m gaussdecode`` is the command ``gaussdecode``."""

import sys

from gaussdecode.cli import main

if __name__ == "__main__":
    sys.exit(main())
