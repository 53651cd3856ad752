"""The results of a run, averaged as in the paper, and the paper's own figures.

Nothing is planned here: the stored plan assigns runs to lines.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prolip.core.errors import UnknownNameError, UsageError
from prolip.research.catalogue.experiment import Experiment, Line
from prolip.research.catalogue.published import BACKBONES, Published, published
from prolip.research.datasets import DATASETS
from prolip.research.running.plan import Plan
from prolip.research.running.result_store import ResultStore, RunResult

# Other names of the same weights.
_SAME = {"open_clip:RN50-quickgelu/openai": "RN50", "open_clip:RN101-quickgelu/openai": "RN101"}

DrawKey = tuple[str, int | None, int | None]  # dataset, shots, seed
Measure = Callable[[dict[str, Any]], "tuple[float | None, ...]"]  # of the result of one run
Statistic = Callable[[Sequence[Sequence[float]]], float]  # over datasets


class NotRunError(UsageError):
    """An experiment has no results yet."""


def mean_first(values: Sequence[Sequence[float]]) -> float:
    """Compute the mean of the first figure over datasets."""
    return statistics.fmean(value[0] for value in values)


def accuracy(result: dict[str, Any]) -> tuple[float | None, ...]:
    """Return the accuracy of a run."""
    return (result.get("accuracy"),)


@dataclass(frozen=True)
class Query:
    """A figure of a line: which of its runs, what to take from each, and how to average over datasets."""

    model: str
    datasets: Collection[str]
    shots: Collection[int | None] = ()
    measure: Measure = accuracy
    statistic: Statistic = mean_first


@dataclass(frozen=True)
class Estimate:
    """A figure in percent: its mean, its deviation over seeds, and the number of missing runs."""

    mean: float | None
    std: float | None = None
    missing: int = 0
    seeds: int = 0

    @classmethod
    def over(cls, values: Sequence[float], missing: int, mean: float | None = None) -> Estimate:
        """Create an estimate from one value per seed; `mean` where it is not theirs."""
        if not values:
            return cls(None, missing=missing)
        std = statistics.pstdev(values) if len(values) > 1 else None
        return cls(statistics.fmean(values) if mean is None else mean, std, missing, len(values))

    @property
    def interval(self) -> float | None:
        """Half the width of the mean's 95 % interval, by Student's t over seeds."""
        if self.std is None or self.seeds < 2:
            return None
        from scipy.special import stdtrit

        return float(stdtrit(self.seeds - 1, 0.975)) * self.std / math.sqrt(self.seeds - 1)


@dataclass(frozen=True, eq=False)
class Results:
    """The results of a plan; `against` is a line that others are compared with."""

    plan: Plan
    runs: Sequence[RunResult]
    against: Line | None = None

    @classmethod
    def read(cls, experiment: str, path: Path, against: str | None = None) -> Results:
        """Read the last run of an experiment; `against` is a line's key or label."""
        if not path.is_file():
            raise NotRunError(f"{path} does not exist yet")
        with ResultStore(path) as store:
            found = store.last_plan(experiment)
        if found is None:
            raise NotRunError(f"{path} has no run of {experiment}")
        return cls(*found, None if against is None else _line(found[0].experiment, against))

    @property
    def experiment(self) -> Experiment:
        """The experiment, as it was when the run began."""
        return self.plan.experiment

    @property
    def lines(self) -> tuple[Line, ...]:
        """The lines that were run, in order."""
        return self.experiment.lines

    @property
    def done(self) -> list[tuple[RunResult, dict[str, Any]]]:
        """Runs that have a result, and the result."""
        return [(run, run.result) for run in self.runs if run.result is not None]

    def of(self, line: Line, model: str, shots: Collection[int | None] | None = None) -> list[RunResult]:
        """Return the runs of a line; if it is trained, with these numbers of shots (None: all)."""
        return [
            one
            for one in self.runs
            if (one.run.line, one.run.model) == (line.key, model)
            and (shots is None or not line.trained or one.run.shots in shots)
        ]

    def draws(self, line: Line, query: Query) -> tuple[dict[DrawKey, list[float]], int]:
        """Return the figures of each draw in percent, as a mean over the line's settings, and missing runs.

        A line that is not trained has one draw for a dataset, without shots and seed.
        """
        found: dict[DrawKey, list[list[float]]] = defaultdict(list)
        missing = 0
        for one in self.of(line, query.model, query.shots):
            if one.run.dataset not in query.datasets:
                continue
            values = (None,) if one.result is None else query.measure(one.result)
            if None in values:
                missing += 1
                continue
            shots, seed = (one.run.shots, one.run.seed) if line.trained else (None, None)
            found[one.run.dataset, shots, seed].append([100 * v for v in values if v is not None])
        return {draw: _mean(values) for draw, values in found.items()}, missing

    def estimate(self, line: Line, query: Query) -> Estimate:
        """Average over seeds, then over datasets, with the deviation over seeds."""
        draws, missing = self.draws(line, query)
        if not draws:
            return Estimate(None, missing=missing)
        settings: dict[Any, list[list[float]]] = defaultdict(list)
        seeds: dict[Any, list[list[float]]] = defaultdict(list)
        for (dataset, shots, seed), values in draws.items():
            settings[dataset, shots].append(values)
            seeds[seed].append(values)
        mean = query.statistic([_mean(values) for values in settings.values()])
        return Estimate.over([query.statistic(values) for values in seeds.values()], missing, mean)

    def gain(self, line: Line, other: Line, query: Query) -> Estimate:
        """Average the difference between two lines on the same datasets, shots and seeds, over seeds."""
        (ours, missing), (theirs, more) = self.draws(line, query), self.draws(other, query)
        if line.trained != other.trained:  # the one that is not trained is the same for every draw
            fixed, drawn = (ours, theirs) if other.trained else (theirs, ours)
            spread = {draw: fixed[draw[0], None, None] for draw in drawn if (draw[0], None, None) in fixed}
            ours, theirs = (spread, drawn) if other.trained else (drawn, spread)
        pairs: dict[Any, list[tuple[list[float], list[float]]]] = defaultdict(list)
        for draw in ours.keys() & theirs.keys():
            pairs[draw[2]].append((ours[draw], theirs[draw]))
        gains = [
            query.statistic([pair[0] for pair in mine]) - query.statistic([pair[1] for pair in mine])
            for mine in pairs.values()
        ]
        return Estimate.over(gains, missing + more)

    def deviation_over_settings(self, line: Line, query: Query) -> Estimate:
        """Average over the settings of a line, with the deviation over them."""
        found: dict[str, list[float]] = defaultdict(list)
        runs = self.of(line, query.model, query.shots)
        for one in runs:
            if one.result is not None:
                found[str(one.run.options)].append(100 * one.result["accuracy"])
        means = [statistics.fmean(values) for values in found.values()]
        return Estimate.over(means, sum(one.result is None for one in runs))

    def comparable(self, model: str, datasets: Sequence[str] | None = None) -> bool:
        """Return whether figures on these datasets (None: all of the experiment's) can equal the paper's."""
        title = paper_model(model)
        if title is None or title not in self.experiment.models or self.plan.templates:
            return False
        if datasets is None:
            return set(self.plan.datasets) == {*self.experiment.datasets, *self.experiment.targets}
        return all(name in DATASETS for name in datasets)

    @property
    def paper(self) -> Published | None:
        """The published table."""
        return published(self.experiment.published) if self.experiment.published else None

    def figure(self, line: Line, model: str, column: str, dataset: str | None = None) -> float | None:
        """Return the paper's figure for a line and column; `dataset` as the paper writes it."""
        if self.paper is None or line.paper is None:
            return None
        title = paper_model(model) or self.experiment.models[0]
        norm = "BatchNorm" if title.startswith("RN") else "LayerNorm"
        name = line.paper.format(model=title, norm=norm) if "{model}" in line.paper else line.paper
        return self.paper.value(name, self.experiment.columns.get(column, column), dataset)

    def group(self, model: str, dataset: str = "") -> str:
        """Return the heading of rows or panels: the dataset, and the model where there are several."""
        several = len(self.plan.models) > 1
        return ", ".join([model] * several + [dataset] * bool(dataset))


def _line(experiment: Experiment, name: str) -> Line:
    for line in experiment.lines:
        if name in (line.key, line.label):
            return line
    raise UnknownNameError(
        f"line of the last run of {experiment.name}", name, [x.key for x in experiment.lines]
    )


def _mean(values: Iterable[Sequence[float]]) -> list[float]:
    """Average several measurements, figure by figure."""
    return [statistics.fmean(figures) for figures in zip(*values, strict=True)]


def paper_model(model: str) -> str | None:
    """Return the paper's name for an encoder, if it is one of the paper's."""
    if model in BACKBONES:
        return model
    return _SAME.get(model) or next((title for title, name in BACKBONES.items() if name == model), None)


def title_of(dataset: str) -> str:
    """Return a dataset's name as the paper writes it."""
    return DATASETS[dataset].title if dataset in DATASETS else dataset


def shots_name(shots: int | None) -> str:
    """Return the heading of a column of shots."""
    return "full" if shots is None else str(shots)
