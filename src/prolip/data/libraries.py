"""Libraries that own a format, imported where it is read."""

import importlib
from typing import Any

from prolip.core.errors import InputError


def required(module: str, package: str, purpose: str) -> Any:
    """A module, or a line that says what to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise InputError(f"{package} is needed {purpose}: pip install {package}") from error


def comes_from(value: Any, library: str) -> bool:
    """Whether a value is of a class of this library; it need not be installed."""
    return any(kind.__module__.split(".")[0] == library for kind in type(value).__mro__)
