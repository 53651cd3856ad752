"""The published figures, each with the program and the protocol behind it, and the paper's backbones.

`published.json` has every number of the paper's tables, main text and supplement. Where the paper contradicts
itself, it has every value that the paper gives. Its `provenance` says for every row who ran which program,
and how. An entry is compared with a row only if it runs that program in that way: `Provenance.differences`.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from prolip import methods
from prolip.core.errors import check_name
from prolip.research.catalogue.experiment import Entry, Experiment, Options

# The paper's backbones: their encoders here, and the shape of their projection (D, Do).
BACKBONES = {
    "RN50": "open_clip:RN50/openai",
    "RN101": "open_clip:RN101/openai",
    "ViT-B/16": "open_clip:ViT-B-16/openai",
    "ViT-B/32": "open_clip:ViT-B-32/openai",
    "SigLIP ViT-B/16": "open_clip:ViT-B-16-SigLIP/webli",
}
# Other names of the same weights.
_SAME = {"open_clip:RN50-quickgelu/openai": "RN50", "open_clip:RN101-quickgelu/openai": "RN101"}
PROJECTIONS = {"RN50": (1024, 2048), "RN101": (512, 2048), "ViT-B/32": (512, 768), "ViT-B/16": (512, 768)}


@dataclass(frozen=True)
class Provenance:
    """The program and the protocol behind a published row."""

    source: str  # who ran it, and where it is published
    program: str
    method: str | None = None  # the method here that follows this program
    options: Options = field(default_factory=dict)  # its options then; a list is a mean over several runs
    grid: dict[str, list[Any]] = field(default_factory=dict)  # options that were searched
    template: str = "own"  # as in `Entry`; "learned" where the prompt is trained; or a description
    validation: str = "none"  # as in `Experiment`, or a description
    seeds: int | None = None  # None where it is not stated
    protocol: str | None = None  # where it is not the experiment's
    scale: float = 1.0
    view_area: float = 0.5  # minimum share of an image that its random crops show
    differs: str = ""  # what is known to differ from the method here

    def differences(self, entry: Entry, experiment: Experiment) -> list[str]:
        """Return what differs between an entry and this program; nothing if the entry runs it."""
        different = [self.differs] if self.differs else []
        if self.method not in (None, entry.method):
            different.append(f"the program is {self.method}, the line {entry.method}")
        if self.template != "learned":
            different += _unequal("template", self.template, entry.template or experiment.template)
        different += _unequal("scale", self.scale, entry.scale)
        if self.protocol is not None:
            different += _unequal("protocol", self.protocol, entry.protocol or experiment.protocol)
        if not entry.trained:
            return different
        # A method that makes no crops of its own trains on cached views.
        area = _option(entry, "view_area") or entry.view_area
        different += _unequal("smallest crop", self.view_area, area)
        validation = entry.validation or experiment.validation
        different += _unequal("validation", self.validation, validation)
        for name, value in self.options.items():
            different += _unequal(name, value, _option(entry, name))
        searched = {name: list(dict.fromkeys(pair[name] for pair in entry.grid)) for name in self.grid}
        return different + _unequal("grid", self.grid, searched)

    @property
    def settings(self) -> str:
        """The options, and those that were searched, in a few words."""
        words = [f"{name} {_words(value)}" for name, value in self.options.items()]
        return ", ".join(words + [f"{name} searched in {len(values)}" for name, values in self.grid.items()])


def _unequal(name: str, theirs: Any, ours: Any) -> list[str]:
    return [] if theirs == ours else [f"{name}: {_words(theirs)} there, {_words(ours)} here"]


def _words(value: Any) -> str:
    if isinstance(value, list):
        return f"the mean over {', '.join(map(_words, value))}"
    if isinstance(value, dict):
        return " x ".join(f"{len(values)} {name}" for name, values in value.items()) or "none"
    return "by default" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _option(entry: Entry, name: str) -> Any:
    """Return an entry's value of an option, a list if the entry is a mean over several."""
    default = getattr(methods.get(entry.method), name, None)
    values = [{**entry.options, **more}.get(name, default) for more in entry.averaged_over]
    return values[0] if all(value == values[0] for value in values) else values


@dataclass(frozen=True)
class Published:
    """One table of the paper."""

    columns: tuple[str, ...]  # shots, datasets or measures
    # By (dataset, method); the dataset is None where a row is a mean over datasets.
    values: dict[tuple[str | None, str], tuple[float | None, ...]]
    provenance: dict[str, Provenance]  # by method
    reference: str
    shots: int | None  # where the columns are not shots
    stds: dict[tuple[str | None, str], tuple[float, ...]]  # where they are known

    def value(self, method: str, column: str, dataset: str | None = None, std: bool = False) -> float | None:
        """Return a figure, or its deviation; None where the paper has none."""
        row = (self.stds if std else self.values).get((dataset, method))
        return row[self.columns.index(column)] if row is not None and column in self.columns else None


@cache
def published(name: str) -> Published:
    """Return a published table by its name in `published.json`."""
    tables = published_tables()
    check_name("published table", name, tables)
    table = tables[name]
    values = {(row.get("dataset"), row["method"]): tuple(row["values"]) for row in table["rows"]}
    provenance = table["provenance"]
    if isinstance(provenance, str):  # the same runs as in another table
        provenance = tables[provenance]["provenance"]
    known = {method: Provenance(**fields) for method, fields in provenance.items()}
    stds = {(row.get("dataset"), row["method"]): tuple(row["std"]) for row in table["rows"] if "std" in row}
    return Published(tuple(table["columns"]), values, known, table["reference"], table.get("shots"), stds)


@cache
def published_tables() -> dict[str, Any]:
    """Return the tables as they are in the file, by name."""
    text = Path(__file__).with_name("published.json").read_text(encoding="utf-8")
    tables: dict[str, Any] = json.loads(text)["tables"]
    return tables


def paper_model(model: str) -> str | None:
    """Return the paper's name for an encoder, if it is one of the paper's."""
    if model in BACKBONES:
        return model
    return _SAME.get(model) or next((title for title, name in BACKBONES.items() if name == model), None)


def published_name(entry: Entry, model: str) -> str | None:
    """Return the name of an entry's row for a backbone; None where the paper has no such row."""
    norm = "BatchNorm" if model.startswith("RN") else "LayerNorm"
    return None if entry.published_row is None else entry.published_row.format(model=model, norm=norm)


def not_shown(experiments: Iterable[Experiment]) -> list[Experiment]:
    """Return the published tables that no experiment shows, as experiments without entries."""
    shown = {name for one in experiments for name in (one.published, one.published_per_dataset)}
    left = [(name, table) for name, table in published_tables().items() if name not in shown]
    return [
        Experiment("", table["title"], table["reference"], table.get("shown_by", ""), (), published=name)
        for name, table in left
    ]


def published_rows(experiment: Experiment) -> Iterator[tuple[str, str, Provenance, Entry | None, list[str]]]:
    """Yield every row of an experiment's published tables: where it is, its name, its provenance, the entry
    that stands beside it, and what differs between the two.
    """
    names = (experiment.published, experiment.published_per_dataset)
    for name in dict.fromkeys(name for name in names if name):
        table = published(name)
        entries = {
            published_name(entry, model): entry for model in experiment.models for entry in experiment.entries
        }
        for row, provenance in table.provenance.items():
            if any(key[1] == row for key in table.values):
                entry = entries.get(row)
                if entry is not None:
                    why = provenance.differences(entry, experiment)
                elif experiment.layout == "parameters" or experiment.protocol == "parameters":
                    why = []  # counted, not run
                else:
                    why = [f"shown by {experiment.protocol}" if not experiment.name else "no line runs it"]
                yield table.reference, row, provenance, entry, why
