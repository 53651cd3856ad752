"""What an experiment is, and a line of its table."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from prolip.research.datasets import ELEVEN
from prolip.research.protocols.protocols import Setting

SHOTS = (1, 2, 4, 8, 16)
SEEDS = tuple(range(1, 11))
VIEWS = 10

Options = dict[str, Any]


@dataclass(frozen=True)
class Line:
    """A method in an experiment: a line of its table and of its figure."""

    key: str  # by which it is chosen
    label: str  # by which it is shown
    setting: Setting  # the method and its options
    over: tuple[Options, ...] = ({},)  # options that the line is a mean over
    # Options that the authors have for single datasets.
    by_dataset: dict[str, Options] = field(default_factory=dict)
    # The line's name in the published table, with {model} where that names the backbone; None where the paper
    # has no such line.
    paper: str | None = None
    # Where they differ from the experiment's:
    views: int | None = None
    template: str | None = None
    protocol: str | None = None

    @property
    def trained(self) -> bool:
        """Whether shots, seeds and views make a difference."""
        return self.setting.method != "zero_shot"


@dataclass(frozen=True)
class Experiment:
    """An entry of the catalogue."""

    name: str  # for commands
    title: str  # for people
    where: str  # in the paper
    protocol: str  # of `prolip.research.protocols`, or "manifold"
    lines: tuple[Line, ...]  # what is compared
    # "shots" (a column for each number of shots), "datasets" (the same for each dataset), "base_to_new",
    # "targets" (a column for each dataset that is measured on), "chosen" (what a grid search chose),
    # "manifold", "parameters" (no runs at all)
    layout: str = "shots"
    models: tuple[str, ...] = ("RN50",)  # backbones by the paper's names
    datasets: tuple[str, ...] = ELEVEN
    targets: tuple[str, ...] = ()
    shots: tuple[int | None, ...] = SHOTS  # None is all the data
    seeds: tuple[int, ...] = SEEDS
    views: int = VIEWS  # of each support image: 10 unless the paper has fewer. The paper's own number is 300.
    template: str = "own"  # "own" or "photo"
    published: str | None = None  # the table of figures to set beside it
    columns: dict[str, str] = field(default_factory=dict)  # its names for our columns where they differ
    plot: str = "curves"  # the kind of picture
    note: str = ""  # what a reader should know

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Experiment:
        """From `dataclasses.asdict`, after a way through JSON."""
        lines = [
            Line(**tuples({**entry, "setting": Setting(**tuples(entry["setting"]))}))
            for entry in fields["lines"]
        ]
        return cls(**tuples({**fields, "lines": lines}))


def tuples(fields: dict[str, Any]) -> dict[str, Any]:
    """Fields of a dataclass as they were before JSON made lists of their tuples."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
