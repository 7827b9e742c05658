"""``python -m tridiag``: see `tridiag.commands`."""

import sys

from tridiag.commands import main

sys.exit(main())
