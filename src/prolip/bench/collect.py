"""The results of a plan, averaged as the paper averages, and the paper's own figure for each."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from prolip.bench.backbones import MODELS
from prolip.bench.experiment import Experiment, Row
from prolip.bench.plan import Choices, Planned, expand
from prolip.bench.published import Published, published
from prolip.bench.results import Row as ResultRow
from prolip.bench.units import Unit
from prolip.data import DATASETS

# Other names of the same weights.
_SAME = {"open_clip:RN50-quickgelu/openai": "RN50", "open_clip:RN101-quickgelu/openai": "RN101"}


@dataclass(eq=False)
class Collected:
    """The results of a plan, and how to look them up."""

    experiment: Experiment
    choices: Choices
    planned: list[Planned]
    results: dict[str, dict[str, Any]]  # by spec
    failures: list[tuple[str, str]] = field(default_factory=list)  # line, error

    @classmethod
    def of(cls, experiment: Experiment, choices: Choices, rows: Iterable[ResultRow]) -> Collected:
        """From the rows of a plan."""
        planned = list(expand(experiment, choices))
        labels = {p.unit.spec(): p.row.label for p in planned}
        done, failures = {}, []
        for row in rows:
            if row.result is not None:
                done[row.unit.spec()] = row.result
            elif row.status == "failed":
                failures.append((labels.get(row.unit.spec(), row.unit.method), row.error or ""))
        return cls(experiment, choices, planned, done, failures)

    @property
    def rows(self) -> list[Row]:
        """Lines, in order."""
        return list({p.row.key: p.row for p in self.planned}.values())

    def mean(
        self,
        row: Row,
        model: str,
        datasets: Sequence[str],
        shots: int | None,
        value: Callable[[dict[str, Any]], float | None],
    ) -> tuple[float | None, float | None, int]:
        """Over settings and datasets, then over seeds: mean and deviation in percent, and runs that lack."""
        by_seed: dict[int, list[float]] = defaultdict(list)
        missing = 0
        for p in self.planned:
            unit = p.unit
            if p.row.key != row.key or p.model != model or unit.dataset not in datasets:
                continue
            if row.trained and unit.shots != shots:
                continue
            result = self.results.get(unit.spec())
            found = None if result is None else value(result)
            if found is None:
                missing += 1
            else:
                by_seed[unit.seed].append(100 * found)
        means = [statistics.fmean(values) for values in by_seed.values()]
        if not means:
            return None, None, missing
        return statistics.fmean(means), statistics.pstdev(means) if len(means) > 1 else None, missing

    def grouped(
        self, row: Row, model: str, shots: int | None, group: Callable[[Unit], Any]
    ) -> dict[Any, float]:
        """Mean accuracy in percent of a line's units, for each value of `group`."""
        found: dict[Any, list[float]] = defaultdict(list)
        for p in self.planned:
            if p.row.key == row.key and p.model == model and p.unit.shots == shots:
                result = self.results.get(p.unit.spec())
                if result is not None:
                    found[group(p.unit)].append(100 * result["accuracy"])
        return {value: statistics.fmean(accuracies) for value, accuracies in found.items()}

    def comparable(self, model: str, datasets: Sequence[str] | None = None) -> bool:
        """Whether figures on these datasets (None: all of the experiment's) could equal the paper's."""
        title = paper_model(model)
        if title is None or title not in self.experiment.models:
            return False
        if self.choices.templates:
            return False
        if datasets is None:
            wanted = {*self.experiment.datasets, *self.experiment.targets}
            return set(self.choices.datasets) == wanted
        return all(name in DATASETS for name in datasets)

    @property
    def paper(self) -> Published | None:
        """The published table."""
        return published(self.experiment.published) if self.experiment.published else None

    def figure(self, row: Row, model: str, column: str, dataset: str | None = None) -> float | None:
        """The paper's figure for a line and column; `dataset` as the paper writes it."""
        if self.paper is None or row.paper is None:
            return None
        title = paper_model(model) or self.experiment.models[0]
        norm = "BatchNorm" if title.startswith("RN") else "LayerNorm"
        name = row.paper.format(model=title, norm=norm) if "{model}" in row.paper else row.paper
        return self.paper.value(name, self.experiment.columns.get(column, column), dataset)


def paper_model(model: str) -> str | None:
    """The paper's name for an encoder, if it is one of the paper's."""
    if model in MODELS:
        return model
    return _SAME.get(model) or next((title for title, name in MODELS.items() if name == model), None)


def title_of(dataset: str) -> str:
    """A dataset as the paper writes it."""
    return DATASETS[dataset].title if dataset in DATASETS else dataset
