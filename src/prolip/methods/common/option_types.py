"""Whether the value of an option is of a kind that its method declares."""

from __future__ import annotations

import os
import typing
from numbers import Integral, Real
from types import NoneType
from typing import Any

from prolip.core.errors import UsageError

# What is declared: what is taken for it, and how that is said.
_KINDS: dict[Any, tuple[tuple[type, ...], str]] = {
    int: ((Integral,), "a whole number"),
    float: ((Real,), "a number"),
    str: ((str, os.PathLike), "text"),
    bool: ((bool,), "true or false"),
    NoneType: ((NoneType,), "none"),
}


def check_type(owner: type, name: str, option: str, value: Any) -> None:
    """Refuse a value of another kind than the option's; what is declared as more than a scalar may be any.

    Examples
    --------
    >>> class Method:
    ...     epochs: int | None = None
    >>> check_type(Method, "coop", "epochs", 5)
    >>> check_type(Method, "coop", "epochs", "many")
    Traceback (most recent call last):
    prolip.core.errors.UsageError: option 'epochs' of coop must be a whole number or none, got 'many'
    """
    declared = typing.get_type_hints(owner).get(option, Any)
    kinds = typing.get_args(declared) or (declared,)
    if any(kind not in _KINDS for kind in kinds):
        return
    taken = tuple(each for kind in kinds for each in _KINDS[kind][0])
    if not isinstance(value, taken) or (isinstance(value, bool) and bool not in kinds):
        said = " or ".join(_KINDS[kind][1] for kind in kinds)
        raise UsageError(f"option {option!r} of {name} must be {said}, got {value!r}")
