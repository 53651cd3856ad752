"""Objects by their place, "package.module:NAME", and those that other packages install.

Packages name experiments, protocols and layouts by entry points of the groups "prolip.experiments",
"prolip.protocols" and "prolip.layouts": a name = "package.module:OBJECT".
"""

from collections.abc import Mapping
from importlib import metadata
from typing import TypeVar

from prolip.core.errors import UnknownNameError, UsageError

T = TypeVar("T")


def find(kind: str, name: str, known: Mapping[str, T]) -> T:
    """Return what is known under a name, installed by another package, or at a place."""
    if name in known:
        return known[name]
    installed = metadata.entry_points(group=f"prolip.{kind}s")
    if name not in installed.names and ":" not in name:
        raise UnknownNameError(kind, name, [*known, *installed.names])
    point = installed[name] if name in installed.names else metadata.EntryPoint(name, name, kind)
    try:
        found: T = point.load()
    except (ImportError, AttributeError) as error:
        raise UsageError(f"{point.value} cannot be imported: {error}") from error
    return found
