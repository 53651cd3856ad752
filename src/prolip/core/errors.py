"""Errors that a user can act on, and checks of arguments and of JSON that raise them.

Each says what was wrong, with the value, and what to do. The command line prints the message alone and
exits with `exit_code`; any other exception is a bug, and keeps its traceback.
"""

import difflib
import math
import os
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin


@dataclass(frozen=True)
class Parameter:
    """A parameter with a value, as a part of a message; the command line prints its option instead."""

    name: str
    value: Any

    def __str__(self) -> str:
        return f"{self.name}={self.value!r}"


class ProlipError(Exception):
    """The base of every error that a user can fix; its arguments are the parts of the message."""

    exit_code = 1

    def __str__(self) -> str:
        return "".join(map(str, self.args))


class UsageError(ProlipError):
    """The call itself is wrong: an unknown name, an option that does not exist."""

    exit_code = 2


class NotFittedError(UsageError, ValueError, AttributeError):
    """An estimator is used before it is fitted."""


class UnknownNameError(UsageError):
    """A name does not exist; `suggestions` are the nearest ones that do."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        known = sorted(known)
        self.kind, self.name = kind, name
        self.suggestions = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
        some = ", ".join(known[:20]) + (f" and {len(known) - 20} more" if len(known) > 20 else "")
        nearest = " or ".join(map(repr, self.suggestions))
        hint = f"did you mean {nearest}?" if nearest else f"known: {some}"
        super().__init__(f"unknown {kind} {name!r}: {hint}")


class InputError(ProlipError, ValueError):
    """The data is wrong: shapes, labels, images, values."""


class MissingFileError(InputError, FileNotFoundError):
    """A file or folder does not exist."""


class ModelError(ProlipError):
    """An encoder cannot be loaded: not installed, not reachable, or with other weights."""


class SavedModelError(ProlipError):
    """A saved model cannot be read."""


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or its type if it has none."""
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__


@contextmanager
def errors_as(
    make: Callable[[Exception], ProlipError], keep: type[ProlipError] = ProlipError
) -> Iterator[None]:
    """Raise any error inside as what `make` returns for it, except those of the class `keep`.

    Libraries raise nearly anything, on damaged files and for failures of a network.
    """
    try:
        yield
    except keep:
        raise
    except Exception as error:
        raise make(error) from error


def check_name(kind: str, name: Any, known: Collection[str]) -> None:
    """Reject a name that does not exist."""
    if name not in known:
        raise UnknownNameError(kind, str(name), known)


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
