"""The results of a run as one long data frame, and the published figures that they compare with.

Nothing is planned here: the stored plan assigns runs to entries.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from prolip.core.errors import UnknownNameError, UsageError
from prolip.research.catalogue.experiment import Entry, Experiment
from prolip.research.catalogue.published import paper_model, published, published_name
from prolip.research.datasets import DATASETS
from prolip.research.running.plan import Plan
from prolip.research.running.result_store import ResultStore, RunResult

# What protocols measure, in results and in the frame.
_OF_RUN = ("entry", "method", "model", "seed", "views", "template", "protocol")
STAGES = ("accuracy_before", "accuracy_after", "purity_before", "purity_after")
MEASURES = ("base", "new", "harmonic", "calibration_error", "validation_accuracy", "seconds", *STAGES)


class PublishedFigure(NamedTuple):
    """A published figure, if there is one; why it does not compare with what was run; its deviation."""

    value: float = math.nan
    why: tuple[str, ...] = ()
    std: float = math.nan


@dataclass(frozen=True)
class Results:
    """The plan of a run and the results of its runs; `against` is the entry that gains are relative to."""

    plan: Plan
    runs: list[RunResult]
    against: Entry | None = None

    @classmethod
    def read(cls, experiment: str, path: Path, against: str | None = None) -> Results:
        """Read the last run of an experiment; `against` is an entry's key or label."""
        stored = None
        if path.is_file():
            with ResultStore(path, reading=True) as store:
                stored = store.last_plan(experiment)
        if stored is None:
            raise UsageError(f"{path} has no run of {experiment}: `prolip bench run {experiment}` makes one")
        return cls(*stored, None if against is None else _find_entry(stored[0].experiment, against))

    @property
    def experiment(self) -> Experiment:
        """The experiment, as it was when the run began."""
        return self.plan.experiment

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The entries that were run, in order."""
        return self.experiment.entries

    def per_dataset(self) -> Results:
        """Return the same with a table that has lines for each dataset, in place of their means."""
        if self.experiment.layout not in ("shots", "datasets"):
            raise UsageError(f"the table of {self.experiment.name} shows datasets already")
        experiment = replace(self.experiment, layout="datasets")
        return replace(self, plan=replace(self.plan, experiment=experiment))

    @property
    def done(self) -> int:
        """The number of runs that have a result."""
        return sum(one.result is not None for one in self.runs)

    @cached_property
    def frame(self) -> pd.DataFrame:
        """A row for each run and each dataset that it tested; measures are fractions, NaN where not done."""
        labels = {entry.key: entry.label for entry in self.entries}
        rows = []
        for one in self.runs:
            run, result = one.run, one.result or {}
            tested = result.get("targets") or dict.fromkeys(run.datasets, result.get("accuracy"))
            row = {name: getattr(run, name) for name in _OF_RUN}
            row |= {"experiment": self.experiment.name, "label": labels[run.entry], "dataset": run.dataset}
            row |= {"shots": shots_name(run.shots), "options": str(run.options), "trained_on": run.dataset}
            row |= {name: result.get(name) for name in MEASURES} | {"accuracy": None, "score": None}
            row |= {"done": one.result is not None}
            chosen = (result.get("chosen") or {}).items()
            row |= {f"chosen_{k}": v for k, v in chosen if isinstance(v, (int, float, str))}
            for dataset, accuracy in tested.items():
                score = result.get("harmonic", accuracy)
                rows.append({**row, "dataset": dataset, "accuracy": accuracy, "score": score})
        frame = pd.DataFrame(rows)
        return frame.astype(dict.fromkeys((*MEASURES, "accuracy", "score"), float)) if rows else frame

    @cached_property
    def draws(self) -> pd.DataFrame:
        """The frame with an entry that is not trained repeated for every number of shots and seed."""
        trained = self.frame["entry"].map({entry.key: entry.trained for entry in self.entries})
        frame = self.frame.assign(trained=trained.astype(bool))
        fixed = frame[~frame["trained"]].drop(columns=["shots", "seed"])
        every = pd.MultiIndex.from_product(
            [[shots_name(shots) for shots in self.plan.shots], self.plan.seeds], names=["shots", "seed"]
        ).to_frame(index=False)
        return pd.concat([frame[frame["trained"]], fixed.merge(every, how="cross")], ignore_index=True)

    def save(self, path: Path) -> int:
        """Write the rows of the runs that are done to a .csv file, and return their number."""
        from prolip.io.writing import write_atomic

        rows = self.frame[self.frame["done"]].drop(columns="done")
        write_atomic(path, lambda draft: rows.to_csv(draft, index=False))
        return len(rows)

    def published_figure(
        self,
        entry: Entry,
        model: str,
        columns: Sequence[str],
        dataset: str | None = None,
        tested: Sequence[str] | None = None,
        shots: str | None = None,
    ) -> PublishedFigure:
        """Return the published figure of an entry and the first of these columns that the paper has.

        `dataset` is the one that the figure's row is about, None for a mean over datasets; `tested` are the
        datasets that the figure is about, None for all of the experiment's. `shots` are those of the run
        where the columns are not.
        """
        experiment, title = self.experiment, paper_model(model) or self.experiment.models[0]
        row, name = published_name(entry, title), experiment.published
        if dataset is not None and experiment.published_per_dataset:
            name = experiment.published_per_dataset
        theirs = {*experiment.datasets, *experiment.targets}
        if name is None or row is None or not theirs & {*self.plan.datasets}:
            return PublishedFigure()  # nothing of it is about this data
        table = published(name)
        about = title_of(dataset) if dataset else None
        for column in columns:
            place = row, experiment.columns.get(column, column), about
            if (value := table.value(*place)) is not None:
                std = table.value(*place, std=True)
                break
        else:
            return PublishedFigure()
        provenance = table.provenance[row]
        why = [*self._other_run(model, tested), *provenance.differences(entry, experiment)]
        source = self.plan.datasets[0]
        if entry.trained:
            if experiment.targets and source != experiment.datasets[0]:
                why.append(f"trained on {title_of(source)} instead of {title_of(experiment.datasets[0])}")
            if self.plan.views < experiment.views:
                why.append(f"{self.plan.views} instead of {experiment.views} views")
            if len(self.plan.seeds) < (provenance.seeds or 0):
                why.append(f"{len(self.plan.seeds)} of {provenance.seeds} seeds")
            if table.shots and shots is not None and shots != str(table.shots):
                why.append(f"{shots} instead of {table.shots} shots")
            if columns[0] == "average" and self.plan.shots != experiment.shots:
                why.append("a mean over other shots")
        return PublishedFigure(value, tuple(why), math.nan if std is None else std)

    def _other_run(self, model: str, tested: Sequence[str] | None) -> list[str]:
        """Return how the run differs from the paper's, whatever the entry."""
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
        return ", ".join([model] * several + [title_of(dataset)] * bool(dataset))

    def title(self) -> str:
        """Return what was run in a few words, true of the data that was used."""
        plan, experiment = self.plan, self.experiment
        theirs = (*experiment.datasets, *experiment.targets)
        if {*plan.datasets} <= {*theirs} and (not experiment.targets or plan.datasets[0] == theirs[0]):
            return f"{experiment.title} ({experiment.reference})"
        if experiment.targets:
            return f"{experiment.name}, trained on {title_of(plan.datasets[0])}"
        return f"{experiment.name}, on {self.datasets()}"

    def datasets(self) -> str:
        """Return the datasets by their titles, or how many there are."""
        names = self.plan.datasets
        if len(names) > 4:
            return f"{len(names)} datasets"
        return ", ".join(map(title_of, names))


def _find_entry(experiment: Experiment, name: str) -> Entry:
    for entry in experiment.entries:
        if name in (entry.key, entry.label):
            return entry
    known = [entry.key for entry in experiment.entries]
    raise UnknownNameError(f"line of the last run of {experiment.name}", name, known)


def title_of(dataset: str) -> str:
    """Return a dataset's name as the paper writes it."""
    return DATASETS[dataset].title if dataset in DATASETS else dataset


def shots_name(shots: int | None) -> str:
    """Return the heading of a column of shots."""
    return "full" if shots is None else str(shots)
