"""Errors that a user can act on.

Each says what was wrong, with the value, and what to do. The command line prints the message alone and
exits with `exit_code`; anything else that escapes is a defect of ours and keeps its traceback.
"""

import difflib
from collections.abc import Collection, Iterable
from typing import Any


class ProlipError(Exception):
    """The base of every error that is the user's to mend."""

    exit_code = 1


class UsageError(ProlipError):
    """The call itself is wrong: an unknown name, an option that does not exist."""

    exit_code = 2


class InputError(ProlipError, ValueError):
    """The data is wrong: shapes, labels, images, values."""


class ModelError(ProlipError):
    """An encoder cannot be had: not installed, not reachable, not what it claims to be."""


class SavedModelError(ProlipError):
    """A saved folder is incomplete, altered, or newer than this version."""


def first_line(error: BaseException) -> str:
    """The start of an error's message, or its kind if it has none."""
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__


def unknown_name(kind: str, name: str, known: Iterable[str]) -> UsageError:
    """An error for a name that does not exist, with the nearest ones that do."""
    known = sorted(known)
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    some = ", ".join(known[:20]) + (f" and {len(known) - 20} more" if len(known) > 20 else "")
    hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"known: {some}"
    return UsageError(f"unknown {kind} {name!r}: {hint}")


def check_name(kind: str, name: Any, known: Collection[str]) -> None:
    """Refuse a name that is not among those that are known."""
    if name not in known:
        raise unknown_name(kind, str(name), known)
