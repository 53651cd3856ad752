"""What an experiment is, and a line of its table."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from prolip.data import ELEVEN
from prolip.evaluate.protocols import Setting

SHOTS = (1, 2, 4, 8, 16)
SEEDS = tuple(range(1, 11))
VIEWS = 10

Options = dict[str, Any]


@dataclass(frozen=True)
class Line:
    """A method in an experiment: a line of its table and of its figure.

    Attributes
    ----------
    key, label
        By which it is chosen; by which it is shown.
    setting
        The method and its options.
    over
        Options that the line is a mean over.
    by_dataset
        Options that the authors have for single datasets.
    paper
        The line's name in the published table, with {model} where that names the backbone; None where the
        paper has no such line.
    views, template, protocol
        Where they differ from the experiment's.
    """

    key: str
    label: str
    setting: Setting
    over: tuple[Options, ...] = ({},)
    by_dataset: dict[str, Options] = field(default_factory=dict)
    paper: str | None = None
    views: int | None = None
    template: str | None = None
    protocol: str | None = None

    @property
    def trained(self) -> bool:
        """Whether shots, seeds and views make a difference."""
        return self.setting.method != "zero_shot"


@dataclass(frozen=True)
class Experiment:
    """An entry of the catalogue.

    Attributes
    ----------
    name, title, where
        For commands; for people; in the paper.
    protocol
        Of `prolip.evaluate.protocols`, or "manifold".
    lines
        What is compared.
    layout
        "shots" (a column for each number of shots), "datasets" (the same for each dataset), "base_to_new",
        "targets" (a column for each dataset that is measured on), "chosen" (what a grid search chose),
        "manifold", "parameters" (no runs at all).
    models
        Backbones by the paper's names.
    datasets, targets, shots, seeds
        As in the paper; shots=None is all the data.
    views
        Of each support image: 10 unless the paper has fewer. The paper's own number is 300.
    template
        "own" or "photo".
    published, columns
        The table of figures to set beside it, and its names for our columns where they differ.
    plot
        The kind of picture.
    note
        What a reader should know.
    """

    name: str
    title: str
    where: str
    protocol: str
    lines: tuple[Line, ...]
    layout: str = "shots"
    models: tuple[str, ...] = ("RN50",)
    datasets: tuple[str, ...] = ELEVEN
    targets: tuple[str, ...] = ()
    shots: tuple[int | None, ...] = SHOTS
    seeds: tuple[int, ...] = SEEDS
    views: int = VIEWS
    template: str = "own"
    published: str | None = None
    columns: dict[str, str] = field(default_factory=dict)
    plot: str = "curves"
    note: str = ""

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
