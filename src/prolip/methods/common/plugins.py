"""Classes by their place, "package.module:Class", and the methods that other packages bring.

A user names a place, and it is imported. A file may name one too, and files come from strangers: for those,
only what is imported already, or belongs to an installed package that brings methods, is looked at.
"""

import importlib
import re
import sys
import warnings
from collections.abc import Iterator
from functools import cache
from typing import Any, TypeGuard, TypeVar

from prolip.core import Fitted, SavedModelError, UsageError
from prolip.methods.base import Method

ENTRY_POINTS = "prolip.methods"  # a name of a method = its place
PLACE = re.compile(r"\w+(?:\.\w+)*:\w+")
Kind = TypeVar("Kind", Method, Fitted)


@cache
def entry_points() -> dict[str, str]:
    """The places of installed methods, by name. Nothing is imported."""
    from importlib import metadata

    from prolip.methods import REGISTRY

    found: dict[str, str] = {}
    for point in metadata.entry_points(group=ENTRY_POINTS):
        why = None
        if point.name in REGISTRY or point.name in found:
            why = "the name is taken"
        elif not (re.fullmatch(r"\w+", point.name) and PLACE.fullmatch(point.value)):
            why = "it must be a word = package.module:Class"
        if why is None:
            found[point.name] = point.value
        else:
            warnings.warn(f"the method {point.name} = {point.value} is left out: {why}", stacklevel=2)
    return found


def is_subclass(value: Any, kind: type[Kind]) -> TypeGuard[type[Kind]]:
    """Whether a value is a class that extends `kind`.

    Not `isinstance(value, type)`: on Python 3.10 that holds for an alias like `dict[str, int]`, too.
    """
    return issubclass(type(value), type) and issubclass(value, kind)


def load(place: str, kind: type[Kind]) -> type[Kind]:
    """The class at a place that the user named, imported; it must be of this kind."""
    module, _, name = place.partition(":")
    try:
        found = vars(importlib.import_module(module)).get(name)
    except Exception as error:  # whatever a stranger's module does on import
        raise UsageError(f"{place}: {module} cannot be imported ({type(error).__name__}: {error})") from error
    if not is_subclass(found, kind):
        raise UsageError(f"{place}: {module} has no class {name} that extends {kind.__name__}")
    return found


def load_trusted(place: str, kind: type[Kind]) -> type[Kind]:
    """The class at a place that a file named."""
    require_trusted(place)
    try:
        return load(place, kind)
    except UsageError as error:
        raise SavedModelError(f"the model needs {error}") from error


def require_trusted(place: str) -> None:
    """Refuse a place whose module would be imported for no other reason than that a file names it."""
    module = place.partition(":")[0]
    packages = {known.partition(":")[0].partition(".")[0] for known in entry_points().values()}
    if module not in sys.modules and module.partition(".")[0] not in packages:
        raise SavedModelError(
            f"the model needs {place}, and nothing is imported because a file asks for it: import {module} "
            f"first, or install the package that brings it as an entry point of {ENTRY_POINTS!r}"
        )


def places_in(value: Any) -> Iterator[str]:
    """Whatever in an option could name a place: a text, or the texts in a list or a mapping."""
    if isinstance(value, str):
        yield from PLACE.findall(value)
    elif isinstance(value, dict):
        for pair in value.items():
            yield from places_in(list(pair))
    elif isinstance(value, (list, tuple)):
        for own in value:
            yield from places_in(own)


def name_of(method: type[Method]) -> str:
    """What `prolip.methods.get` finds the class by: its name, or its place where that is not known."""
    from prolip.methods import REGISTRY

    place = f"{method.__module__}:{method.__qualname__}"
    known = REGISTRY.get(method.name) or entry_points().get(method.name)
    return method.name if known == place else place
