"""Optional packages: imported when they are used; if one is missing, the error says what to install."""

from __future__ import annotations

import importlib
from typing import Any


def load(module: str, package: str, purpose: str) -> Any:
    """Raises ImportError that says what to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"collab: {purpose} needs {package}, which cannot be imported here ({error}): pip install {package} "
            "[integrations.not-installed]"
        ) from None
