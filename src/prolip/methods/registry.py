"""Methods and fitted models by name: ours, those of other packages, and classes by their place.

A class of ours is decorated with `register`, and its module found in one of PACKAGES. Other packages name
theirs by an entry point. A user may name any class by its place, "package.module:Class", and it is imported.
A file may name one too, and files are not trusted: for those, only what is imported already, or belongs to an
installed package with an entry point, is looked at.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import pkgutil
import re
import sys
import warnings
from collections.abc import Iterator
from functools import cache
from typing import Any, TypeGuard, TypeVar

from prolip.core import Fitted, Head, Projected, SavedModelError, Settings, Text, UsageError
from prolip.core.arguments import as_text
from prolip.core.arrays import Tensors
from prolip.core.errors import UnknownNameError
from prolip.methods.base import REGISTERED, Method, check_type

# Packages whose modules register methods, in the order in which a name is looked up. A package lists its
# modules in MODULES, or all of them are imported.
PACKAGES = ("prolip.methods", "prolip.research.methods", "prolip.research.towers")
ENTRY_POINTS = "prolip.methods"  # a group: name of a method = its place
SUMS = "prolip.methods.composition"  # the module of sums of methods
PLACE = re.compile(r"\w+(?:\.\w+)*:\w+")
Kind = TypeVar("Kind", Method, Fitted)
Class = TypeVar("Class", bound=type)


_METHODS: dict[str, type[Method]] = {}
_FITTED: dict[str, type[Fitted]] = {}


def register(cls: Class) -> Class:
    """Make a method known by its `name`, or a fitted model by its `kind`."""
    if issubclass(cls, Method):
        _METHODS[cls.name] = cls
        REGISTERED[cls] = cls.name
    else:
        assert issubclass(cls, Fitted)
        _FITTED[cls.kind] = cls
    return cls


register(Projected)


def names() -> list[str]:
    """Return every method's name: ours, the sums that the paper reports, and those of other packages.

    Beside these, "a+b" is any sum, and "package.module:Class" a class that extends `Method`.
    """
    return [*_own_names(), *entry_points()]


def available() -> dict[str, type[Method]]:
    """Return every method by name; what cannot be imported is left out, with a warning."""
    found = {}
    for name in names():
        try:
            found[name] = get(name)
        except UsageError as error:
            warnings.warn(str(error), stacklevel=2)
    return found


def get(name: str) -> type[Method]:
    """Return the class of a method by its name, its place, or as a sum of those: "a+b"."""
    if "+" in as_text(name, "method"):
        found: type[Method] = importlib.import_module(SUMS).compose(name)
        return found
    if PLACE.fullmatch(name):
        return load(name, Method)  # type: ignore[type-abstract]
    if (known := _find(_METHODS, name)) is not None:
        return known
    if place := entry_points().get(name):
        installed: type[Method] = load(place, Method)  # type: ignore[type-abstract]
        REGISTERED[installed] = name
        return installed
    raise UnknownNameError("method", name, names())


def options(name: str) -> list[str]:
    """Return the options that a method takes."""
    return get(name).options()


def create(name: str, **given: Any) -> Method:
    """Return a method with its options.

    Examples
    --------
    >>> create("prolip", lam="1/N").lam
    '1/N'
    """
    method = get(name)
    known = method.options()
    for option in given:
        if option not in known:
            takes = f"it takes {', '.join(known)}" if known else "it takes none"
            raise UsageError(f"method {name!r} has no option {option!r}: {takes}")
        check_type(method, name, option, given[option])
    return method.create(**given)


def from_settings(settings: Settings) -> Method:
    """Return the method of a fit, with the options that it settled on: fitted again, it searches for nothing.

    Settings may come from a file, so that no module is imported for being named in them.
    """
    require_trusted([settings.method, settings.options])
    return create(settings.method, **settings.options)


def restore(
    kind: str,
    tensors: Tensors,
    config: dict[str, Any],
    head: Head,
    text: Text,
    settings: Settings,
    report: dict[str, Any],
) -> Fitted:
    """Return a fitted model from what it was saved as: its `kind`, `tensors()` and `config()`."""
    fitted = fitted_class(kind)
    try:
        restored = fitted.restore(tensors, config, head, text)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        cause = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        raise SavedModelError(f"the saved model ({kind}) is damaged: {cause}") from error
    return dataclasses.replace(restored, settings=settings, report=report)


def fitted_class(kind: str) -> type[Fitted]:
    """Return the class of a fitted model by its kind, which a file may have named."""
    if (known := _find(_FITTED, kind)) is not None:
        return known
    if not PLACE.fullmatch(kind):
        raise SavedModelError(f"the model is of a kind that this version does not know: {kind!r}")
    require_trusted(kind)
    try:
        return load(kind, Fitted)  # type: ignore[type-abstract]
    except UsageError as error:
        raise SavedModelError(f"the model needs {error}") from error


@cache
def entry_points() -> dict[str, str]:
    """Return the places of installed methods, by name. Nothing of theirs is imported."""
    from importlib import metadata

    found: dict[str, str] = {}
    for point in metadata.entry_points(group=ENTRY_POINTS):
        why = None
        if point.name in _own_names() or point.name in found:
            why = "the name is taken"
        elif not (re.fullmatch(r"\w+", point.name) and PLACE.fullmatch(point.value)):
            why = "it must be a word = package.module:Class"
        if why is None:
            found[point.name] = point.value
        else:
            warnings.warn(f"the method {point.name} = {point.value} is left out: {why}", stacklevel=2)
    return found


def load(place: str, kind: type[Kind]) -> type[Kind]:
    """Import the class at a place that the user named; it must be of this kind."""
    module, _, name = place.partition(":")
    try:
        found = vars(importlib.import_module(module)).get(name)
    except Exception as error:  # whatever the module does on import
        raise UsageError(f"{place}: {module} cannot be imported ({type(error).__name__}: {error})") from error
    if not _is_subclass(found, kind):
        raise UsageError(f"{place}: {module} has no class {name} that extends {kind.__name__}")
    return found


def require_trusted(value: Any) -> None:
    """Refuse what a file says where it names a module that would be imported for no other reason.

    `value` is a text, or texts in lists and mappings.
    """
    for place in _places_in(value):
        module = place.partition(":")[0]
        packages = {known.partition(":")[0].partition(".")[0] for known in entry_points().values()}
        if module not in sys.modules and module.partition(".")[0] not in packages:
            raise SavedModelError(
                f"the model needs {place}, and nothing is imported because a file names it: import "
                f"{module} first, or install the package that has it as an entry point of {ENTRY_POINTS!r}"
            )


def _own_names() -> list[str]:
    for package in PACKAGES:
        _import_modules(package)
    return sorted(_METHODS)


def _places_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield from PLACE.findall(value)
    elif isinstance(value, dict):
        yield from _places_in([list(pair) for pair in value.items()])
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _places_in(item)


def _find(table: dict[str, type[Kind]], name: str) -> type[Kind] | None:
    """Look a name up; where it is not known yet, import the module of that name, then all of a package."""
    if name not in table and re.fullmatch(r"\w+", name):
        module = f"{PACKAGES[0]}.{name}"
        if importlib.util.find_spec(module) is not None:
            importlib.import_module(module)
    for package in PACKAGES:
        if name not in table:
            _import_modules(package)
    return table.get(name)


@cache
def _import_modules(package: str) -> None:
    found = importlib.import_module(package)
    every = [module.name for module in pkgutil.iter_modules(found.__path__)]
    for name in getattr(found, "MODULES", every):
        importlib.import_module(f"{package}.{name}")


def _is_subclass(value: Any, kind: type[Kind]) -> TypeGuard[type[Kind]]:
    """Whether a value is a class that extends `kind`.

    Not `isinstance(value, type)`: on Python 3.10 that holds for an alias like `dict[str, int]`, too.
    """
    return issubclass(type(value), type) and issubclass(value, kind)
