"""The plan of an experiment: every run of it, on the datasets and models that the user selects."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

from prolip import methods
from prolip.core.errors import InputError, ProlipError, UnknownNameError, UsageError, check_name
from prolip.data import as_templates
from prolip.data.sampling import VALIDATION_RULES
from prolip.research.catalogue.experiment import Entry, Experiment, Options
from prolip.research.catalogue.published import BACKBONES
from prolip.research.protocols.run import Run, lists_to_tuples

if TYPE_CHECKING:
    from prolip.research.running.source import Source


@dataclass(frozen=True)
class Plan:
    """All that is needed to run an experiment, and to show it later."""

    experiment: Experiment  # with the entries that are run
    datasets: tuple[str, ...]  # for a transfer the first is the source, the others are targets
    models: tuple[str, ...]  # the paper's backbones, or encoders by name
    shots: tuple[int | None, ...]  # None is all the data
    seeds: tuple[int, ...]
    views: int
    templates: tuple[str, ...] = ()  # instead of those of the datasets and entries
    unavailable: dict[str, str] = dataclasses.field(default_factory=dict)  # entries that cannot run, and why
    incomplete: dict[str, str] = dataclasses.field(default_factory=dict)  # datasets that lack images, and how
    runs: tuple[Run, ...] = ()  # in the order of the entries

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> Plan:
        """Restore a plan from `dataclasses.asdict`, after JSON."""
        experiment = Experiment.from_json(stored["experiment"])
        runs = tuple(Run(**lists_to_tuples(run)) for run in stored["runs"])
        return cls(**lists_to_tuples({**stored, "experiment": experiment, "runs": runs}))


def missing_methods(experiment: Experiment) -> dict[str, str]:
    """Return the methods of an experiment that this installation lacks, and why."""
    missing = {}
    for name in dict.fromkeys(entry.method for entry in experiment.entries):
        try:
            methods.create(name)
        except (ProlipError, ImportError) as error:
            missing[name] = str(error)
    return missing


def make_plan(
    experiment: Experiment,
    source: Source,
    *,
    datasets: Sequence[str] = (),
    models: Sequence[str] = (),
    entries: Sequence[str] = (),
    shots: Sequence[int | None] = (),
    seeds: Sequence[int] = (),
    views: int | None = None,
    templates: Sequence[str] = (),
    validation: str | None = None,
) -> Plan:
    """Plan an experiment on the datasets of a source; what is not given is the experiment's own.

    `entries` are keys, labels or methods of entries, with options behind colons ("prolip:lam=0.1"); a method
    that has no entry gets one.
    """
    if not experiment.entries:
        raise UsageError(f"{experiment.name} has nothing to run: prolip bench table {experiment.name}")
    selected = source.select(experiment, datasets)
    if not selected:
        raise InputError(
            f"none of the datasets of {experiment.name} is there: `prolip datasets ROOT` lists them, and "
            "`prolip bench run` takes folders of your own images and files of features in their place"
        )
    defaults = source.defaults(experiment, selected)
    views = views or int(defaults.get("views", experiment.views))
    experiment = _with_validation(experiment, validation)
    experiment = dataclasses.replace(experiment, entries=tuple(_select_entries(experiment, entries)))
    runnable, unavailable = _runnable(experiment, source, views)
    plan = Plan(
        dataclasses.replace(experiment, entries=runnable),
        tuple(dict.fromkeys(selected)),
        tuple(dict.fromkeys(models)) or defaults["models"],
        tuple(dict.fromkeys(shots)) or experiment.shots,
        tuple(dict.fromkeys(seeds)) or experiment.seeds,
        views,
        as_templates(list(templates)) if templates else (),
        unavailable,
    )
    runs = tuple(run for model in plan.models for entry in runnable for run in _runs(plan, entry, model))
    if any(run.shots is None and run.validation != "none" for run in runs):
        raise UsageError('"full" leaves no images to validate on: name other shots, or validation="none"')
    return dataclasses.replace(plan, runs=runs)


def _with_validation(experiment: Experiment, validation: str | None) -> Experiment:
    if validation is None:
        return experiment
    check_name("validation", validation, ("none", *VALIDATION_RULES))
    if validation != "none" and experiment.protocol != "few_shot":
        raise UsageError(f'{experiment.name} has no validation images: leave out validation="{validation}"')
    return dataclasses.replace(experiment, validation=validation)


def _runnable(experiment: Experiment, source: Source, views: int) -> tuple[tuple[Entry, ...], dict[str, str]]:
    """Return the entries that can run, and why others cannot."""
    missing, unavailable, runnable = missing_methods(experiment), dict[str, str](), []
    for entry in experiment.entries:
        run = Run(entry.method, protocol=entry.protocol or experiment.protocol)
        if entry.method in missing:
            unavailable[entry.method] = missing[entry.method]
        elif run.runs_tower and not source.has_images:
            unavailable[entry.label] = f"{entry.label} needs images"
        elif (entry.views or 1) <= views:
            runnable.append(entry)
    if not runnable:
        why = "; ".join(unavailable.values()) or f"its lines have more than {views} views"
        raise UsageError(f"no line of {experiment.name} can be run: {why}")
    return tuple(runnable), unavailable


def _select_entries(experiment: Experiment, given: Sequence[str]) -> list[Entry]:
    """Return entries by key, label or method, and new ones for other methods and other options."""
    if not given:
        return list(experiment.entries)
    keys = {entry.key for entry in experiment.entries}
    selected: list[Entry] = []
    for words in given:
        name, options = parse_entry(words)
        known = [
            entry
            for entry in experiment.entries
            if name in (entry.key, entry.label) or (entry.method == name and name not in keys)
        ]
        if not known:
            known = [_new_entry(experiment, name)]
        if options:
            known = [_with_options(known[0], words, options)]
        selected += known
    order = {entry.key: place for place, entry in enumerate(experiment.entries)}
    unique = {entry.key: entry for entry in selected}
    return sorted(unique.values(), key=lambda entry: order.get(entry.key, len(order)))


def _new_entry(experiment: Experiment, name: str) -> Entry:
    """Return an entry of a method that the experiment does not have."""
    try:
        method = methods.get(name)
    except UsageError as error:
        known = {word for entry in experiment.entries for word in (entry.key, entry.label, entry.method)}
        what = f"line or method of {experiment.name}"
        raise UnknownNameError(what, name, known | {*methods.names()}) from error
    return Entry(name, vars(method).get("name", method.__name__), name)


def parse_entry(words: str) -> tuple[str, Options]:
    """Split NAME:option=value:option=value; a "package.module:Class" has no "=".

    Examples
    --------
    >>> parse_entry("prolip:lam=0.1:solver=adam"), parse_entry("mine:Method")
    (('prolip', {'lam': 0.1, 'solver': 'adam'}), ('mine:Method', {}))
    """
    name, *pairs = re.split(r":(?=\w+=)", words)
    texts = (pair.split("=", 1) for pair in pairs)
    return name, {option: _value(text) for option, text in texts}


def _value(text: str) -> Any:
    try:
        return json.loads({"True": "true", "False": "false", "none": "null", "None": "null"}.get(text, text))
    except ValueError:
        return text


def _with_options(entry: Entry, words: str, options: Options) -> Entry:
    """Return an entry with other options, under a name that says so; no published figure is beside it."""
    methods.create(entry.method, **entry.options | options)  # which refuses what it does not know
    described = ", ".join(f"{name}={value}" for name, value in options.items())
    return dataclasses.replace(
        entry,
        key=words,
        label=f"{entry.label}, {described}",
        options={**entry.options, **options},
        grid=() if options.keys() & {name for pair in entry.grid for name in pair} else entry.grid,
        averaged_over=tuple(
            {name: value for name, value in each.items() if name not in options}
            for each in entry.averaged_over
        ),
        published_row=None,
    )


def _runs(plan: Plan, entry: Entry, model: str) -> Iterator[Run]:
    """Yield the runs of an entry on one model; an entry without training needs one draw."""
    experiment = plan.experiment
    validation = (entry.validation or experiment.validation) if entry.trained else "none"
    sources = plan.datasets[:1] if experiment.targets else plan.datasets
    draws = list(product(plan.shots, plan.seeds)) if entry.trained else [(1, plan.seeds[0])]
    settings = {str(more): more for more in entry.averaged_over}.values()
    for dataset, more, (shots, seed) in product(sources, settings, draws):
        yield Run(
            entry.method,
            {**entry.options, **more, **entry.by_dataset.get(dataset, {})},
            shots=shots,
            seed=seed,
            views=(entry.views or plan.views) if entry.trained else 1,
            view_area=entry.view_area,
            template=entry.template or experiment.template,
            scale=entry.scale,
            grid=entry.grid if validation != "none" else (),
            protocol=entry.protocol or experiment.protocol,
            validation=validation,
            dataset=dataset,
            encoder=BACKBONES.get(model, model),
            targets=plan.datasets[len(sources) :],
            entry=entry.key,
            model=model,
        )
