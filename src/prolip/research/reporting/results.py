"""The results of a run as the store has them, averaged as the paper averages, and the paper's own figures.

Nothing is planned here: which units belong to which line is read from the plan that was run.
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
from prolip.research.catalogue.backbones import MODELS
from prolip.research.catalogue.experiment import Experiment, Line
from prolip.research.catalogue.published import Published, published
from prolip.research.datasets import DATASETS
from prolip.research.running.plan import Choices, Plan
from prolip.research.running.result_store import ResultStore, UnitResult

# Other names of the same weights.
_SAME = {"open_clip:RN50-quickgelu/openai": "RN50", "open_clip:RN101-quickgelu/openai": "RN101"}

DrawKey = tuple[str, int | None, int | None]  # dataset, shots, seed
Measure = Callable[[dict[str, Any]], "tuple[float | None, ...]"]  # of one run
Statistic = Callable[[Sequence[Sequence[float]]], float]  # over datasets


class NotRunError(UsageError):
    """An experiment has no results yet."""


def mean_first(values: Sequence[Sequence[float]]) -> float:
    """The mean over datasets of what was measured."""
    return statistics.fmean(value[0] for value in values)


def accuracy(result: dict[str, Any]) -> tuple[float | None, ...]:
    """What most tables show of a run."""
    return (result.get("accuracy"),)


@dataclass(frozen=True)
class Question:
    """What is asked of a line: its runs on a model, datasets and shots, what of each, and how it is summed
    up over datasets (and over shots, where there are several).
    """

    model: str
    datasets: Collection[str]
    shots: Collection[int | None] = ()
    measure: Measure = accuracy
    statistic: Statistic = mean_first


@dataclass(frozen=True)
class Estimate:
    """A figure in percent: its mean, its deviation over seeds, and how many runs it lacks."""

    mean: float | None
    std: float | None = None
    missing: int = 0
    seeds: int = 0

    @classmethod
    def over(cls, values: Sequence[float], missing: int, mean: float | None = None) -> Estimate:
        """From one value for each seed; `mean` where it is not theirs."""
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
    """The results of a plan, and how to look them up; `against` is a line that others are compared with."""

    plan: Plan
    units: Sequence[UnitResult]
    against: Line | None = None

    @classmethod
    def read(cls, experiment: str, path: Path, against: str | None = None) -> Results:
        """Of the last run of an experiment; `against` is a line's key or label."""
        if not path.is_file():
            raise NotRunError(f"there are no results in {path} yet")
        with ResultStore(path) as store:
            found = store.last_plan(experiment)
        if found is None:
            raise NotRunError(f"{experiment} has not been run, as far as {path} knows")
        return cls(*found, None if against is None else _line(found[0].experiment, against))

    @property
    def experiment(self) -> Experiment:
        """As it stood when the run began."""
        return self.plan.experiment

    @property
    def choices(self) -> Choices:
        """The datasets, shots, seeds and methods that the run was narrowed to."""
        return self.plan.choices

    @property
    def lines(self) -> tuple[Line, ...]:
        """Those that were run, in order."""
        return self.experiment.lines

    @property
    def done(self) -> list[tuple[UnitResult, dict[str, Any]]]:
        """Units that have a result, and the result."""
        return [(unit, unit.result) for unit in self.units if unit.result is not None]

    def of(self, line: Line, model: str, shots: Collection[int | None] | None = None) -> list[UnitResult]:
        """The units of a line; where it is trained, with these numbers of shots (None: all)."""
        return [
            unit
            for unit in self.units
            if (unit.planned.line, unit.planned.model) == (line.key, model)
            and (shots is None or not line.trained or unit.planned.unit.trial.shots in shots)
        ]

    def draws(self, line: Line, asked: Question) -> tuple[dict[DrawKey, list[float]], int]:
        """What each draw gave, in percent, as a mean over the line's settings; and how many runs lack.

        A line that is not trained has one draw for a dataset, without shots and seed.
        """
        found: dict[DrawKey, list[list[float]]] = defaultdict(list)
        missing = 0
        for run in self.of(line, asked.model, asked.shots):
            unit = run.planned.unit
            if unit.dataset not in asked.datasets:
                continue
            values = (None,) if run.result is None else asked.measure(run.result)
            if None in values:
                missing += 1
                continue
            shots, seed = (unit.trial.shots, unit.trial.seed) if line.trained else (None, None)
            found[unit.dataset, shots, seed].append([100 * value for value in values if value is not None])
        return {draw: _mean(values) for draw, values in found.items()}, missing

    def estimate(self, line: Line, asked: Question) -> Estimate:
        """Over seeds, then over datasets; and its deviation over seeds."""
        draws, missing = self.draws(line, asked)
        if not draws:
            return Estimate(None, missing=missing)
        settings: dict[Any, list[list[float]]] = defaultdict(list)
        seeds: dict[Any, list[list[float]]] = defaultdict(list)
        for (dataset, shots, seed), values in draws.items():
            settings[dataset, shots].append(values)
            seeds[seed].append(values)
        mean = asked.statistic([_mean(values) for values in settings.values()])
        return Estimate.over([asked.statistic(values) for values in seeds.values()], missing, mean)

    def gain(self, line: Line, other: Line, asked: Question) -> Estimate:
        """The difference between two lines on the same datasets, shots and seeds, over seeds."""
        (ours, lacking), (theirs, more) = self.draws(line, asked), self.draws(other, asked)
        if line.trained != other.trained:  # the one that is not trained is the same for every draw
            fixed, drawn = (ours, theirs) if other.trained else (theirs, ours)
            spread = {draw: fixed[draw[0], None, None] for draw in drawn if (draw[0], None, None) in fixed}
            ours, theirs = (spread, drawn) if other.trained else (drawn, spread)
        pairs: dict[Any, list[tuple[list[float], list[float]]]] = defaultdict(list)
        for draw in ours.keys() & theirs.keys():
            pairs[draw[2]].append((ours[draw], theirs[draw]))
        gains = [
            asked.statistic([pair[0] for pair in mine]) - asked.statistic([pair[1] for pair in mine])
            for mine in pairs.values()
        ]
        return Estimate.over(gains, lacking + more)

    def comparable(self, model: str, datasets: Sequence[str] | None = None) -> bool:
        """Whether figures on these datasets (None: all of the experiment's) could equal the paper's."""
        title = paper_model(model)
        if title is None or title not in self.experiment.models or self.choices.templates:
            return False
        if datasets is None:
            return set(self.choices.datasets) == {*self.experiment.datasets, *self.experiment.targets}
        return all(name in DATASETS for name in datasets)

    @property
    def paper(self) -> Published | None:
        """The published table."""
        return published(self.experiment.published) if self.experiment.published else None

    def figure(self, line: Line, model: str, column: str, dataset: str | None = None) -> float | None:
        """The paper's figure for a line and column; `dataset` as the paper writes it."""
        if self.paper is None or line.paper is None:
            return None
        title = paper_model(model) or self.experiment.models[0]
        norm = "BatchNorm" if title.startswith("RN") else "LayerNorm"
        name = line.paper.format(model=title, norm=norm) if "{model}" in line.paper else line.paper
        return self.paper.value(name, self.experiment.columns.get(column, column), dataset)


def _line(experiment: Experiment, name: str) -> Line:
    for line in experiment.lines:
        if name in (line.key, line.label):
            return line
    raise UnknownNameError(
        f"line of the last run of {experiment.name}", name, [x.key for x in experiment.lines]
    )


def _mean(values: Iterable[Sequence[float]]) -> list[float]:
    """Of several measurements, figure by figure."""
    return [statistics.fmean(figures) for figures in zip(*values, strict=True)]


def paper_model(model: str) -> str | None:
    """The paper's name for an encoder, if it is one of the paper's."""
    if model in MODELS:
        return model
    return _SAME.get(model) or next((title for title, name in MODELS.items() if name == model), None)


def title_of(dataset: str) -> str:
    """A dataset as the paper writes it."""
    return DATASETS[dataset].title if dataset in DATASETS else dataset
