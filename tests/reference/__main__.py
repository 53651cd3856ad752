"""Print every method beside an independent computation: `make verify`, or

    PYTHONPATH=tests python -m reference [--only NAME ...]

The largest differences over 1, 4 and 16 shots, 1 and 10 views; exits with 1 where one is beyond 0.01 of a
logit or 0.3 points of accuracy. Methods that train through a tower are compared where torch is installed.
"""

import argparse
import sys
from collections.abc import Collection, Iterator
from importlib.util import find_spec

from prolip.core import errors
from reference.compare import CHECKS, TOWER_LINES, Line, compare
from reference.problems import made_up


def verify_all(only: Collection[str] = ()) -> Iterator[Line]:
    """Each line as it is done; `only` has names of methods ("clap") or of lines, empty is all of them."""
    labels = [*(check.method for check in CHECKS), *TOWER_LINES]
    for name in only:
        if not any(_names(name, label) for label in labels):
            raise errors.UnknownNameError("line", name, labels)

    def wanted(label: str) -> bool:
        return not only or any(_names(name, label) for name in only)

    yield from compare(made_up(), [check for check in CHECKS if wanted(check.method)])
    yield from _tower_lines([name for name in TOWER_LINES if wanted(name)])


def _tower_lines(names: Collection[str]) -> Iterator[Line]:
    if names and find_spec("torch") and find_spec("open_clip"):
        from reference.towers_torch import tower_lines

        yield from tower_lines(names)


def _names(name: str, label: str) -> bool:
    """Whether a name is that of a line, or of its method."""
    return name in (label, label.partition(",")[0])


def main(arguments: list[str] | None = None) -> int:
    """Print the table; 1 where a line is too far from its reference."""
    parser = argparse.ArgumentParser("python -m reference", description=__doc__.partition(":")[0])
    parser.add_argument("--only", nargs="+", default=(), help='methods (clap) or lines ("clap, exact")')
    options = parser.parse_args(arguments)
    lines = []
    for line in verify_all(options.only):
        lines.append(line)
        apart = "   ".join(f"{name} {value:.2g}" for name, value in line.apart.items())
        verdict = "" if line.agrees else f"   too far in {' and '.join(line.beyond)}"
        sys.stdout.write(f"{line.method:28} {line.against:52} {apart}{verdict}\n")
        sys.stdout.flush()
    sys.stdout.write(f"{sum(line.agrees for line in lines)} of {len(lines)} agree\n")
    return 0 if all(line.agrees for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
