"""Descriptions: sentences about a class that stand beside its name, from a file or a mapping.

    birds.json    {"barn swallow": ["a slender bird with a long forked tail", "a swallow on a wire"], ...}
    birds.csv     barn swallow,"a slender bird with a long forked tail"       a line for each sentence,
                  barn swallow,"a swallow on a wire"                          or several in a line

Class names are compared without case, and underscores are spaces.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from prolip.core.arguments import as_path
from prolip.core.errors import InputError, UsageError
from prolip.data.imageset import clean_name
from prolip.io.reading import read_json_or_rows

HEADERS = ("class", "label", "name")  # a first cell that is a header


def as_descriptions(value: Any) -> dict[str, tuple[str, ...]]:
    """Return sentences by class, from None, a mapping, or a JSON or CSV file.

    Examples
    --------
    >>> as_descriptions({"Barn_Swallow": "a swallow on a wire"})
    {'barn swallow': ('a swallow on a wire',)}
    """
    if value is None:
        return {}
    where = "descriptions"
    if isinstance(value, (str, os.PathLike)):
        where, value = str(value), read_json_or_rows(as_path(value, "descriptions"), "descriptions", HEADERS)
        if not where.lower().endswith(".json"):
            value = _collect(((row[0], [cell for cell in row[1:] if cell.strip()]) for row in value), where)
    if not isinstance(value, Mapping):
        raise InputError(f"{where}: expected sentences by class, got {type(value).__name__}")
    if not value:
        raise UsageError(f"{where}: no class is described; give sentences by class, or leave them out")
    entries = ((name, own if isinstance(own, (list, tuple)) else [own]) for name, own in value.items())
    return _collect(entries, where)


def descriptions_of(descriptions: Mapping[str, Sequence[str]], name: str) -> Sequence[str]:
    """Return the sentences about one class, if any."""
    return descriptions.get(_key(name), ())


def _collect(pairs: Iterable[tuple[Any, Sequence[Any]]], where: str) -> dict[str, tuple[str, ...]]:
    result: dict[str, tuple[str, ...]] = {}
    for name, sentences in pairs:
        if not isinstance(name, str) or not name.strip():
            raise InputError(f"{where}: {name!r} is not a class name")
        if not sentences:
            raise InputError(f"{where}: class {name!r} has no description")
        for sentence in sentences:
            if not isinstance(sentence, str) or not sentence.strip():
                raise InputError(f"{where}: class {name!r} has {sentence!r} instead of a sentence")
        both = result.get(_key(name), ()) + tuple(" ".join(sentence.split()) for sentence in sentences)
        result[_key(name)] = tuple(dict.fromkeys(both))
    return result


def _key(name: str) -> str:
    return clean_name(name).lower()
