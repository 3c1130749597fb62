"""What collab reads from the process's environment."""

from __future__ import annotations

import os


def collab_variables() -> dict[str, str]:
    """Every variable that could be meant for collab; the knob table decides which are known."""
    return {name: value for name, value in os.environ.items() if name.startswith("COLLAB_")}
