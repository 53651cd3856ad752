"""What an experiment is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from prolip.data import ELEVEN

SHOTS = (1, 2, 4, 8, 16)
SEEDS = tuple(range(1, 11))
VIEWS = 10

Options = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """A line of a table.

    Attributes
    ----------
    key, label
        For `--methods`; for tables.
    method, options
        From the registry of methods.
    over
        Settings that the line is a mean over.
    grid
        Options to choose from on validation shots.
    paper
        The line's name in the published table, with {model} where that names the backbone; None where the
        paper has no such line.
    views, template, scale, protocol
        Where they differ from the experiment's; `scale` is a factor on the model's own.
    """

    key: str
    label: str
    method: str
    options: Options = field(default_factory=dict)
    over: tuple[Options, ...] = ({},)
    grid: tuple[Options, ...] = ()
    paper: str | None = None
    views: int | None = None
    template: str | None = None
    scale: float = 1.0
    protocol: str | None = None

    @property
    def trained(self) -> bool:
        """Whether shots, seeds and views make a difference."""
        return self.method != "zero_shot"


@dataclass(frozen=True)
class Experiment:
    """An entry of the table.

    Attributes
    ----------
    name, title, where
        For commands; for people; in the paper.
    protocol
        Of `prolip.evaluate`, or "manifold".
    rows
        The lines.
    layout
        "shots" (a column for each number of shots), "datasets" (the same for each dataset), "base_to_new",
        "targets" (a column for each dataset that is measured on), "chosen" (what a grid search chose),
        "manifold", "parameters" (no runs at all).
    models
        Backbones by the paper's names.
    datasets, targets, shots, seeds
        As in the paper; shots=None is all the data.
    views
        Of each support image: 10 unless the paper has fewer. The paper's 300 are `--views 300`.
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
    rows: tuple[Row, ...]
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
