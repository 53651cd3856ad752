"""Methods and fitted models by name: ours, those of other packages, and classes by their place.

A class of ours is decorated with `register`, and its module found in one of PACKAGES. Other packages name
theirs by an entry point. A user may name any class by its place, "package.module:Class": it is imported, and
known from then on. Files are not trusted: what they name is known or installed, or refused. Fitted models are
known once their module is imported.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import pkgutil
import re
import warnings
from functools import cache
from typing import Any, TypeVar

from prolip.core import Fitted, Head, SavedModelError, Settings, Text, UsageError
from prolip.core.arrays import Tensors
from prolip.core.errors import UnknownNameError, as_text, check_name
from prolip.core.fitted import KINDS
from prolip.methods.base import REGISTERED, Method, check_type

# Packages whose modules register methods, in the order in which a name is looked up. A package lists its
# modules in MODULES, or all of them are imported.
PACKAGES = ("prolip.methods", "prolip.research.methods", "prolip.research.towers")
ENTRY_POINTS = "prolip.methods"  # a group: name of a method = its place
SUMS = "prolip.methods.composition"  # the module of sums of methods
PLACE = re.compile(r"\w+(?:\.\w+)*:\w+")
Class = TypeVar("Class", bound=type[Method])


def register(cls: Class) -> Class:
    """Make a method known by its `name`."""
    REGISTERED[cls.name] = cls
    return cls


def names() -> list[str]:
    """Return every method's name: ours, the sums that the paper reports, and those of other packages.

    Beside these, "a+b" is any sum, and "package.module:Class" a class that extends `Method`.
    """
    for package in PACKAGES:
        _import_modules(package)
    own = sorted(name for name, cls in REGISTERED.items() if cls.__module__.startswith(PACKAGES))
    return list(dict.fromkeys([*own, *entry_points()]))


def available() -> dict[str, type[Method]]:
    """Return every method by name; what cannot be imported is left out, with a warning."""
    methods = {}
    for name in names():
        try:
            methods[name] = get(name)
        except UsageError as error:
            warnings.warn(str(error), stacklevel=2)
    return methods


def get(name: str, from_file: bool = False) -> type[Method]:
    """Return the class of a method by its name, its place, or as a sum of those: "a+b".

    Nothing is imported for a place that a file names.
    """
    terms = [_get(term, from_file) for term in as_text(name, "method").split("+")]
    if len(terms) == 1:
        return terms[0]
    method: type[Method] = importlib.import_module(SUMS).compose(name)
    return method


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
        check_name(f"option of {name}", option, known)
        check_type(method, option, given[option])
    return method(**given)


def from_settings(settings: Settings) -> Method:
    """Return the method of a fit, with the options that it settled on: fitted again, it searches for nothing.

    Settings may come from a file, so that no module is imported for being named in them.
    """
    get(settings.method, from_file=True)
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
    if kind not in KINDS:
        _import_modules(PACKAGES[0])
    if kind not in KINDS and settings.method in entry_points():
        get(settings.method)
    if kind not in KINDS:
        raise SavedModelError(
            f"models of the kind {kind!r} are not known: import the module of the method {settings.method!r} "
            "first, or install a package that has it as an entry point"
        )
    try:
        restored = KINDS[kind].restore(tensors, config, head, text)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        cause = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        raise SavedModelError(f"the saved model ({kind}) is damaged: {cause}") from error
    return dataclasses.replace(restored, settings=settings, report=report)


@cache
def entry_points() -> dict[str, str]:
    """Return the places of installed methods by name; nothing of theirs is imported."""
    from importlib import metadata

    return {point.name: point.value for point in metadata.entry_points(group=ENTRY_POINTS)}


def _get(name: str, from_file: bool) -> type[Method]:
    """Return a class that is known, or import it: from our packages, an entry point, or a place."""
    if name not in REGISTERED:
        _import_named(name)
    if name not in REGISTERED:
        place = entry_points().get(name, name)
        if not PLACE.fullmatch(place):
            raise UnknownNameError("method", name, names())
        if from_file and place == name:
            raise SavedModelError(
                f"the model needs {place}, and nothing is imported because a file names it: name the method "
                f"in your program first, or install a package that has it as an entry point"
            )
        REGISTERED[name] = _load(place)
    return REGISTERED[name]


def _load(place: str) -> type[Method]:
    """Import the method at a place."""
    module, _, name = place.partition(":")
    try:
        cls: Any = vars(importlib.import_module(module)).get(name)
    except Exception as error:  # whatever the module does on import
        raise UsageError(f"{place}: {module} cannot be imported ({type(error).__name__}: {error})") from error
    # Not isinstance(cls, type): on Python 3.10 that holds for an alias like `dict[str, int]`, too.
    if not (issubclass(type(cls), type) and issubclass(cls, Method)):
        raise UsageError(f"{place}: {module} has no class {name} that extends Method")
    method: type[Method] = cls
    return method


def _import_named(name: str) -> None:
    """Import the module of this name, or else all of our packages until the method is known."""
    module = f"{PACKAGES[0]}.{name}"
    if re.fullmatch(r"\w+", name) and importlib.util.find_spec(module) is not None:
        importlib.import_module(module)
    for package in PACKAGES:
        if name not in REGISTERED and not PLACE.fullmatch(name):
            _import_modules(package)


@cache
def _import_modules(package: str) -> None:
    found = importlib.import_module(package)
    every = [module.name for module in pkgutil.iter_modules(found.__path__)]
    for name in getattr(found, "MODULES", every):
        importlib.import_module(f"{package}.{name}")
