"""The table of a run: measured figures in the shape of the paper's table, with the published ones.

A difference is shown only where it means something: the same program in the same setting (`Provenance`), the
same encoder, shots and datasets, all of them complete, and as many seeds. Other published figures stand
apart, with the reason.
"""

import statistics
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from prolip import methods
from prolip.core.errors import ProlipError, UsageError
from prolip.methods.base import Shape
from prolip.research.catalogue.experiment import Experiment, Line
from prolip.research.catalogue.parameters import tower_parameters
from prolip.research.catalogue.published import PROJECTIONS, published
from prolip.research.protocols.protocols import harmonic_mean, total_harmonic_means
from prolip.research.reporting.results import (
    Estimate,
    Measure,
    PublishedFigure,
    Query,
    Results,
    Statistic,
    mean_first,
    measure,
    paper_model,
    scores,
    shots_name,
    title_of,
)
from prolip.research.reporting.table import Cell, ResultRow, Table

TableParts = tuple[list[str], list[ResultRow]]  # columns and rows

NO_FIGURE = PublishedFigure()
_LOSS = "OOD difference"  # the column of the gain over a line's `base`
ECE = "ECE"  # the column of the expected calibration error
_CALIBRATION = measure("calibration_error")
_CLASSES, _SHOTS = 1000, 16  # for counting parameters: ImageNet, 16 shots


def build(results: Results) -> Table:
    """Build the table of a run."""
    experiment = results.experiment
    columns, rows = LAYOUTS[experiment.layout](results)
    title = f"{experiment.title} ({experiment.where})"
    against = results.against.label if results.against else ""
    notes = tuple(_notes(results, columns))
    unit, digits = ("s", (4, 2)) if experiment.layout == "seconds" else ("%", ())
    return Table(title, tuple(columns), tuple(rows), notes, unit, against, digits)


def _notes(results: Results, columns: Sequence[str]) -> list[str]:
    plan, experiment = results.plan, results.experiment
    sources = ", ".join(map(title_of, plan.datasets[:1] if experiment.targets else plan.datasets))
    encoders = ", ".join(plan.models)
    counts = ", ".join(map(shots_name, plan.shots))
    parts = [encoders, sources, f"shots {counts}", f"seeds {_span(plan.seeds)}", f"views {plan.views}"]
    if rules := dict.fromkeys(run.validation for run in plan.runs if run.validation != "none"):
        parts.append(f"validation {', '.join(rules)}")
    notes = ["; ".join(parts)]
    of_the_paper = not experiment.where.endswith(("repository", "repositories"))
    if experiment.published and of_the_paper and experiment.views > 1 and plan.views < 300:
        notes.append(f"{plan.views} of the paper's 300 views")
    if ECE in columns:
        notes.append(f"{ECE}: expected calibration error, 15 bins, the mean over all shots")
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
        notes.append(f"not available here: {', '.join(plan.unavailable)}")
    return [*notes, experiment.note] if experiment.note else notes


def _span(seeds: Sequence[int]) -> str:
    if len(seeds) > 1 and list(seeds) == list(range(seeds[0], seeds[0] + len(seeds))):
        return f"{seeds[0]} to {seeds[-1]}"
    return ", ".join(map(str, seeds))


def _cell(results: Results, line: Line, query: Query, figure: PublishedFigure = NO_FIGURE) -> Cell:
    """Return a figure, the published one, and the gain over the line that the table compares with."""
    found, gain = results.estimate(line, query), Estimate(None)
    if results.against is not None and results.against.key != line.key:
        gain = results.gain(line, results.against, query)
    return Cell(found.mean, found.std, *figure, found.missing, gain.mean, gain.interval, gain.missing)


def shots(results: Results) -> TableParts:
    """Return a column for each number of shots, the mean over datasets."""
    return _by_shots(results, [None])


def datasets(results: Results) -> TableParts:
    """Return a column for each number of shots, dataset by dataset."""
    return _by_shots(results, results.plan.datasets)


def _by_shots(results: Results, names: Sequence[str | None]) -> TableParts:
    plan, average = results.plan, results.experiment.columns.get("average", "average")
    has_average = results.paper is not None and average in results.paper.columns and len(plan.shots) > 1
    has_ece = any("calibration_error" in result for _, result in results.done)
    columns = [shots_name(shots) for shots in plan.shots] + ["average"] * has_average + [ECE] * has_ece
    rows = []
    for model in plan.models:
        for name in names:
            title = None if name is None else title_of(name)
            for line in results.lines:
                cells = _shot_cells(results, line, model, name, has_average)
                if has_ece:
                    used = plan.datasets if name is None else (name,)
                    cells.append(_cell(results, line, Query(model, used, plan.shots, _CALIBRATION)))
                rows.append(ResultRow(line.label, tuple(cells), results.group(model, title or "")))
    return columns, rows


def _shot_cells(
    results: Results, line: Line, model: str, dataset: str | None, has_average: bool
) -> list[Cell]:
    """Return the figures of each number of shots on one dataset, or with None the mean over datasets."""
    plan = results.plan
    names = plan.datasets if dataset is None else (dataset,)
    tested = None if dataset is None else names
    cells = []
    for shots in plan.shots:
        figure = results.figure(line, model, shots_name(shots), dataset, tested)
        cells.append(_cell(results, line, Query(model, names, [shots]), figure))
    if has_average:
        figure = results.figure(line, model, "average", dataset, tested)
        if plan.shots != results.experiment.shots:
            figure = figure._replace(why=(*figure.why, "a mean over other shots"))
        mean = _cell(results, line, Query(model, names, plan.shots), figure)
        cells.append(mean if all(cell.measured is not None for cell in cells) else Cell(None))
    return cells


def _lines_and_shots(results: Results) -> list[tuple[Line, int | None, str]]:
    """Return line, shots and label of each row, for layouts without columns of shots."""
    several = len(results.plan.shots) > 1
    rows: list[tuple[Line, int | None, str]] = []
    for line in results.lines:
        for count in results.plan.shots if line.trained else (None,):
            suffix = f", {shots_name(count)} shot{'' if count == 1 else 's'}"
            rows.append((line, count, f"{line.label}{suffix if several and line.trained else ''}"))
    return rows


_BOTH = measure("base", "new")
_HALVES: dict[str, tuple[Measure, Statistic]] = {
    "base": (measure("base"), mean_first),
    "new": (measure("new"), mean_first),
    "HM": (_BOTH, lambda pairs: harmonic_mean(*pairs[0])),
    "H_t1": (_BOTH, lambda pairs: total_harmonic_means(pairs)[0]),
    "H_t2": (_BOTH, lambda pairs: total_harmonic_means(pairs)[1]),
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
    cells: list[Cell | None] = []
    dataset, tested = (None, None) if total else (datasets[0], datasets)
    for column, (halves, statistic) in _HALVES.items():
        if column in (("HM",) if total else ("H_t1", "H_t2")):
            cells.append(None)
            continue
        query = Query(model, datasets, [count], halves, statistic)
        cells.append(
            _cell(results, line, query, results.figure(line, model, column, dataset, tested, [count]))
        )
    return tuple(cells)


def targets(results: Results) -> TableParts:
    """Return a column for each test dataset, the mean of all, and of those not trained on."""
    source, *others = results.plan.datasets
    columns = {title_of(name): [name] for name in (source, *others)}
    if others:
        columns |= {"average": [source, *others], "OOD": others}
    if others and results.paper is not None and _LOSS in results.paper.columns:
        columns[_LOSS] = others
    by_key, rows = {line.key: line for line in results.lines}, []
    for model in results.plan.models:
        title = paper_model(model) or results.experiment.models[0]
        for line, count, label in _lines_and_shots(results):
            cells: list[Cell | None] = []
            for column, names in columns.items():
                tested = names if len(names) == 1 else None
                # The domain table names its columns by backbone.
                short = f"{title} {'IN' if column == 'ImageNet' else column}"
                found = (results.figure(line, model, name, None, tested, [count]) for name in (column, short))
                figure = next((one for one in found if one.value is not None), NO_FIGURE)
                query = Query(model, [source], [count], _accuracy_on(names))
                if column != _LOSS:
                    cells.append(_cell(results, line, query, figure))
                elif base := by_key.get(line.base or ""):
                    gain = results.gain(line, base, query)
                    cells.append(Cell(gain.mean, gain.std, *figure, gain.missing))
                else:
                    cells.append(None)
            rows.append(ResultRow(label, tuple(cells), results.group(model)))
    return list(columns), rows


def _accuracy_on(names: Sequence[str]) -> Measure:
    """Return a measure: the mean accuracy on some of a run's targets."""

    def mean(result: dict[str, Any]) -> tuple[float | None, ...]:
        found = [result.get("targets", {}).get(name) for name in names]
        return (None if None in found else statistics.fmean(found),)

    return mean


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


def seconds(results: Results) -> TableParts:
    """Return the mean seconds of each line, and how many times those of the first line they are."""
    rows = []
    for model in results.plan.models:
        first: dict[int | None, float] = {}  # by shots
        for line, count, label in _lines_and_shots(results):
            taken = [one.result["seconds"] for one in results.of(line, model, [count]) if one.result]
            mean = statistics.fmean(taken) if taken else None
            base = first.setdefault(count, mean) if mean is not None else None
            ratio = None if mean is None or not base else mean / base
            rows.append(ResultRow(label, (Cell(mean), Cell(ratio)), results.group(model)))
    return ["seconds", "times the first line"], rows


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


_ALL_LAYOUTS = (shots, datasets, base_to_new, targets, chosen, seconds, manifold)
LAYOUTS = {layout.__name__: layout for layout in _ALL_LAYOUTS}


def compare(results: Results) -> Table:
    """Compare the lines over datasets: mean, average rank, and the paired difference to one of them.

    The difference is that of `against`, by default the line with the best mean. A line that misses runs is
    left out, because ranks need every dataset.
    """
    from scipy.stats import rankdata, wilcoxon

    experiment, rows, notes = results.experiment, [], []
    for model in results.plan.models:
        every = [(line, results.dataset_scores(line, model)) for line in results.lines]
        most = max((len(found) for _, found in every), default=0)
        scored = [(line, list(found.values())) for line, found in every if found and len(found) == most]
        notes += [
            f"{line.label} is left out: runs are missing" for line, x in every if len(x) < most or not x
        ]
        if not scored:
            continue
        base = results.against or max(scored, key=lambda pair: statistics.fmean(pair[1]))[0]
        theirs = next((values for line, values in scored if line.key == base.key), None)
        ranks = rankdata([[-value for value in values] for _, values in scored], axis=0).mean(axis=1)
        for (line, values), rank in zip(scored, ranks, strict=True):
            ece = results.estimate(
                line, Query(model, results.plan.datasets, results.plan.shots, _CALIBRATION)
            )
            cells = [Cell(statistics.fmean(values)), Cell(ece.mean), Cell(float(rank))]
            if theirs is None or line.key == base.key:
                cells += [Cell(None)] * 3
            else:
                gaps = [a - b for a, b in zip(values, theirs, strict=True)]
                found = Estimate.over(gaps)
                p = None if len(gaps) < 2 else float(wilcoxon(gaps).pvalue) if any(gaps) else 1.0
                better = Cell(float(sum(gap > 0 for gap in gaps)))
                cells += [Cell(None, gain=found.mean, interval=found.interval), better, Cell(p)]
            rows.append(ResultRow(line.label, tuple(cells), results.group(model)))
        notes.append(
            f"{results.group(model, f'over {most} dataset' + 's' * (most > 1))}; difference to {base.label}, "
            "± half its 95 % interval (Student's t over datasets); p of Wilcoxon's signed-rank "
            "test over datasets, two-sided, without a correction for several tests"
        )
    if not rows:
        raise UsageError(
            f"no line of {experiment.name} has an accuracy for each of its runs yet: run the rest"
        )
    columns = {"mean": 2, ECE: 2, "rank": 2, "difference": 2, "better on": 0, "p": 4}
    title = f"{experiment.title} ({experiment.where}): lines over datasets"
    return Table(title, tuple(columns), tuple(rows), tuple(notes), digits=tuple(columns.values()))


def compare_files(results: Results, other: Results) -> Table:
    """Compare the runs that two files share, line by line: means, and the difference of paired runs."""
    theirs = {(one.run.line, one.run.model, one.run.to_json()): scores(one) for one, _ in other.done}
    pairs: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for one, _ in results.done:
        there, here = theirs.get((one.run.line, one.run.model, one.run.to_json()), {}), scores(one)
        if shared := [name for name in here if name in there]:  # a run may have several test sets
            a, b = (100 * statistics.fmean(each[name] for name in shared) for each in (here, there))
            pairs[one.run.model, one.run.line].append((a, b))
    rows = []
    for model in results.plan.models:
        for line in results.lines:
            if found := pairs[model, line.key]:
                gaps = Estimate.over([a - b for a, b in found])
                means = (Cell(statistics.fmean(values)) for values in zip(*found, strict=True))
                largest = Cell(max(abs(a - b) for a, b in found))
                change = Cell(None, gain=gaps.mean, interval=gaps.interval)
                cells = (*means, change, largest, Cell(float(len(found))))
                rows.append(ResultRow(line.label, cells, results.group(model)))
    if not rows:
        raise UsageError(f"the two files share no finished run of {results.experiment.name}")
    columns = {"here": 2, "there": 2, "difference": 2, "largest": 2, "runs": 0}
    title = f"{results.experiment.title} ({results.experiment.where}): two files"
    note = (
        "mean difference of the same runs, ± half of its 95 % confidence interval (Student's t over runs), "
        "and the largest difference of a run"
    )
    return Table(title, tuple(columns), tuple(rows), (note,), digits=tuple(columns.values()))


def parameters(experiment: Experiment) -> Table:
    """Count trained parameters in millions: ProLIP's for each backbone, and every method's on ImageNet."""
    paper = published("parameters")
    rows = []
    for model, (dim, features) in PROJECTIONS.items():
        count = methods.create("prolip").count(Shape(features, dim, _CLASSES, _SHOTS * _CLASSES))
        cell = Cell(count / 1e6, None, paper.value(model, "millions"))
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
    inside = published("tower_parameters")
    for name, count in tower_parameters().items():
        cell = Cell(count / 1e6, None, inside.value(name, "millions"))
        rows.append(ResultRow(name, (cell,), "trained inside a tower"))
    note = "Of methods that train inside a tower, those whose size the paper states."
    title = f"{experiment.title} ({experiment.where})"
    return Table(title, ("parameters",), tuple(rows), (note, experiment.note), unit="millions")
