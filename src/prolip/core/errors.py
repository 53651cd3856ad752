"""Errors that a user can act on.

Each says what was wrong, with the value, and what to do. The command line prints the message alone and
exits with `exit_code`; any other exception is a bug, and keeps its traceback.
"""

import difflib
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any


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


def check_name(kind: str, name: Any, known: Collection[str]) -> None:
    """Reject a name that does not exist."""
    if name not in known:
        raise UnknownNameError(kind, str(name), known)
