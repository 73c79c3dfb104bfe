"""`python -m engine.cli` is `kakeya-engine`, runnable from a checkout that is not installed."""

import sys

from engine.cli.main import main

sys.exit(main())
