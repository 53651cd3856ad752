"""The results of a run, averaged as in the paper, and the published figures that they compare with.

Nothing is planned here: the stored plan assigns runs to lines.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from prolip.core.errors import UnknownNameError, UsageError
from prolip.research.catalogue.experiment import Experiment, Line
from prolip.research.catalogue.published import BACKBONES, Published, published, published_name
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


def measure(*names: str) -> Measure:
    """Return a measure: figures of a run by their names."""
    return lambda result: tuple(result.get(name) for name in names)


ACCURACY = measure("accuracy")


def scores(run_result: RunResult) -> dict[str, float]:
    """Return the score of a run on each dataset that it tested: accuracy; of base-to-new, harmonic mean."""
    result = run_result.result or {}
    if "targets" in result:
        return dict(result["targets"])
    score = result.get("harmonic", result.get("accuracy"))
    return {} if score is None else {run_result.run.dataset: score}


class PublishedFigure(NamedTuple):
    """A published figure, if there is one; why it does not compare with what was run; its deviation."""

    value: float | None = None
    why: tuple[str, ...] = ()
    std: float | None = None


@dataclass(frozen=True)
class Query:
    """A figure of a line: which of its runs, what to take from each, and how to average over datasets."""

    model: str
    datasets: Collection[str]
    shots: Collection[int | None] = ()
    measure: Measure = ACCURACY
    statistic: Statistic = mean_first


@dataclass(frozen=True)
class Estimate:
    """A figure in percent: its mean, its deviation over seeds, and the number of missing runs."""

    mean: float | None
    std: float | None = None
    missing: int = 0
    count: int = 0  # of the seeds or datasets that it is a mean over

    @classmethod
    def over(cls, values: Sequence[float], missing: int = 0, mean: float | None = None) -> Estimate:
        """Create an estimate from one value per seed; `mean` where it is not theirs."""
        if not values:
            return cls(None, missing=missing)
        std = statistics.pstdev(values) if len(values) > 1 else None
        return cls(statistics.fmean(values) if mean is None else mean, std, missing, len(values))

    @property
    def interval(self) -> float | None:
        """Half the width of the mean's 95 % interval, by Student's t."""
        if self.std is None or self.count < 2:
            return None
        from scipy.special import stdtrit

        return float(stdtrit(self.count - 1, 0.975)) * self.std / math.sqrt(self.count - 1)


@dataclass(frozen=True)
class Results:
    """The plan of a run and the results of its runs; `against` is the line that gains are relative to."""

    plan: Plan
    runs: list[RunResult]
    against: Line | None = None

    @classmethod
    def read(cls, experiment: str, path: Path, against: str | None = None) -> Results:
        """Read the last run of an experiment; `against` is a line's key or label."""
        if not path.is_file():
            raise NotRunError(f"{path} does not exist yet")
        with ResultStore(path, reading=True) as store:
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
        found = self._runs_by_line.get((line.key, model), [])
        return [one for one in found if shots is None or not line.trained or one.run.shots in shots]

    @cached_property
    def _runs_by_line(self) -> dict[tuple[str, str], list[RunResult]]:
        found: dict[tuple[str, str], list[RunResult]] = defaultdict(list)
        for one in self.runs:
            found[one.run.line, one.run.model].append(one)
        return found

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

    def dataset_scores(self, line: Line, model: str) -> dict[str, float]:
        """Return the mean score of a line on each dataset in percent; nothing if runs are missing."""
        found: dict[str, list[float]] = defaultdict(list)
        for one in self.of(line, model):
            if one.result is None:
                return {}
            for dataset, score in scores(one).items():
                found[dataset].append(100 * score)
        return {dataset: statistics.fmean(values) for dataset, values in found.items()}

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield a row for each run that is done and each dataset that it tested."""
        labels = {line.key: line.label for line in self.lines}
        for one, result in self.done:
            run = one.run
            for dataset, score in scores(one).items():
                yield {
                    "experiment": self.experiment.name,
                    "line": run.line,
                    "label": labels[run.line],
                    "method": run.method,
                    "options": str(run.options),
                    "model": run.model,
                    "trained_on": run.dataset,
                    "dataset": dataset,
                    "shots": run.shots,
                    "seed": run.seed,
                    "views": run.views,
                    "template": run.template,
                    "protocol": run.protocol,
                    "score": score,
                    **{name: result.get(name) for name in ("calibration_error", "base", "new", "seconds")},
                }

    @property
    def paper(self) -> Published | None:
        """The published table."""
        return published(self.experiment.published) if self.experiment.published else None

    def figure(
        self,
        line: Line,
        model: str,
        column: str,
        dataset: str | None = None,
        tested: Sequence[str] | None = None,
        shots: Collection[int | None] = (),
    ) -> PublishedFigure:
        """Return the published figure of a line and column.

        `dataset` is the one that the figure's row is about, None for a mean over datasets; `tested` are the
        datasets that the figure is about, None for all of the experiment's. `shots` are those of the run
        where the columns are not.
        """
        experiment, title = self.experiment, paper_model(model) or self.experiment.models[0]
        name, table = published_name(line, title), self.paper
        if dataset is not None and experiment.published_per_dataset:
            table = published(experiment.published_per_dataset)
        if table is None or name is None:
            return PublishedFigure()
        place = name, experiment.columns.get(column, column), dataset and title_of(dataset)
        value = table.value(*place)
        if value is None:
            return PublishedFigure()
        provenance = table.provenance[name]
        why = [*self._other_run(model, tested), *provenance.differences(line, experiment)]
        source = self.plan.datasets[0]
        if line.trained and experiment.targets and source != experiment.datasets[0]:
            why.append(f"trained on {title_of(source)} instead of {title_of(experiment.datasets[0])}")
        if line.trained and self.plan.views < experiment.views:
            why.append(f"{self.plan.views} instead of {experiment.views} views")
        if line.trained and len(self.plan.seeds) < (provenance.seeds or 0):
            why.append(f"{len(self.plan.seeds)} of {provenance.seeds} seeds")
        if line.trained and table.shots and any(count != table.shots for count in shots):
            why.append(f"{', '.join(map(shots_name, shots))} instead of {table.shots} shots")
        return PublishedFigure(value, tuple(why), table.std(*place))

    def _other_run(self, model: str, tested: Sequence[str] | None) -> list[str]:
        """Return how the run differs from the paper's, whatever the line."""
        plan, experiment = self.plan, self.experiment
        why = []
        if paper_model(model) not in experiment.models:
            why.append(f"encoder {model} instead of {', '.join(experiment.models)}")
        if plan.templates:
            why.append("other templates")
        theirs = {*experiment.datasets, *experiment.targets}
        if tested is None and {*plan.datasets} != theirs:
            why.append(f"{len(theirs & {*plan.datasets})} of the paper's {len(theirs)} datasets")
        used = plan.datasets if tested is None else tested
        return why + [
            f"{title_of(name)} is incomplete ({plan.incomplete[name]})"
            for name in dict.fromkeys((*plan.datasets[: bool(experiment.targets)], *used))
            if name in plan.incomplete
        ]

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
