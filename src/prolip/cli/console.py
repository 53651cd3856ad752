"""What commands print: progress bars and tables for people, JSON for machines, errors in one line.

Names of files and classes can have any characters. Everything is printed through `printable`, so that no name
can move the cursor, change colours or end a line.
"""

import contextlib
import io
import json
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prolip.io.progress import Bar, ProgressBars, counted

LISTED = 20  # unreadable images that are named
WIDTH = 120  # characters, where the output is not a terminal


@dataclass(frozen=True)
class Output:
    """What the options -q, -v and --json request."""

    quiet: bool = False
    verbose: bool = False
    json: bool = False

    @property
    def silent(self) -> bool:
        """Whether progress and remarks are not printed."""
        return self.quiet or self.json


OUTPUT: ContextVar[Output] = ContextVar("output", default=Output())  # noqa: B039  (it is frozen)

# What a terminal interprets: control characters, and those that change the direction of writing.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    r"""Return the text in one line, with escapes for what a terminal would interpret.

    Examples
    --------
    >>> print(printable("red\n\x1b[31mfox"))
    red\n\x1b[31mfox
    """
    return _CONTROL.sub(lambda match: repr(match[0])[1:-1], text)


def escape(message: object) -> str:
    """Make text printable, and escape the markup of rich in it."""
    from rich.markup import escape

    return escape(printable(str(message)))


def print_json(value: Any) -> None:
    """Print one JSON document to standard output, in ASCII: whatever the terminal, and whatever is in it."""
    print(json.dumps(value))


def print_as_json(value: Any) -> bool:
    """Print a value if --json requests it, and return whether it does."""
    if OUTPUT.get().json:
        print_json(value)
    return OUTPUT.get().json


def console(stderr: bool = False) -> Any:
    """Return a rich console; where the output is not a terminal, so wide that little is wrapped.

    Characters that the stream cannot encode are printed as escapes.
    """
    from rich.console import Console

    file = sys.stderr if stderr else sys.stdout
    if isinstance(file, io.TextIOWrapper):
        file.reconfigure(errors="backslashreplace")
    return Console(stderr=stderr, highlight=False, emoji=False, width=None if file.isatty() else WIDTH)


@contextlib.contextmanager
def bar(label: str, unit: str = "images") -> Iterator[Bar]:
    """Show a progress bar on standard error."""
    with ProgressBars(not OUTPUT.get().silent) as bars:
        yield Bar(bars, label, unit)


def say(message: str) -> None:
    """Print a line for people to standard error, so that standard output stays clean."""
    if not OUTPUT.get().silent:
        console(stderr=True).print(printable(message), markup=False)


def detail(message: str) -> None:
    """Print a line with -v only."""
    if OUTPUT.get().verbose:
        console(stderr=True).print(printable(message), markup=False, style="dim", soft_wrap=True)


def warn(message: str) -> None:
    """Print a warning, whatever the output format."""
    console(stderr=True).print(f"[yellow]warning:[/] {escape(message)}")


def fail(message: str) -> None:
    """Print an error in one line, on standard error."""
    console(stderr=True).print(f"[red]error:[/] {escape(message)}", soft_wrap=True)


def hint(markup: str, soft_wrap: bool = False) -> None:
    """Print what to do next, below a result; not with -q. `soft_wrap` leaves a command in one line."""
    if not OUTPUT.get().quiet:
        console().print(markup, soft_wrap=soft_wrap)


def show_written(**paths: Path | None) -> None:
    """Print the name of each file that was written."""
    for what, path in paths.items():
        if path is not None:
            console().print(f"{what.capitalize()}: [bold]{escape(path)}[/]", soft_wrap=True)


def typed(*words: object) -> str:
    """Return a command of this program as it is typed, in markup."""
    return f"[bold]{escape(shlex.join(['prolip', *map(str, words)]))}[/]"


def table(title: str | None, columns: list[str], rows: list[list[str]], right: int = 1) -> None:
    """Print a table; columns from number `right` on are aligned to the right."""
    from rich.table import Table
    from rich.text import Text

    if title is not None:
        console().print(f"[italic]{escape(title)}[/]")
    drawn = Table(box=None, pad_edge=False, header_style="bold", show_header=any(columns))
    for i, name in enumerate(columns):
        drawn.add_column(escape(name), justify="right" if i >= right else "left", overflow="fold")
    for row in rows:
        drawn.add_row(*(Text(printable(cell)) for cell in row))
    console().print(drawn)


def class_table(rows: Iterable[tuple[Any, int | None, float | None]], title: str | None = None) -> None:
    """Print classes with their numbers of images and their accuracies."""
    cells = [[str(name), "-" if n is None else str(n), percent(accuracy)] for name, n, accuracy in rows]
    table(title, ["class", "images", "accuracy %"], cells)


def report_skipped(bad: Sequence[tuple[str, str]]) -> None:
    """Print how many images could not be read, and which."""
    if bad:
        warn(f"{counted(len(bad))} could not be read and {'was' if len(bad) == 1 else 'were'} left out")
        for name, reason in bad[:LISTED]:
            say(f"  {name}: {reason}")
        if len(bad) > LISTED:
            say(f"  ... and {len(bad) - LISTED} more")


def percent(value: float | None) -> str:
    """Format a fraction as per cent."""
    return "-" if value is None else f"{100 * value:.1f}"


def interval(bounds: Sequence[float] | None) -> str:
    """Format a 95 % interval of fractions."""
    low, high = bounds or (0.0, 1.0)
    return f"95 % interval {percent(low)} to {percent(high)} %"
