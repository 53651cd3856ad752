"""Groups of classes, whose probabilities are summed; nothing is trained for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from prolip.core import InputError
from prolip.core.arrays import Array, one_hot_sum
from prolip.core.errors import check_name
from prolip.core.names import normalize_name
from prolip.io.reading import read_json_or_rows


@dataclass(frozen=True)
class Groups:
    """Groups of classes."""

    names: tuple[Any, ...]  # of the groups, in the order of their first classes
    of_class: tuple[int, ...]  # the group of each class of the model, an index in `names`

    @classmethod
    def of(cls, group_of: Mapping[str, str], classes: Sequence[Any]) -> Groups:
        """Build groups from {class: group}; a class that is not in it is a group of its own."""
        known = set(map(str, classes))
        group_of = {normalize_name(name): normalize_name(group) for name, group in group_of.items()}
        for name in group_of:
            check_name("class among the groups", name, known)
        group_names = [group_of.get(str(name), name) for name in classes]
        names = tuple(dict.fromkeys(group_names))
        if len(names) < 2:
            raise InputError(f"all classes are in one group, {names[0]!r}: there must be two")
        return cls(names, tuple(names.index(each) for each in group_names))

    def sum(self, probabilities: Array) -> Array:
        """Sum probabilities of classes [n, K] to those of groups [n, G]."""
        return one_hot_sum(probabilities.T, np.array(self.of_class), len(self.names)).T

    def labels(self, y: Array) -> Array:
        """Convert labels [n] to indices of groups."""
        return np.array(self.of_class)[y]


def read_groups(path: Path, classes: Sequence[Any]) -> Groups:
    """Read groups from a file.

    A .json holds {"class": "group", ...} or {"group": ["class", ...], ...}; a .csv or .tsv two columns, class
    and group, with or without such a first line.
    """
    found = read_json_or_rows(path, "groups", ("class",))
    if path.suffix.lower() == ".json":
        pairs = _json_pairs(found, path)
    else:
        if short := next((row for row in found if len(row) != 2), None):
            raise InputError(f"{path}: a line has two columns, class and group, got {','.join(short)!r}")
        pairs = [(row[0], row[1]) for row in found]
    group_of: dict[str, str] = {}
    for name, group in ((normalize_name(name), normalize_name(group)) for name, group in pairs):
        if group_of.setdefault(name, group) != group:
            raise InputError(f"{path}: class {name!r} is in two groups, {group_of[name]!r} and {group!r}")
    return Groups.of(group_of, classes)


def _json_pairs(found: Any, path: Path) -> list[tuple[str, str]]:
    if isinstance(found, dict) and all(isinstance(value, str) for value in found.values()):
        return list(found.items())
    if isinstance(found, dict) and all(
        isinstance(value, list) and all(isinstance(name, str) for name in value) for value in found.values()
    ):
        return [(name, group) for group, names in found.items() for name in names]
    raise InputError(f'{path} must hold {{"class": "group", ...}} or {{"group": ["class", ...], ...}}')
