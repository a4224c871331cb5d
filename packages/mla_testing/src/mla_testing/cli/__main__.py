"""`python -m mla_testing.cli` is the `mla` command."""

import sys

from mla_testing.cli.app import main

sys.exit(main())
