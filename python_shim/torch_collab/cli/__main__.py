"""`python -m torch_collab.cli` is `collab`."""

import sys

from torch_collab.cli import main

sys.exit(main())
