"""Check arguments of the Python interface (None means not given, and an empty value is an error) and JSON."""

import math
import os
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from prolip.core.errors import UsageError


def as_path(value: Any, name: str) -> Path:
    """Return a path; an empty string, which `Path` takes for the working folder, is an error."""
    if not isinstance(value, (str, os.PathLike)) or not os.fspath(value):
        raise UsageError(f"{name} must be a path ('.' is the working folder), got {value!r:.80}")
    return Path(value)


def as_text(value: Any, name: str) -> str:
    """Return text that is not empty."""
    if not isinstance(value, str) or not value:
        raise UsageError(f"{name} must be text that is not empty, got {value!r:.80}")
    return value


def is_json_of(value: Any, hint: Any) -> bool:
    """Whether a JSON value is of the type of a field; an integer is not negative.

    Examples
    --------
    >>> is_json_of(["a {}."], tuple[str, ...]), is_json_of(True, int), is_json_of({"cat": 3}, dict[str, str])
    (True, False, False)
    """
    kind, parts = get_origin(hint) or hint, get_args(hint)
    if kind in (Union, UnionType):
        return any(is_json_of(value, part) for part in parts)
    if kind is Literal:
        return value in parts
    if kind is Any or isinstance(value, bool):
        return kind in (Any, bool)
    if kind in (int, float):
        limit = 2**63 if kind is int else math.inf
        return isinstance(value, (int, kind)) and (0 if kind is int else -limit) <= value < limit
    if kind in (tuple, dict) and parts:
        values = value.values() if isinstance(value, dict) else value
        right = isinstance(value, dict if kind is dict else list)
        return right and all(is_json_of(each, parts[kind is dict]) for each in values)
    return isinstance(value, kind)
