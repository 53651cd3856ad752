"""Progress bars by tqdm, in terminals, notebooks and logs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

Progress = Callable[[int, int], None]  # of (done, total)
DELAY = 2.0  # seconds after which a bar is drawn, if nothing else was requested
LINE_SECONDS = 10.0  # before the first line of a log, and between two


class ProgressBars(ExitStack):
    """The place of the bars of one call; they disappear at its end.

    `verbose` None draws them after two seconds, in a terminal or a notebook only; True draws them at once,
    and in a log after ten seconds.

    Examples
    --------
    >>> with ProgressBars(verbose=False) as bars:
    ...     Bar(bars, "encoding", "images")(1, 2)
    """

    def __init__(self, verbose: bool | None) -> None:
        super().__init__()
        self.shown = is_interactive() if verbose is None else verbose
        self.delay = 0.0 if verbose else DELAY


class Bar:
    """One bar, drawn from the first call that leaves something to do: `bar(done, total)`."""

    def __init__(self, bars: ProgressBars, label: str, unit: str = "images") -> None:
        self._bars, self._label, self._unit = bars, label, unit
        self.note = ""  # a remark, from the next call on
        self._drawn: Any = None

    def __call__(self, done: int, total: int) -> None:
        """Show that `done` of `total` is done."""
        if self._drawn is None:
            if not self._bars.shown or done >= total or total < 2:
                return
            self._drawn = self._bars.enter_context(self._draw(total))
        if done < self._drawn.n:  # the next of several things of one kind
            self._drawn.reset(total)
        self._drawn.set_postfix_str(self.note, refresh=False)
        self._drawn.total = total
        self._drawn.update(done - self._drawn.n)

    def _draw(self, total: int) -> Any:
        from tqdm.auto import tqdm

        seconds = (self._bars.delay, 0.1) if is_interactive() else (LINE_SECONDS, LINE_SECONDS)
        return tqdm(
            desc=self._label,
            unit=f" {self._unit}",
            unit_scale=self._unit == "bytes",
            total=total,
            delay=seconds[0],
            mininterval=seconds[1],
            leave=not is_interactive(),
            file=sys.stderr,
        )

    def beside(self, label: str, unit: str) -> Bar:
        """Return another bar of the same call."""
        return Bar(self._bars, label, unit)


def is_interactive() -> bool:
    """Whether somebody is looking: standard error is a terminal, or this is a notebook."""
    return "ipykernel" in sys.modules or (sys.stderr is not None and sys.stderr.isatty())


def counted(number: int, what: str = "image") -> str:
    """Return a number of things in words: 1 image, 2 images."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"
