"""The trainer's other commands, as they are."""

import sys

from trainwright_trainer.main import main

if __name__ == "__main__":
    sys.exit(main())
