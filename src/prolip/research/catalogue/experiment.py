"""The definition of an experiment and of an entry of its table, and the register of experiments."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from prolip.research.datasets import ELEVEN
from prolip.research.places import find
from prolip.research.protocols.run import lists_to_tuples

Options = dict[str, Any]


@dataclass(frozen=True)
class Entry:
    """A method in an experiment: a line of its table and of its figure."""

    key: str  # for commands
    label: str  # for tables and figures
    method: str
    options: Options = field(default_factory=dict)
    grid: tuple[Options, ...] = ()  # options to choose from on a validation set
    scale: float = 1.0  # factor of the encoder's own scale
    averaged_over: tuple[Options, ...] = ({},)  # options that the entry is a mean over
    by_dataset: dict[str, Options] = field(default_factory=dict)  # the authors' options for single datasets
    # The entry's name in the published table, with {model} for the backbone; None where the paper has no such
    # row.
    published_row: str | None = None
    gain_over: str | None = None  # the figure shows the gain over the entry with this key
    in_figure: bool = True
    view_area: float = 0.5  # smallest share of an image that its cached views show
    # Where they differ from the experiment's:
    views: int | None = None
    template: str | None = None
    protocol: str | None = None
    validation: str | None = None

    @property
    def trained(self) -> bool:
        """Whether shots, seeds and views make a difference."""
        return self.method != "zero_shot"


@dataclass(frozen=True)
class Experiment:
    """A table or figure of the paper."""

    name: str  # for commands
    title: str
    reference: str  # where it is in the paper
    protocol: str  # of `prolip.research.protocols`
    entries: tuple[Entry, ...]
    # Shape of the table: "shots" (a column for each number of shots), "datasets" (the same for each dataset),
    # "base_to_new", "targets" (a column for each test dataset),
    # "seconds", "manifold", "parameters" (nothing is run).
    layout: str = "shots"
    models: tuple[str, ...] = ("RN50",)  # backbones by the paper's names
    datasets: tuple[str, ...] = ELEVEN
    targets: tuple[str, ...] = ()
    validation: str = "none"  # the images that options are chosen on: "none", "shots", "min4" or "split"
    shots: tuple[int | None, ...] = (1, 2, 4, 8, 16)  # None is all the data
    seeds: tuple[int, ...] = tuple(range(1, 11))
    views: int = 10  # of each support image; the paper's own number is 300
    template: str = "own"  # "own", "photo", "coop" or "clap": see `Run`
    published: str | None = None  # the published table to compare with
    published_per_dataset: str | None = None  # the one with a row for each dataset, of base-to-new
    columns: dict[str, str] = field(default_factory=dict)  # published names of our columns where they differ
    plot: str = "lines"  # "lines", "bars", "heat_map" or "scatter"
    deviation: str = "seeds"  # what ± and bands are the deviation over: "seeds" or "learning rates"
    note: str = ""

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Experiment:
        """Restore an experiment from `dataclasses.asdict`, after JSON."""
        entries = [Entry(**lists_to_tuples(entry)) for entry in fields["entries"]]
        return cls(**lists_to_tuples({**fields, "entries": entries}))


EXPERIMENTS: dict[str, Experiment] = {}  # by name; those of the paper and those that were registered


def register_experiment(experiment: Experiment) -> Experiment:
    """Make an experiment known to `prolip bench`.

    Examples
    --------
    >>> register_experiment(Experiment("mine", "My table", "ours", "few_shot", (Entry("gda", "GDA", "gda"),)))
    ... # doctest: +SKIP
    """
    EXPERIMENTS[experiment.name] = experiment
    return experiment


def find_experiment(name: str) -> Experiment:
    """Return an experiment by name, or at a place: "package.module:NAME"."""
    return find("experiment", name, EXPERIMENTS)
