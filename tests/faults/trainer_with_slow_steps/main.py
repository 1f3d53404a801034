"""The trainer's other commands, unchanged."""

import sys

from trainwright_trainer.main import main

if __name__ == "__main__":
    sys.exit(main())
