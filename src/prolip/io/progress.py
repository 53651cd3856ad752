"""Progress bars: in a terminal by rich, in a notebook by an HTML element, in a log a line now and then."""

from __future__ import annotations

import datetime
import html
import importlib
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack

Progress = Callable[[int, int], None]  # of (done, total)
Update = Callable[[int, int, str, str], None]  # of (done, total, note, time left)
DELAY = 2.0  # seconds after which a bar is drawn, if nothing else was requested
NOTEBOOK_SECONDS = 0.2  # between two updates in a notebook
LINE_SECONDS = 10.0  # between two lines in a log


class ProgressBars(ExitStack):
    """The bars of one call; they disappear at its end.

    `verbose` None draws them after two seconds, in a terminal or a notebook only; True draws them at once.
    Where standard error is not a terminal, `say` prints a line now and then instead.

    Examples
    --------
    >>> with ProgressBars(verbose=False) as bars:
    ...     bars.bar("encoding", "images")
    """

    def __init__(self, verbose: bool | None, say: Callable[[str], None] | None = None) -> None:
        super().__init__()
        self._shown = is_interactive() if verbose is None else verbose
        self._start = time.monotonic() + (0.0 if verbose else DELAY)
        self._say = say
        self._display: _Notebook | _Terminal | None = None

    def bar(self, label: str, unit: str = "images") -> Progress | None:
        """Return a function of (done, total) that draws a bar; None if nothing is drawn."""
        return Bar(self, label, unit) if self._shown else None

    def due(self) -> bool:
        """Whether bars are to be drawn by now."""
        return self._shown and time.monotonic() >= self._start

    def draw(self, label: str, unit: str, done: int) -> Update:
        """Add a line to the display; return what updates it."""
        if self._display is None:
            if not is_interactive():
                return _log_line(self._say or _print, label, unit, done)
            self._display = _Notebook() if in_notebook() else _Terminal()
            self.callback(self._display.stop)
        return self._display.line(label, unit)


class Bar:
    """One line of a display, drawn from the first call that leaves something to do: `bar(done, total)`."""

    def __init__(self, bars: ProgressBars, label: str, unit: str = "images") -> None:
        self._bars, self._label, self._unit = bars, label, unit
        self._note = self._left = ""
        self._update: Update | None = None

    def __call__(self, done: int, total: int) -> None:
        """Show that `done` of `total` is done."""
        if self._update is None:
            if done >= total or total < 2 or not self._bars.due():
                return
            self._update = self._bars.draw(self._label, self._unit, done)
        self._update(done, total, self._note, self._left)

    def note(self, text: str, left: str = "") -> None:
        """Add a remark, from the next call on; `left` is the time left, where rates mislead."""
        self._note, self._left = text, left

    def beside(self, label: str, unit: str) -> Bar:
        """Return another line of the same display."""
        return Bar(self._bars, label, unit)


def is_interactive() -> bool:
    """Whether somebody is looking: standard error is a terminal, or this is a notebook."""
    return in_notebook() or (sys.stderr is not None and sys.stderr.isatty())


def _print(line: str) -> None:
    print(line, file=sys.stderr)


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    return "ipykernel" in sys.modules


def _pace(rate: float, unit: str) -> str:
    return f"{rate:,.{0 if rate >= 10 else 1}f} {unit}/s"


def _log_line(say: Callable[[str], None], label: str, unit: str, first: int) -> Update:
    began = printed = time.monotonic()
    before = first

    def update(done: int, total: int, note: str, left: str) -> None:
        nonlocal printed, began, first, before
        now = time.monotonic()
        if done < before:  # the next of several things of one kind
            began, first = now, done
        before = done
        if now - printed >= LINE_SECONDS:
            printed, rate = now, (done - first) / max(now - began, 1e-9)
            if rate and not left:
                left = f"{datetime.timedelta(seconds=round((total - done) / rate))} left"
            shown = ", ".join(filter(None, (f"{done:,} of {total:,}", _pace(rate, unit), left)))
            say(f"{label}: {shown}  {note}".rstrip())

    return update


class _Terminal:
    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            Task,
            TextColumn,
            TimeRemainingColumn,
        )
        from rich.text import Text

        class TimeLeft(TimeRemainingColumn):
            def render(self, task: Task) -> Text:
                return (
                    Text(task.fields["left"], "progress.remaining")
                    if task.fields["left"]
                    else super().render(task)
                )

        console = Console(stderr=True, highlight=False, emoji=False)
        self._drawn = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}", markup=False),
            TimeLeft(compact=True, elapsed_when_finished=True),
            console=console,
            transient=console.is_terminal,
        )
        self._drawn.start()
        self.stop = self._drawn.stop

    def line(self, label: str, unit: str) -> Update:
        task = self._drawn.add_task(label, rate="", left="")

        def update(done: int, total: int, note: str, left: str) -> None:
            shown = next(each for each in self._drawn.tasks if each.id == task)
            if done < shown.completed:  # the next of several things of one kind
                self._drawn.reset(task)
            rate = _pace(shown.speed, unit) if shown.speed else ""
            self._drawn.update(task, completed=done, total=total, rate=f"{rate}  {note}".rstrip(), left=left)

        return update


class _Notebook:
    """Bars in the output of a cell; rich would need ipywidgets for that."""

    def __init__(self) -> None:
        notebook = importlib.import_module("IPython.display")  # always there, in the kernel of a notebook
        self._html, self._lines = notebook.HTML, dict[str, str]()
        self._handle = notebook.display(notebook.HTML(""), display_id=True)
        self._updated = 0.0

    def line(self, label: str, unit: str) -> Update:
        def update(done: int, total: int, note: str, left: str) -> None:
            bar = f'<progress value="{done}" max="{total}"></progress>'
            self._lines[label] = f"<div>{html.escape(label)} {bar} {done:,} of {total:,}</div>"
            if time.monotonic() - self._updated > NOTEBOOK_SECONDS:
                self._handle.update(self._html("".join(self._lines.values())))
                self._updated = time.monotonic()

        return update

    def stop(self) -> None:
        self._handle.update(self._html(""))


def counted(number: int, what: str = "image") -> str:
    """Return a number of things in words: 1 image, 2 images."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"
