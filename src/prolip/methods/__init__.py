"""The methods, by name. A method is one file; to add one, write the file and add a line here."""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any

from prolip.core.errors import UsageError, unknown_name
from prolip.methods.base import Method

__all__ = ["Method", "create", "get", "names"]

REGISTRY = {
    "zero_shot": "prolip.methods.zero_shot:ZeroShot",
    "prolip": "prolip.methods.prolip:ProLIP",
    "rla": "prolip.methods.rla:RLA",
}


def names() -> list[str]:
    """Every method's name."""
    return list(REGISTRY)


def get(name: str) -> type[Method]:
    """The class behind a name."""
    if name not in REGISTRY:
        raise unknown_name("method", name, REGISTRY)
    module, _, attribute = REGISTRY[name].partition(":")
    method: type[Method] = getattr(importlib.import_module(module), attribute)
    return method


def create(name: str, **options: Any) -> Method:
    """A method with its options.

    Examples
    --------
    >>> create("prolip", lam="1/N").lam
    '1/N'
    """
    method = get(name)
    known = [field.name for field in dataclasses.fields(method)]  # type: ignore[arg-type]
    for option in options:
        if option not in known:
            takes = f"it takes {', '.join(known)}" if known else "it takes none"
            raise UsageError(f"method {name!r} has no option {option!r}: {takes}")
    return method(**options)
