"""Progress bars of the Python interface: in a terminal by rich, in a notebook by an HTML element."""

from __future__ import annotations

import html
import importlib
import sys
import time
from types import TracebackType
from typing import Any

from prolip.features.extract import Progress

DELAY = 2.0  # seconds after which a bar is drawn, if nothing else was requested
NOTEBOOK_SECONDS = 0.2  # between two updates in a notebook


class ProgressBars:
    """The bars of one call; they disappear at its end.

    `verbose` None draws them after two seconds, in a terminal or a notebook only; True draws them at once.

    Examples
    --------
    >>> with ProgressBars(verbose=False) as bars:
    ...     bars.bar("encoding images")
    """

    def __init__(self, verbose: bool | None) -> None:
        self._shown = is_interactive() if verbose is None else verbose
        self._start = time.monotonic() + (0.0 if verbose else DELAY)
        self._display: Any = None

    def bar(self, label: str, given: Progress | None = None) -> Progress | None:
        """Return a function of (done, total): the one that is given, a new bar, or None."""
        if given is not None or not self._shown:
            return given
        task: list[Any] = []

        def update(done: int, total: int) -> None:
            if not task and (done >= total or time.monotonic() < self._start):
                return
            if self._display is None:
                self._display = _NotebookDisplay() if in_notebook() else _terminal_display()
            if not task:
                task.append(self._display.add_task(label, total=total))
            self._display.update(task[0], completed=done, total=total)

        return update

    def __enter__(self) -> ProgressBars:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._display is not None:
            self._display.stop()


def is_interactive() -> bool:
    """Whether somebody is looking: standard error is a terminal, or this is a notebook."""
    return in_notebook() or (sys.stderr is not None and sys.stderr.isatty())


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    return "ipykernel" in sys.modules


def _terminal_display() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    display = Progress(*columns, console=console, transient=console.is_terminal)
    display.start()
    return display


class _NotebookDisplay:
    """Bars in the output of a cell; rich would need ipywidgets for that."""

    def __init__(self) -> None:
        notebook = importlib.import_module("IPython.display")  # always there, in the kernel of a notebook
        self._html = notebook.HTML
        self._lines: dict[str, str] = {}
        self._handle = notebook.display(notebook.HTML(""), display_id=True)
        self._updated = 0.0

    def add_task(self, label: str, total: int) -> str:
        return label

    def update(self, task: str, completed: int, total: int) -> None:
        bar = f'<progress value="{completed}" max="{total}"></progress>'
        self._lines[task] = f"<div>{html.escape(task)} {bar} {completed:,} of {total:,}</div>"
        if time.monotonic() - self._updated > NOTEBOOK_SECONDS:
            self._handle.update(self._html("".join(self._lines.values())))
            self._updated = time.monotonic()

    def stop(self) -> None:
        self._handle.update(self._html(""))
