"""The reference computation of each line of an experiment that stands beside a published figure as the same.

`references` raises for a line that it has no computation for, so that a new line without one is noticed.
"""

from collections.abc import Iterator
from typing import Any

from prolip import methods
from prolip.research.catalogue import EXPERIMENTS
from prolip.research.catalogue.experiment import Entry, Experiment
from prolip.research.catalogue.published import published_rows

_SOLVERS = {"adam": "Adam", "sgd": "SGD", "exact": "exact"}
# Methods whose reference is another one with a validation set.
_VALIDATED = {"tip_adapter_f": "tip_adapter_f, validated"}
# Options of methods through towers: those that select a computation, and those that change its numbers alone.
_TOWER_OPTIONS = {"coop": ("program", "init"), "maple": ("depth",), "plot": ("pooled",)}
_TOWER_NUMBERS = {"epochs", "contexts", "view_area", "teacher", "init", "late_conflict"}

Reference = tuple[str, dict[str, Any]]  # a name in `compare.py`, and further options of the computation


def same_lines() -> Iterator[tuple[Entry, Experiment]]:
    """Every line beside a published row that is computed in the same way."""
    for experiment in EXPERIMENTS.values():
        for *_, line, why in published_rows(experiment):
            if line is not None and not why:
                yield line, experiment


def references(line: Entry, experiment: Experiment) -> Iterator[Reference]:
    """The computations that re-run what a line runs, for each of its options and datasets."""
    validation, protocol = line.validation or experiment.validation, line.protocol or experiment.protocol
    for over in line.averaged_over:
        for of_dataset in ({}, *line.by_dataset.values()):
            options = {**line.options, **over, **of_dataset}
            yield _fit(line, options, validation)
    if protocol == "test_time_tpt":
        yield ("tpt, coop" if line.method == "coop" else "tpt"), {}
    elif protocol == "test_time_prolip":
        yield "test-time ProLIP", {}
    elif protocol not in ("few_shot", "base_to_new", "transfer"):
        raise KeyError(f"{line.key}: no reference for the protocol {protocol}")


def _fit(line: Entry, options: dict[str, Any], validation: str) -> Reference:
    method = methods.get(line.method)
    if method.trains_tower:
        return _tower_line(line.method, options), {}
    options = dict(options)
    label = line.method
    if "solver" in methods.options(line.method):
        label += f", {_SOLVERS[options.pop('solver', None) or method.solver]}"
    if options.pop("precision", "float32") == "float16":
        label += ", float16"
    if options.pop("shared_keys", False):
        label += ", shared"
    if line.grid:
        return f"{label}, searched", options
    if "grid" in (options.get("C"), options.get("alpha"), options.get("lam")):
        return f"{line.method}, grid", {}
    if line.scale != 1.0:
        options["scale"] = line.scale
    return _VALIDATED.get(label, label) if validation != "none" else label, options


def _tower_line(name: str, options: dict[str, Any]) -> str:
    chosen = {key: options[key] for key in _TOWER_OPTIONS.get(name, ()) if key in options}
    if unknown := options.keys() - chosen.keys() - _TOWER_NUMBERS:
        raise KeyError(f"{name}: no reference with {', '.join(unknown)}")
    if chosen.get("program") == "lp++":
        return "coop, lp++"
    words = {"init": "phrase", "pooled": "pooled"}
    if name == "maple":
        return "maple, shallow" if chosen.get("depth") == 1 else "maple"
    return ", ".join([name, *(words[key] for key in chosen if key in words)])
