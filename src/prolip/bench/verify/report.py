"""All of `prolip bench verify`, line by line."""

from collections.abc import Callable, Collection, Iterator
from itertools import chain
from pathlib import Path

from prolip.bench.verify.compare import CHECKS, Line, compare, known_accuracy, published_parameters
from prolip.bench.verify.problems import made_up, real
from prolip.bench.verify.towers import TOWERS, tower_lines
from prolip.core import errors


def verify_all(data: Path | None = None, only: Collection[str] = ()) -> Iterator[tuple[int, int, Line]]:
    """Each line as it is done, with its number and how many there are.

    On made-up features, or with `data` on those of WHU-RS19; methods through a tower where torch is there.
    `only` has names of methods ("clap") or of lines ("clap, exact"); empty is all of them.
    """
    labels = [*(check.method for check in CHECKS), *TOWERS]
    for name in only:
        if not any(_names(name, label) for label in labels):
            raise errors.unknown_name("line", name, labels)

    def asked(label: str) -> bool:
        return not only or any(_names(name, label) for name in only)

    figures: list[Callable[[], Line]] = [published_parameters] if asked("prolip") else []
    if data is not None and asked("lp_plus_plus"):
        figures.append(lambda: known_accuracy(data))
    checks = [check for check in CHECKS if asked(check.method)]
    towers = [name for name in TOWERS if asked(name)]
    lines = chain(
        (figure() for figure in figures),
        compare(made_up() if data is None else real(data), checks),
        tower_lines(towers),
    )
    total = len(figures) + len(checks) + len(towers)
    for number, line in enumerate(lines, start=1):
        yield number, total, line


def _names(name: str, label: str) -> bool:
    """Whether a name is that of a line, or of its method."""
    return name in (label, label.partition(",")[0])
