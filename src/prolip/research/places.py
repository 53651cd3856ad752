"""Objects by their place, "package.module:NAME", and those that other packages install.

Packages name experiments, protocols and layouts by entry points of the groups "prolip.experiments",
"prolip.protocols" and "prolip.layouts": a name = "package.module:OBJECT".
"""

import importlib
import re
from functools import cache
from importlib import metadata
from typing import Any

from prolip.core.errors import UnknownNameError, UsageError

_PLACE = re.compile(r"\w+(?:\.\w+)*:\w+")


def is_place(name: str) -> bool:
    """Return whether a name is a place.

    Examples
    --------
    >>> is_place("mine:TABLE"), is_place("few_shot")
    (True, False)
    """
    return _PLACE.fullmatch(name) is not None


def load_place(place: str) -> Any:
    """Import the object at a place that the user named."""
    module, _, name = place.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"{place} cannot be imported: {error}") from error


@cache
def installed(group: str) -> dict[str, str]:
    """Return the places of a group of entry points by name; nothing is imported."""
    return {point.name: point.value for point in metadata.entry_points(group=group)}


def find(kind: str, name: str, known: dict[str, Any]) -> Any:
    """Return what is registered under a name, installed by another package, or at a place."""
    if name in known:
        return known[name]
    others = installed(f"prolip.{kind}s")
    if is_place(name) or name in others:
        return load_place(others.get(name, name))
    raise UnknownNameError(kind, name, [*known, *others])
