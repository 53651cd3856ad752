"""The plan of an experiment: every run of it, on the datasets and models that the user selects."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from prolip import methods
from prolip.core.errors import InputError, ProlipError, UnknownNameError, UsageError, check_name
from prolip.data.sampling import VALIDATION_RULES
from prolip.io.environment import MissingPackageError
from prolip.research.catalogue.experiment import Experiment, Line
from prolip.research.catalogue.published import BACKBONES
from prolip.research.datasets import DATASETS, find_dataset
from prolip.research.protocols.run import Run, lists_to_tuples
from prolip.research.running.result_key import runs_a_tower


class NoDatasetsError(InputError):
    """None of an experiment's datasets is on disk."""


@dataclass(frozen=True)
class Plan:
    """All that is needed to run an experiment, and to show it later."""

    experiment: Experiment  # with the lines that are run
    datasets: tuple[str, ...]  # for a transfer the first is the source, the others are targets
    models: tuple[str, ...]  # the paper's backbones, or encoders by name
    shots: tuple[int | None, ...]  # None is all the data
    seeds: tuple[int, ...]
    views: int
    templates: tuple[str, ...] = ()  # instead of each dataset's own
    unavailable: dict[str, str] = dataclasses.field(default_factory=dict)  # methods that cannot run, and why
    incomplete: dict[str, str] = dataclasses.field(default_factory=dict)  # datasets that lack images, and how
    runs: tuple[Run, ...] = ()  # in the order of the lines

    def to_json(self) -> dict[str, Any]:
        """Return the plan without its runs, which the result store has in a table."""
        return dataclasses.asdict(dataclasses.replace(self, runs=()))

    @classmethod
    def from_json(cls, stored: dict[str, Any], runs: Sequence[Run]) -> Plan:
        """Restore the plan from `to_json`, with its runs."""
        experiment = Experiment.from_json(stored["experiment"])
        return cls(**lists_to_tuples({**stored, "experiment": experiment, "runs": tuple(runs)}))


# Packages that protocols need beside those of the methods: module, package, and the extra that has it.
_PACKAGES = {
    "manifold": ("umap", "umap-learn", "bench"),
    **dict.fromkeys(("test_time_tpt", "timing_tpt"), ("torch", "torch", "torch")),
}


def missing_methods(experiment: Experiment) -> dict[str, str]:
    """Return the methods and protocols of an experiment that this installation lacks, and why."""
    missing = {}
    for name in dict.fromkeys(line.method for line in experiment.lines):
        try:
            methods.create(name)
        except (ProlipError, ImportError) as error:
            missing[name] = str(error)
    for protocol in {experiment.protocol, *(line.protocol for line in experiment.lines)} & _PACKAGES.keys():
        module, package, extra = _PACKAGES[str(protocol)]
        if importlib.util.find_spec(module) is None:
            missing[str(protocol)] = str(MissingPackageError(f"the protocol {protocol}", package, extra))
    return missing


def make_plan(
    experiment: Experiment,
    root: Path | None,
    *,
    datasets: Sequence[str] = (),
    models: Sequence[str] = (),
    lines: Sequence[str] = (),
    shots: Sequence[int | None] = (),
    seeds: Sequence[int] = (),
    views: int | None = None,
    templates: Sequence[str] = (),
    validation: str | None = None,
) -> Plan:
    """Plan an experiment on the datasets in `root`; what is not given is the experiment's own.

    `datasets` are names, or folders of images in `root`; `lines` are keys, labels or methods of lines, and a
    method that has no line gets one with its default options. Without `root` there are features only: lines
    that need images are left out.
    """
    if not experiment.lines:
        raise UsageError(f"{experiment.name} has nothing to run: prolip bench table {experiment.name}")
    if root is not None:
        datasets = tuple(_dataset_name(name, root) for name in datasets) or _available(experiment, root)
    if not datasets:
        raise NoDatasetsError(f"none of the datasets of {experiment.name} is in {root}")
    models = models or (experiment.models if all(name in DATASETS for name in datasets) else ("offline",))
    views = experiment.views if views is None else views
    if views < 1:
        raise UsageError(f"views must be at least 1, got {views}")
    if validation is not None:
        check_name("validation", validation, ("none", *VALIDATION_RULES))
        if validation != "none" and experiment.protocol != "few_shot":
            raise UsageError(
                f'{experiment.name} has no validation images: leave out validation="{validation}"'
            )
        experiment = dataclasses.replace(experiment, validation=validation)
    selected = dataclasses.replace(experiment, lines=tuple(_select(experiment, lines)))
    unavailable = missing_methods(selected)
    if root is None:
        unavailable |= {
            line.label: f"{line.label} needs images"
            for line in selected.lines
            if line.method not in unavailable
            and runs_a_tower(line.method, line.protocol or experiment.protocol)
        }
    chosen = [
        line
        for line in selected.lines
        if (line.views or 1) <= views
        and not {line.label, line.method, line.protocol or experiment.protocol} & unavailable.keys()
    ]
    if not chosen:
        why = "; ".join(unavailable.values()) or f"its lines have more than {views} views"
        raise UsageError(f"no line of {experiment.name} can be run: {why}")
    plan = Plan(
        dataclasses.replace(experiment, lines=tuple(chosen)),
        tuple(dict.fromkeys(datasets)),
        tuple(dict.fromkeys(models)),
        tuple(dict.fromkeys(shots)) or experiment.shots,
        tuple(dict.fromkeys(seeds)) or experiment.seeds,
        views,
        tuple(templates),
        unavailable,
    )
    runs = tuple(run for model in plan.models for line in chosen for run in _runs(plan, line, model))
    if any(run.shots is None and run.validation != "none" for run in runs):
        raise UsageError('"full" leaves no images to validate on: name other shots, or validation="none"')
    return dataclasses.replace(plan, runs=runs)


def _available(experiment: Experiment, root: Path) -> tuple[str, ...]:
    """Return the experiment's datasets that are on disk; none without the source of a transfer."""
    names = (*experiment.datasets, *experiment.targets)
    found = tuple(name for name in names if (root / DATASETS[name].folder).is_dir())
    return found if not experiment.targets or experiment.datasets[0] in found else ()


def _select(experiment: Experiment, names: Sequence[str]) -> list[Line]:
    """Return lines by key, label or method, and new lines for other methods."""
    if not names:
        return list(experiment.lines)
    keys = {line.key for line in experiment.lines}
    known = {name for line in experiment.lines for name in (line.key, line.label, line.method)}
    found = [
        line
        for line in experiment.lines
        if line.key in names or line.label in names or (line.method in names and line.method not in keys)
    ]
    for name in names:
        if name not in known:
            try:
                methods.get(name)
            except UsageError as error:
                what = f"line or method of {experiment.name}"
                raise UnknownNameError(what, name, known | {*methods.names()}) from error
            found.append(Line(name, name, name))
    return found


def _runs(plan: Plan, line: Line, model: str) -> Iterator[Run]:
    """Yield the runs of a line on one model; a line without training needs one draw."""
    experiment = plan.experiment
    validation = (line.validation or experiment.validation) if line.trained else "none"
    chosen = {**line.options, **(line.validated if validation != "none" else {})}
    sources = plan.datasets[:1] if experiment.targets else plan.datasets
    draws = [(shots, seed) for shots in plan.shots for seed in plan.seeds]
    for dataset in sources:
        for options in line.over:
            for shots, seed in draws if line.trained else [(1, plan.seeds[0])]:
                yield Run(
                    line.method,
                    {**chosen, **options, **line.by_dataset.get(dataset, {})},
                    shots=shots,
                    seed=seed,
                    views=(line.views or plan.views) if line.trained else 1,
                    template=line.template or experiment.template,
                    scale=line.scale,
                    grid=line.grid if validation != "none" else (),
                    protocol=line.protocol or experiment.protocol,
                    validation=validation,
                    dataset=dataset,
                    encoder=BACKBONES.get(model, model),
                    targets=plan.datasets[len(sources) :],
                    line=line.key,
                    model=model,
                )


def _dataset_name(name: str, root: Path) -> str:
    """Return the name of a dataset of the table, or of a folder of images."""
    name = name.rstrip("/\\")
    if (path := PurePath(name)).name != name:
        raise UsageError(f'{name} is a path: use data="{root / path.parent}" datasets="{path.name}"')
    if (root / name).is_dir() and name not in {dataset.folder for dataset in DATASETS.values()}:
        return name
    return find_dataset(name).name
