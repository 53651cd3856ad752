"""From an experiment and what the user chose to units of work, line by line of its table."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prolip import methods
from prolip.bench.backbones import MODELS
from prolip.bench.experiment import Experiment, Row
from prolip.bench.units import Unit
from prolip.core.errors import InputError, ProlipError, UsageError, unknown_name
from prolip.data import DATASETS, find_dataset


@dataclass(frozen=True)
class Choices:
    """What a run is made with; empty or None leaves the experiment's own.

    Attributes
    ----------
    datasets
        Names; for a transfer the first is the source, the others are targets.
    models
        The paper's backbones, or encoders by name.
    rows
        Keys, labels or methods of lines.
    shots, seeds, views
        As in the experiment; of `shots`, None is all the data.
    """

    datasets: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    shots: tuple[int | None, ...] = ()
    seeds: tuple[int, ...] = ()
    views: int | None = None
    templates: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """For the results file."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> Choices:
        """From the results file."""
        fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in stored.items()}
        return cls(**fields)


@dataclass(frozen=True)
class Planned:
    """A unit and where its result belongs."""

    row: Row
    model: str  # the paper's name, or the encoder's
    unit: Unit


def missing_methods(experiment: Experiment) -> dict[str, str]:
    """Methods of an experiment that this installation does not have, and why."""
    lacking = {}
    for name in dict.fromkeys(row.method for row in experiment.rows):
        try:
            methods.create(name)
        except (ProlipError, ImportError) as error:
            lacking[name] = str(error)
    return lacking


def settle(experiment: Experiment, choices: Choices, root: Path) -> Choices:
    """Choices with nothing left open: datasets that are there, and an encoder for them."""
    datasets = tuple(_canonical(name, root) for name in choices.datasets)
    if not datasets:
        wanted = (*experiment.datasets, *experiment.targets)
        datasets = tuple(name for name in wanted if (root / DATASETS[name].folder).is_dir())
        if experiment.targets and experiment.datasets[0] not in datasets:
            datasets = ()
    if not datasets:
        raise InputError(
            f"none of the datasets of {experiment.name} is in {root}; `prolip datasets {root}` says what is "
            "there. Folders of your own images do as well: --datasets FOLDER ..."
        )
    models = choices.models
    if not models:
        models = experiment.models if all(name in DATASETS for name in datasets) else ("offline",)
    views = choices.views if choices.views is not None else experiment.views
    if views < 1:
        raise UsageError(f"--views must be at least 1, got {views}")
    rows = tuple(row.key for row in chosen_rows(experiment, choices.rows, views))
    if not rows:
        raise UsageError(
            f"nothing of {experiment.name} is left to run: {'; '.join(missing_methods(experiment).values())}"
        )
    return dataclasses.replace(
        choices,
        datasets=datasets,
        models=models,
        shots=choices.shots or experiment.shots,
        seeds=choices.seeds or experiment.seeds,
        views=views,
        rows=rows,
    )


def chosen_rows(experiment: Experiment, wanted: Sequence[str], views: int) -> list[Row]:
    """Lines by key, label or method; all of them where none is named."""
    names = {name for row in experiment.rows for name in (row.key, row.label, row.method)}
    for name in wanted:
        if name not in names:
            raise unknown_name(f"line of {experiment.name}", name, names)
    by_key = {row.key for row in experiment.rows}
    lacking = missing_methods(experiment)
    return [
        row
        for row in experiment.rows
        if (row.views is None or row.views <= views)
        and row.method not in lacking
        and (
            not wanted
            or row.key in wanted
            or row.label in wanted
            or (row.method in wanted and row.method not in by_key)
        )
    ]


def expand(experiment: Experiment, choices: Choices) -> Iterator[Planned]:
    """Every unit of a run, from settled choices."""
    views = choices.views or experiment.views
    transfer = bool(experiment.targets)
    sources = choices.datasets[:1] if transfer else choices.datasets
    targets = choices.datasets[1:] if transfer else ()
    for model in choices.models:
        encoder = MODELS.get(model, model)
        for row in chosen_rows(experiment, choices.rows, views):
            protocol = row.protocol or experiment.protocol
            if not row.trained and protocol == "few_shot_validation":
                protocol = "few_shot"
            for dataset in sources:
                for options in row.over:
                    for shots, seed in _draws(row, choices):
                        unit = Unit(
                            protocol,
                            dataset,
                            encoder,
                            row.method,
                            {**row.options, **options},
                            row.grid,
                            shots,
                            seed,
                            (row.views or views) if row.trained else 1,
                            row.template or experiment.template,
                            row.scale,
                            targets,
                        )
                        yield Planned(row, model, unit)


def _draws(row: Row, choices: Choices) -> list[tuple[int | None, int]]:
    """Shots and seeds; without training one draw stands for all."""
    if not row.trained:
        return [(1, choices.seeds[0])]
    return [(shots, seed) for shots in choices.shots for seed in choices.seeds]


def _canonical(name: str, root: Path) -> str:
    """A dataset's own name; a folder of images keeps its name."""
    if (root / name).is_dir() and name not in {dataset.folder for dataset in DATASETS.values()}:
        return name
    return find_dataset(name).name
