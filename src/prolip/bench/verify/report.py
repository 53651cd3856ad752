"""All of `prolip bench verify`, line by line."""

from collections.abc import Iterator
from pathlib import Path

from prolip.bench.verify.compare import CHECKS, Line, compare, known_accuracy, published_parameters
from prolip.bench.verify.problems import made_up, real
from prolip.bench.verify.towers import TOWERS, tower_lines


def verify_all(data: Path | None = None) -> Iterator[tuple[int, int, Line]]:
    """Each line as it is done, with its number and how many there are.

    On made-up features, or with `data` on those of WHU-RS19; methods through a tower where torch is there.
    """
    total = len(CHECKS) + 1 + len(TOWERS) + (data is not None)
    for number, line in enumerate(_lines(data), start=1):
        yield number, total, line


def _lines(data: Path | None) -> Iterator[Line]:
    yield published_parameters()
    if data is not None:
        yield known_accuracy(data)
    yield from compare(made_up() if data is None else real(data))
    yield from tower_lines()
