"""The options of `prolip bench`, and what they say."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from prolip.bench.running.plan import Choices

MOST_SEEDS = 10_000  # of a range: the paper has ten, and a slip of the finger would fill the memory
Words = list[str] | None
Name = Annotated[str, typer.Argument(metavar="EXPERIMENT", help="A name of `prolip bench list`.")]
Results = Annotated[Path, typer.Option("--results", help="File that results are kept in (SQLite).")]
Against = Annotated[str | None, typer.Option(metavar="LINE", help="Show the paired difference to this line.")]
Data = Annotated[Path, typer.Option("--data", help="Folder that holds the datasets' folders.")]
Datasets = Annotated[Words, typer.Option(help="Datasets, or folders of images in --data to stand for them.")]
_MODELS = (
    "RN50, RN101, ViT-B/16, ViT-B/32 or any encoder; else the paper's for its datasets, offline for others."
)
Models = Annotated[Words, typer.Option(help=_MODELS)]
Methods = Annotated[Words, typer.Option(help="Lines of `prolip bench list EXPERIMENT`, or any method.")]
Shots = Annotated[Words, typer.Option(help="Shots: numbers, or `full`.")]
Seeds = Annotated[Words, typer.Option(help="Seeds: numbers, or a range like 1-10.")]
Views = Annotated[int | None, typer.Option(help="Views of each support image; the paper has 300.", min=1)]
Template = Annotated[Words, typer.Option(help="Prompt in place of the datasets' own.")]
Jobs = Annotated[int | None, typer.Option("--jobs", "-j", help="Processes; one per core unless named.")]
Ray = Annotated[str | None, typer.Option(metavar="ADDRESS", help="A Ray cluster; `local` starts one.")]
Retry = Annotated[bool, typer.Option("--retry", help="Run what failed again.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what there is to do, and do nothing.")]
Store = Annotated[Path | None, typer.Option(help="Folder that features are kept in.")]


def choices(
    datasets: Words,
    model: Words,
    methods: Words,
    shots: Words,
    seeds: Words,
    views: int | None,
    template: Words,
) -> Choices:
    """What the options say."""
    from prolip.bench.running.plan import Choices
    from prolip.data import as_templates

    return Choices(
        _words(datasets),
        _words(model),
        tuple(methods or ()),
        tuple(None if s == "full" else _number(s, "shots") for s in _words(shots)),
        tuple(seed for text in _words(seeds) for seed in _range(text)),
        views,
        as_templates(template) if template else (),
    )


def _words(given: Words) -> tuple[str, ...]:
    """Values with commas between them are several."""
    return tuple(word for text in given or () for word in text.split(",") if word)


def _number(text: str, what: str) -> int:
    from prolip.core.errors import UsageError

    try:
        value = int(text)
    except ValueError:
        raise UsageError(f"--{what}: {text!r} is not a number") from None
    if value < 1:
        raise UsageError(f"--{what} must be at least 1, got {value}")
    return value


def _range(text: str) -> list[int]:
    from prolip.core.errors import UsageError

    first, dash, last = text.partition("-")
    start = _number(first, "seeds")
    stop = _number(last, "seeds") if dash else start
    if stop < start:
        raise UsageError(f"--seeds: {text!r} is an empty range, did you mean {stop}-{start}?")
    if stop - start >= MOST_SEEDS:
        raise UsageError(f"--seeds: {text!r} are {stop - start + 1:,}, at most {MOST_SEEDS:,} are taken")
    return list(range(start, stop + 1))
