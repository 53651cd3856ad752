"""Check arguments of the Python interface: None means not given, and an empty value is an error."""

import os
from pathlib import Path
from typing import Any

from prolip.core.errors import UsageError


def as_path(value: Any, name: str) -> Path:
    """Return a path; an empty string, which `Path` takes for the working folder, is an error."""
    if not isinstance(value, (str, os.PathLike)) or not isinstance(os.fspath(value), str):
        raise UsageError(f"{name} must be a path, got {value!r:.80}")
    if not os.fspath(value):
        raise UsageError(f"{name} is an empty path: name a file or a folder ('.' is the working folder)")
    return Path(value)


def as_text(value: Any, name: str) -> str:
    """Return text that is not empty."""
    if not isinstance(value, str):
        raise UsageError(f"{name} must be text, got {value!r:.80}")
    if not value:
        raise UsageError(f"{name} is empty: give a name, or leave it out")
    return value
