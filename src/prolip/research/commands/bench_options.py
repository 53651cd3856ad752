"""Options of `prolip bench`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from prolip.cli import options
from prolip.cli.options import shared
from prolip.cli.parameters import PATH, POSITIVE, Command, argument, option

experiment = argument("name", "EXPERIMENT", "A name from `prolip bench list`.")
results_file = option(
    "--results",
    type=PATH,
    default=Path("prolip-bench") / "results.sqlite",
    help="SQLite file with the results.",
)


class SeveralValues(Command):
    """A command with options of several values: `--datasets a b` is `--datasets a --datasets b`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Repeat the option before each of its values."""
        several = {name for each in self.params if getattr(each, "multiple", False) for name in each.opts}
        spread: list[str] = []
        option = ""
        for word in args:
            if word.startswith("-") or not option:
                option = word if word in several else ""
                spread.append(word)
            else:
                spread += [word] if spread[-1] == option else [option, word]
        return super().parse_args(ctx, spread)


def _several(name: str, help: str, **attributes: Any) -> Any:
    return shared(option(name, multiple=True, help=help, **attributes), ())


@dataclass(frozen=True)
class Selection:
    """The part of an experiment to run."""

    datasets: tuple[str, ...] = _several("--datasets", "Datasets, or folders of images in --data.")
    model: tuple[str, ...] = _several(
        "--model", "RN50, RN101, ViT-B/16, ViT-B/32 or any encoder.",
        show_default="the paper's for its datasets, offline for others",
    )  # fmt: skip
    line: tuple[str, ...] = _several(
        "--line",
        "Lines of `prolip bench list EXPERIMENT`, or any method, with options: prolip:lam=0.1:solver=adam.",
    )
    shots: tuple[str, ...] = _several("--shots", "Shots: numbers, or `full`.")
    seeds: tuple[str, ...] = _several("--seeds", "Seeds: numbers, or a range like 1-10.")
    views: int | None = shared(
        option("--views", type=POSITIVE, help="Views of each support image; the paper has 300.")
    )
    template: tuple[str, ...] = _several("--template", "Prompt to use instead of the datasets' own.")
    validation: str | None = shared(
        option(
            "--validation",
            type=click.Choice(["none", "shots", "min4", "split"]),
            show_default="the experiment's",
            help="Images to choose options on: none, N shots, min(N, 4) shots, or the validation split.",
        )
    )

    def plan_options(self) -> dict[str, Any]:
        """Return the selection as keyword arguments of `make_plan`."""
        from prolip.data import as_templates

        return {
            "datasets": self.datasets,
            "models": self.model,
            "entries": self.line,
            "shots": [None if word == "full" else _number(word, "shots") for word in self.shots],
            "seeds": [seed for word in self.seeds for seed in _range(word)],
            "views": self.views,
            "templates": as_templates(list(self.template)) if self.template else (),
            "validation": self.validation,
        }


@dataclass(frozen=True)
class Machine:
    """Where an experiment runs, and where its data and results are."""

    data: Path = shared(
        option("--data", type=PATH, default=".", help="Folder that holds the datasets' folders.")
    )
    results: Path = shared(results_file)
    jobs: int | None = shared(
        option("--jobs", "-j", type=click.IntRange(min=1), show_default="one per core", help="Processes.")
    )
    ray: str | None = shared(
        option("--ray", metavar="ADDRESS", help="Run on a Ray cluster; `local` starts one here.")
    )
    device: str = shared(options.device)
    store: Path | None = shared(options.features_store)


selection = options.group("selection", Selection)
machine = options.group("machine", Machine)


def _number(text: str, what: str) -> int:
    from prolip.core.errors import UsageError

    if not (text.isdecimal() and len(text) < 10 and int(text) > 0):
        raise UsageError(f"--{what}: {text!r} is not a number from 1 on")
    return int(text)


def _range(text: str) -> range:
    from prolip.core.errors import UsageError

    first, dash, last = text.partition("-")
    start = _number(first, "seeds")
    stop = _number(last, "seeds") if dash else start
    if stop < start:
        raise UsageError(f"--seeds: {text!r} is an empty range, did you mean {stop}-{start}?")
    return range(start, stop + 1)
