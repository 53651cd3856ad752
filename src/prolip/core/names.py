"""Names, which may hold anything: those of classes in one spelling, and in files that other programs open."""

import unicodedata
from typing import Any

from prolip.core.errors import InputError

# Invisible letters and marks: fillers of Hangul, variation selectors, joiners of graphemes.
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2065\u3164\uffa0")
_JOINERS = ("\u200c", "\u200d")


def normalize_name(raw: str) -> str:
    r"""Normalise a class name, so that names that look the same are the same.

    Unicode's composed form (NFC), without invisible characters, trimmed, with single spaces. File systems and
    keyboards differ in these; names that look different stay different.

    Examples
    --------
    >>> normalize_name(" cafe\u0301\u200b  noir ")
    'café noir'
    """
    if not (raw.isascii() and raw.isprintable()):
        raw = unicodedata.normalize("NFC", _visible(unicodedata.normalize("NFC", raw)))
    name = " ".join(raw.split())
    if not name:
        raise InputError(f"class {spelled(raw)} has only invisible characters: rename it")
    return name


def normalize_label(label: Any) -> Any:
    """Normalise a label, if it is text."""
    return normalize_name(label) if isinstance(label, str) else label


def spelled(name: str) -> str:
    """Return a name in quotes, with escapes for everything but ASCII."""
    return ascii(name)


def _visible(text: str) -> str:
    shown: list[str] = []
    for place, character in enumerate(text):
        if character.isspace():
            shown.append(" ")
        elif character in _JOINERS:
            if shown and place + 1 < len(text) and _is_joined(shown[-1]):
                shown.append(character)
        elif unicodedata.category(character) not in ("Cc", "Cf") and character not in _BLANK:
            shown.append(character)
    return "".join(shown)


def _is_joined(before: str) -> bool:
    """Whether a joiner after this character is visible: in Arabic, after a virama, in emoji."""
    return (
        unicodedata.bidirectional(before) == "AL"
        or unicodedata.combining(before) == 9
        or unicodedata.category(before) in ("So", "Sk")
        or before == "\ufe0f"
    )
