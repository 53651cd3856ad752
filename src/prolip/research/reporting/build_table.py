"""The table of a run: measured figures in the shape of the paper's table, with the published ones.

A figure is compared with the paper's only where it could be the same: the same encoder, and the same
datasets. Elsewhere the difference is not shown, and a note says why.
"""

import statistics
from collections.abc import Sequence
from typing import Any

from prolip import methods
from prolip.core.errors import ProlipError
from prolip.methods.base import Shape
from prolip.research.catalogue.experiment import Experiment, Line
from prolip.research.catalogue.published import PROJECTIONS, published
from prolip.research.protocols.protocols import harmonic_mean, total_harmonic_means
from prolip.research.reporting.results import (
    Estimate,
    Measure,
    Query,
    Results,
    Statistic,
    mean_first,
    paper_model,
    shots_name,
    title_of,
)
from prolip.research.reporting.table import Cell, ResultRow, Table

TableParts = tuple[list[str], list[ResultRow]]  # columns and rows

_CLASSES, _SHOTS = 1000, 16  # for counting parameters: ImageNet, 16 shots


def build(results: Results) -> Table:
    """Build the table of a run."""
    experiment = results.experiment
    columns, rows = LAYOUTS[experiment.layout](results)
    title = f"{experiment.title} ({experiment.where})"
    against = results.against.label if results.against else ""
    return Table(title, tuple(columns), tuple(rows), tuple(_notes(results)), against=against)


def _notes(results: Results) -> list[str]:
    plan, experiment = results.plan, results.experiment
    sources = ", ".join(map(title_of, plan.datasets[:1] if experiment.targets else plan.datasets))
    encoders = ", ".join(plan.models)
    notes = [f"{encoders}; {sources}; seeds {_span(plan.seeds)}; views {plan.views}", *_comparison(results)]
    if results.against:
        notes.append(
            f"against {results.against.label}: mean difference on the same datasets, shots and seeds, ± half "
            "its 95 % interval (Student's t over seeds); bold where the interval excludes zero"
        )
    if waiting := sum(one.status in ("waiting", "running") for one in results.runs):
        notes.append(f"* {waiting} of {len(results.runs)} runs are not done yet")
    for line in results.lines:
        failed = [one for one in results.runs if one.run.line == line.key and one.status == "failed"]
        if failed:
            why = (failed[-1].error or "").strip().splitlines() or ["?"]
            notes.append(f"{line.label}: {len(failed)} runs failed, like: {why[-1]}")
    if plan.unavailable:
        notes.append(f"not available in this installation: {', '.join(plan.unavailable)}")
    return [*notes, experiment.note] if experiment.note else notes


def _comparison(results: Results) -> list[str]:
    """Return notes on how the run differs from the paper's."""
    plan, experiment = results.plan, results.experiment
    if not experiment.published:
        return []
    why = []
    if not all(paper_model(model) in experiment.models for model in plan.models):
        ours, theirs = ", ".join(plan.models), ", ".join(experiment.models)
        why.append(f"another encoder ({ours}; the paper has {theirs})")
    if set(plan.datasets) != {*experiment.datasets, *experiment.targets}:
        count = len(experiment.datasets) + len(experiment.targets)
        why.append(f"other datasets ({len(plan.datasets)}; the paper has its own {count})")
    if plan.templates:
        why.append("other templates")
    if why:
        return [f"NOT COMPARABLE with the published figures: {', '.join(why)}"]
    if len(plan.seeds) == len(experiment.seeds) and plan.views == 300:
        return []
    return [f"{len(plan.seeds)} of the paper's {len(experiment.seeds)} seeds, {plan.views} of its 300 views"]


def _span(seeds: Sequence[int]) -> str:
    if len(seeds) > 1 and list(seeds) == list(range(seeds[0], seeds[0] + len(seeds))):
        return f"{seeds[0]} to {seeds[-1]}"
    return ", ".join(map(str, seeds))


def _cell(results: Results, line: Line, query: Query, paper: float | None, comparable: bool) -> Cell:
    """Return a figure, and its gain over the line that the table compares with."""
    found, gain = results.estimate(line, query), Estimate(None)
    if results.against is not None and results.against.key != line.key:
        gain = results.gain(line, results.against, query)
    return Cell(found.mean, found.std, paper, comparable, found.missing, gain.mean, gain.interval)


def shots(results: Results) -> TableParts:
    """Return a column for each number of shots, the mean over datasets."""
    return _by_shots(results, [None])


def datasets(results: Results) -> TableParts:
    """Return a column for each number of shots, dataset by dataset."""
    return _by_shots(results, results.plan.datasets)


def _by_shots(results: Results, names: Sequence[str | None]) -> TableParts:
    plan, average = results.plan, results.experiment.columns.get("average", "average")
    has_average = results.paper is not None and average in results.paper.columns and len(plan.shots) > 1
    columns = [shots_name(shots) for shots in plan.shots] + ["average"] * has_average
    rows = []
    for model in plan.models:
        for name in names:
            title = None if name is None else title_of(name)
            for line in results.lines:
                cells = _shot_cells(results, line, model, name, has_average)
                rows.append(ResultRow(line.label, cells, results.group(model, title or "")))
    return columns, rows


def _shot_cells(
    results: Results, line: Line, model: str, dataset: str | None, has_average: bool
) -> tuple[Cell, ...]:
    """Return the figures of each number of shots on one dataset, or with None the mean over datasets."""
    plan = results.plan
    names, title = (plan.datasets, None) if dataset is None else ((dataset,), title_of(dataset))
    comparable = results.comparable(model, None if dataset is None else names)
    cells = []
    for shots in plan.shots:
        paper = results.figure(line, model, shots_name(shots), title)
        cells.append(_cell(results, line, Query(model, names, [shots]), paper, comparable))
    if has_average:
        paper = results.figure(line, model, "average", title)
        comparable = comparable and plan.shots == results.experiment.shots
        mean = _cell(results, line, Query(model, names, plan.shots), paper, comparable)
        cells.append(mean if all(cell.measured is not None for cell in cells) else Cell(None))
    return tuple(cells)


def _lines_and_shots(results: Results) -> list[tuple[Line, int | None, str]]:
    """Return line, shots and label of each row, for layouts without columns of shots."""
    several = len(results.plan.shots) > 1
    rows: list[tuple[Line, int | None, str]] = []
    for line in results.lines:
        for count in results.plan.shots if line.trained else (None,):
            suffix = f", {shots_name(count)} shot{'' if count == 1 else 's'}"
            rows.append((line, count, f"{line.label}{suffix if several and line.trained else ''}"))
    return rows


def _both(result: dict[str, Any]) -> tuple[float | None, ...]:
    return result.get("base"), result.get("new")


_HALVES: dict[str, tuple[Measure, Statistic]] = {
    "base": (lambda result: (result.get("base"),), mean_first),
    "new": (lambda result: (result.get("new"),), mean_first),
    "HM": (_both, lambda pairs: harmonic_mean(*pairs[0])),
    "H_t1": (_both, lambda pairs: total_harmonic_means(pairs)[0]),
    "H_t2": (_both, lambda pairs: total_harmonic_means(pairs)[1]),
}


def base_to_new(results: Results) -> TableParts:
    """Return means with both total harmonic means, then each dataset with its own."""
    plan = results.plan
    rows: dict[str, list[ResultRow]] = {}
    groups = [plan.datasets, *((name,) for name in plan.datasets if len(plan.datasets) > 1)]
    for model in plan.models:
        for number, names in enumerate(groups):
            group = results.group(model, title_of(names[0]) if number else "")
            for line, count, label in _lines_and_shots(results):
                cells = _half_cells(results, line, model, names, count, total=not number)
                rows.setdefault(group, []).append(ResultRow(label, cells, group))
    return list(_HALVES), [row for group in rows.values() for row in group]


def _half_cells(
    results: Results, line: Line, model: str, datasets: Sequence[str], count: int | None, total: bool
) -> tuple[Cell | None, ...]:
    """Return base, new and harmonic means: H_t1 and H_t2 over datasets, HM of one."""
    experiment = results.experiment
    per_dataset = experiment.published_per_dataset and published(experiment.published_per_dataset)
    cells: list[Cell | None] = []
    for column, (measure, statistic) in _HALVES.items():
        if column in (("HM",) if total else ("H_t1", "H_t2")):
            cells.append(None)
            continue
        paper = None
        if not line.trained or count in experiment.shots:
            if total:
                paper = results.figure(line, model, column)
            elif per_dataset:
                paper = per_dataset.value(str(line.paper), column, title_of(datasets[0]))
        comparable = results.comparable(model, None if total else datasets)
        query = Query(model, datasets, [count], measure, statistic)
        cells.append(_cell(results, line, query, paper, comparable))
    return tuple(cells)


def targets(results: Results) -> TableParts:
    """Return a column for each test dataset, the mean of all, and of those not trained on."""
    source, *others = results.plan.datasets
    columns = {title_of(name): [name] for name in (source, *others)}
    if others:
        columns |= {"average": [source, *others], "OOD": others}
    rows = []
    for model in results.plan.models:
        for line, count, label in _lines_and_shots(results):
            cells = []
            for column, names in columns.items():
                paper = results.figure(line, model, column)
                if paper is None:  # the domain table names its columns by backbone
                    title = paper_model(model) or results.experiment.models[0]
                    paper = results.figure(line, model, f"{title} {'IN' if column == 'ImageNet' else column}")
                comparable = results.comparable(model, names if len(names) == 1 else None)
                query = Query(model, [source], [count], _accuracy_on(names))
                cells.append(_cell(results, line, query, paper, comparable))
            rows.append(ResultRow(label, tuple(cells), results.group(model)))
    return list(columns), rows


def _accuracy_on(names: Sequence[str]) -> Measure:
    """Return a measure: the mean accuracy on some of a run's targets."""

    def measure(result: dict[str, Any]) -> tuple[float | None, ...]:
        found = [result.get("targets", {}).get(name) for name in names]
        return (None if None in found else statistics.fmean(found),)

    return measure


def chosen(results: Results) -> TableParts:
    """Return how often each learning rate and each lam was chosen, in percent of the searches."""
    grid = [options for line in results.lines for options in line.grid]
    rows = []
    for option in ("lr", "lam"):
        for value in dict.fromkeys(options[option] for options in grid if option in options):
            cells = []
            for count in results.plan.shots:
                searches = [found for one, found in results.done if one.run.shots == count and one.run.grid]
                picked = [found["chosen"].get(option) for found in searches]
                cells.append(Cell(100 * picked.count(value) / len(picked) if picked else None))
            rows.append(ResultRow(f"{value:g}", tuple(cells), "learning rate" if option == "lr" else "lam"))
    return [shots_name(shots) for shots in results.plan.shots], rows


def manifold(results: Results) -> TableParts:
    """Return accuracy and neighbours of the same class, before and after."""
    rows = []
    for one in results.runs:
        cells = [
            Cell(None if one.result is None else 100 * one.result[stage][figure])
            for figure in ("accuracy", "purity")
            for stage in ("before", "after")
        ]
        rows.append(ResultRow(title_of(one.run.dataset), tuple(cells)))
    return ["accuracy before", "after", "neighbours of the same class before", "after"], rows


LAYOUTS = {layout.__name__: layout for layout in (shots, datasets, base_to_new, targets, chosen, manifold)}


def parameters(experiment: Experiment) -> Table:
    """Count trained parameters in millions: ProLIP's for each backbone, and every method's on ImageNet."""
    paper = published("parameters")
    rows = []
    for model, (dim, features) in PROJECTIONS.items():
        count = methods.create("prolip").count(Shape(features, dim, _CLASSES, _SHOTS * _CLASSES))
        cell = Cell(count / 1e6, None, paper.value(model, "millions"), True)
        rows.append(ResultRow(f"ProLIP, {model}: {dim} x {features}", (cell,)))
    dim, features = PROJECTIONS["RN50"]
    shape = Shape(features, dim, _CLASSES, _SHOTS * _CLASSES, text_features=512)
    group = f"RN50, {_CLASSES} classes, {_SHOTS} shots"
    for name, kind in methods.available().items():
        try:
            method = kind.create()
            count = method.count(shape)
        except (ProlipError, ImportError):
            continue  # it trains inside a tower, or is not installed
        rows.append(ResultRow(f"{name}: {method.size}", (Cell(count / 1e6),), group))
    note = "Methods that train inside a tower are not counted here: it depends on the tower."
    title = f"{experiment.title} ({experiment.where})"
    return Table(title, ("parameters",), tuple(rows), (note, experiment.note), unit="millions")
