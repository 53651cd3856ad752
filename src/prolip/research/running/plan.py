"""From an experiment and what the user chose to units of work, once: the store keeps them from then on."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prolip import methods
from prolip.core.errors import InputError, ProlipError, UnknownNameError, UsageError
from prolip.research.catalogue.backbones import MODELS
from prolip.research.catalogue.experiment import Experiment, Line, tuples
from prolip.research.datasets import DATASETS, find_dataset
from prolip.research.protocols.protocols import Setting, Trial
from prolip.research.running.unit import Unit


class NoDatasetsError(InputError):
    """None of an experiment's datasets is there."""


@dataclass(frozen=True)
class Choices:
    """What a run is made with; empty or None leaves the experiment's own."""

    datasets: tuple[str, ...] = ()  # names; for a transfer the first is the source, the others are targets
    models: tuple[str, ...] = ()  # the paper's backbones, or encoders by name
    lines: tuple[str, ...] = ()  # keys, labels or methods of lines; a method that has no line gets one
    shots: tuple[int | None, ...] = ()  # None is all the data
    seeds: tuple[int, ...] = ()
    views: int | None = None
    templates: tuple[str, ...] = ()  # in place of each dataset's own


@dataclass(frozen=True)
class PlannedUnit:
    """A unit, the key of its line, and its model by the paper's name."""

    line: str
    model: str
    unit: Unit


@dataclass(frozen=True)
class Plan:
    """A run of an experiment: all that is needed to run it, and to show it later."""

    experiment: Experiment  # as it stands, with the lines that are run
    choices: Choices  # with nothing left open
    # Methods that this installation does not have, and why.
    left_out: dict[str, str] = field(default_factory=dict)
    units: tuple[PlannedUnit, ...] = ()  # in the order of the lines

    def as_json(self) -> dict[str, Any]:
        """For the store, which keeps the units apart."""
        return dataclasses.asdict(dataclasses.replace(self, units=()))

    @classmethod
    def from_json(cls, stored: dict[str, Any], units: Sequence[PlannedUnit]) -> Plan:
        """The plan that `as_json` wrote, with its units."""
        experiment = Experiment.from_json(stored["experiment"])
        return cls(experiment, Choices(**tuples(stored["choices"])), stored["left_out"], tuple(units))


def missing_methods(experiment: Experiment) -> dict[str, str]:
    """Methods of an experiment that this installation does not have, and why."""
    lacking = {}
    for name in dict.fromkeys(line.setting.method for line in experiment.lines):
        try:
            methods.create(name)
        except (ProlipError, ImportError) as error:
            lacking[name] = str(error)
    return lacking


def make_plan(experiment: Experiment, choices: Choices, root: Path) -> Plan:
    """The plan of a run on the datasets in `root`."""
    if not experiment.lines:
        raise UsageError(f"there is nothing to run: {experiment.name} are counted for the table")
    return expand(experiment, settle(experiment, choices, root))


def settle(experiment: Experiment, choices: Choices, root: Path) -> Choices:
    """Choices with datasets that are there, and an encoder for them."""
    datasets = tuple(_canonical(name, root) for name in choices.datasets)
    if not datasets:
        wanted = (*experiment.datasets, *experiment.targets)
        datasets = tuple(name for name in wanted if (root / DATASETS[name].folder).is_dir())
        if experiment.targets and experiment.datasets[0] not in datasets:
            datasets = ()
    if not datasets:
        raise NoDatasetsError(f"none of the datasets of {experiment.name} is in {root}")
    paper = all(name in DATASETS for name in datasets)
    return dataclasses.replace(
        choices,
        datasets=datasets,
        models=choices.models or (experiment.models if paper else ("offline",)),
        shots=choices.shots or experiment.shots,
        seeds=choices.seeds or experiment.seeds,
        views=experiment.views if choices.views is None else choices.views,
    )


def expand(experiment: Experiment, choices: Choices) -> Plan:
    """Every unit of a run, from settled choices."""
    views = choices.views or 0
    if views < 1:
        raise UsageError(f"views must be at least 1, got {views}")
    left_out = missing_methods(experiment)
    lines = [
        line
        for line in _wanted(experiment, choices.lines)
        if (line.views or 1) <= views and line.setting.method not in left_out
    ]
    if not lines:
        why = "; ".join(left_out.values()) or f"its lines have more than {views} views"
        raise UsageError(f"nothing of {experiment.name} is left to run: {why}")
    chosen = dataclasses.replace(experiment, lines=tuple(lines))
    units = tuple(
        PlannedUnit(line.key, model, unit)
        for model in choices.models
        for line in lines
        for unit in _units(chosen, line, MODELS.get(model, model), choices)
    )
    return Plan(chosen, choices, left_out, units)


def _wanted(experiment: Experiment, names: Sequence[str]) -> list[Line]:
    """Lines by key, label or method; for other methods, lines of their own with the default options."""
    if not names:
        return list(experiment.lines)
    keys = {line.key for line in experiment.lines}
    known = {name for line in experiment.lines for name in (line.key, line.label, line.setting.method)}
    found = [
        line
        for line in experiment.lines
        if line.key in names
        or line.label in names
        or (line.setting.method in names and line.setting.method not in keys)
    ]
    for name in names:
        if name not in known:
            try:
                methods.get(name)
            except UsageError as error:
                raise UnknownNameError(
                    f"line or method of {experiment.name}", name, known | {*methods.names()}
                ) from error
            found.append(Line(name, name, Setting(name)))
    return found


def _units(experiment: Experiment, line: Line, encoder: str, choices: Choices) -> Iterator[Unit]:
    """The units of a line on one model; without training one draw stands for all."""
    protocol = line.protocol or experiment.protocol
    if not line.trained and protocol == "few_shot_validation":
        protocol = "few_shot"
    first = 1 if experiment.targets else len(choices.datasets)  # of a transfer, the others are targets
    sources, targets = choices.datasets[:first], choices.datasets[first:]
    draws = [(shots, seed) for shots in choices.shots for seed in choices.seeds]
    views = (line.views or choices.views or 1) if line.trained else 1
    template = line.template or experiment.template
    for dataset in sources:
        for options in line.over:
            mine = {**line.setting.options, **options, **line.by_dataset.get(dataset, {})}
            setting = dataclasses.replace(line.setting, options=mine, views=views, template=template)
            for shots, seed in draws if line.trained else [(1, choices.seeds[0])]:
                yield Unit(protocol, dataset, encoder, Trial(setting, shots, seed), targets)


def _canonical(name: str, root: Path) -> str:
    """A dataset's own name; a folder of images keeps its name."""
    if (root / name).is_dir() and name not in {dataset.folder for dataset in DATASETS.values()}:
        return name
    return find_dataset(name).name
