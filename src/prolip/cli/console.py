"""What commands print: progress bars and tables for people, JSON for machines, errors in one line.

Names of files and classes can have any characters. Everything is printed through `printable`, so that no name
can move the cursor, change colours or end a line.
"""

import contextlib
import io
import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prolip.io.progress import Bar, ProgressBars, counted

LISTED = 20  # unreadable images that are named


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
    return _CONTROL.sub(lambda found: repr(found[0])[1:-1], text)


def print_json(value: Any) -> None:
    """Print one JSON document to standard output, in UTF-8 whatever the encoding of the terminal.

    A file name that is not UTF-8 has lone surrogates, which become JSON escapes.
    """
    utf8 = (sys.stdout.encoding or "utf-8").lower().replace("_", "-") in ("utf-8", "utf8")
    text = json.dumps(value, ensure_ascii=not utf8)
    text = _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)  # inside strings alone
    sys.stdout.write(text.encode("utf-8", "backslashreplace").decode("utf-8") + "\n")


def console(stderr: bool = False, width: int = 120) -> Any:
    """Return a rich console; where the output is not a terminal, so wide that nothing is cut.

    Characters that the stream cannot encode are printed as escapes. If its reader stops (`| head`), the rest
    is discarded, and the command ends as usual.
    """
    from rich.console import Console

    class Piped(Console):
        def on_broken_pipe(self) -> None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.file.fileno())

    file = sys.stderr if stderr else sys.stdout
    if isinstance(file, io.TextIOWrapper):
        file.reconfigure(errors="backslashreplace")
    columns = None if file.isatty() else width
    return Piped(stderr=stderr, highlight=False, emoji=False, width=columns)


@contextlib.contextmanager
def bar(label: str, unit: str = "images") -> Iterator[Bar]:
    """Show a progress bar on standard error."""
    with ProgressBars(not OUTPUT.get().silent) as bars:
        yield Bar(bars, label, unit)


def say(message: str) -> None:
    """Print a line for people to standard error, so that standard output stays clean."""
    if not OUTPUT.get().silent:
        console(stderr=True).print(printable(message), markup=False)


def hint(markup: str, soft_wrap: bool = False) -> None:
    """Print what to do next, below a result; not with -q. `soft_wrap` leaves a command in one line."""
    if not OUTPUT.get().quiet:
        console().print(markup, soft_wrap=soft_wrap)


def program() -> str:
    """Return how to start this program from here, for commands that are printed to be typed."""
    started, found = Path(sys.argv[0]), shutil.which("prolip")
    if found and Path(found).parent.absolute() in (started.parent.absolute(), Path(sys.executable).parent):
        return "prolip"
    return shlex.join([sys.executable, "-m", "prolip"] if started.suffix == ".py" else [sys.argv[0]])


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


def escape(message: str) -> str:
    """Make text printable, and escape the markup of rich in it."""
    from rich.markup import escape

    return escape(printable(message))
