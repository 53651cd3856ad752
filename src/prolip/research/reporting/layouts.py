"""The shapes that the paper's tables have: columns and rows from the results of a run."""

import statistics
from collections.abc import Sequence
from typing import Any

from prolip.research.catalogue.experiment import Line
from prolip.research.catalogue.published import published
from prolip.research.protocols.protocols import harmonic_mean, total_harmonic_means
from prolip.research.reporting.results import (
    Estimate,
    Measure,
    Question,
    Results,
    Statistic,
    mean_first,
    paper_model,
    title_of,
)
from prolip.research.reporting.table import Cell, TableRow

Shape = tuple[list[str], list[TableRow]]


def shots_name(shots: int | None) -> str:
    """A column's heading."""
    return "full" if shots is None else str(shots)


def group_name(c: Results, model: str, dataset: str = "") -> str:
    """What rows of a dataset stand under: its name, and the model's where there are several."""
    several = len(c.choices.models) > 1
    return ", ".join([model] * several + [dataset] * bool(dataset))


def _cell(c: Results, line: Line, asked: Question, paper: float | None, comparable: bool) -> Cell:
    """A figure, and what it gains over the line that it is compared with."""
    found, gain = c.estimate(line, asked), Estimate(None)
    if c.against is not None and c.against.key != line.key:
        gain = c.gain(line, c.against, asked)
    return Cell(found.mean, found.std, paper, comparable, found.missing, gain.mean, gain.interval)


def _shot_cells(c: Results, line: Line, model: str, dataset: str | None) -> tuple[Cell, ...]:
    """Figures of each number of shots on one dataset, or with None the mean over all of them."""
    datasets, title = (c.choices.datasets, None) if dataset is None else ([dataset], title_of(dataset))
    comparable = c.comparable(model, None if dataset is None else datasets)
    cells = []
    for shots in c.choices.shots:
        paper = c.figure(line, model, shots_name(shots), title)
        cells.append(_cell(c, line, Question(model, datasets, [shots]), paper, comparable))
    if _has_average(c):
        whole = comparable and c.choices.shots == c.experiment.shots
        paper = c.figure(line, model, "average", title)
        mean = _cell(c, line, Question(model, datasets, c.choices.shots), paper, whole)
        cells.append(mean if all(cell.measured is not None for cell in cells) else Cell(None))
    return tuple(cells)


def _has_average(c: Results) -> bool:
    named = c.experiment.columns.get("average", "average")
    return c.paper is not None and named in c.paper.columns and len(c.choices.shots) > 1


def shots(c: Results) -> Shape:
    """A column for each number of shots, the mean over datasets."""
    return _by_shots(c, [None])


def datasets(c: Results) -> Shape:
    """A column for each number of shots, dataset by dataset."""
    return _by_shots(c, c.choices.datasets)


def _by_shots(c: Results, names: Sequence[str | None]) -> Shape:
    columns = [shots_name(shots) for shots in c.choices.shots] + ["average"] * _has_average(c)
    rows = []
    for model in c.choices.models:
        for name in names:
            group = group_name(c, model, "" if name is None else title_of(name))
            rows += [TableRow(line.label, _shot_cells(c, line, model, name), group) for line in c.lines]
    return columns, rows


def _settings(c: Results) -> list[tuple[Line, int | None, str]]:
    """Rows of a layout without columns for shots: line, shots, label."""
    several = len(c.choices.shots) > 1
    found: list[tuple[Line, int | None, str]] = []
    for line in c.lines:
        for count in c.choices.shots if line.trained else (None,):
            shown = f", {shots_name(count)} shot{'' if count == 1 else 's'}"
            found.append((line, count, f"{line.label}{shown if several and line.trained else ''}"))
    return found


def _both(result: dict[str, Any]) -> tuple[float | None, ...]:
    return result.get("base"), result.get("new")


_HALVES: dict[str, tuple[Measure, Statistic]] = {
    "base": (lambda result: (result.get("base"),), mean_first),
    "new": (lambda result: (result.get("new"),), mean_first),
    "HM": (_both, lambda pairs: harmonic_mean(*pairs[0])),
    "H_t1": (_both, lambda pairs: total_harmonic_means(pairs)[0]),
    "H_t2": (_both, lambda pairs: total_harmonic_means(pairs)[1]),
}


def base_to_new(c: Results) -> Shape:
    """Means with both total harmonic means, then each dataset with its own."""
    rows: dict[str, list[TableRow]] = {}
    groups = [c.choices.datasets, *([name] for name in c.choices.datasets if len(c.choices.datasets) > 1)]
    for model in c.choices.models:
        for number, names in enumerate(groups):
            group = group_name(c, model, title_of(names[0]) if number else "")
            for line, count, label in _settings(c):
                cells = _half_cells(c, line, model, names, count, total=not number)
                rows.setdefault(group, []).append(TableRow(label, cells, group))
    return list(_HALVES), [row for group in rows.values() for row in group]


def _half_cells(
    c: Results, line: Line, model: str, datasets: Sequence[str], count: int | None, total: bool
) -> tuple[Cell | None, ...]:
    """Base, new and harmonic means: H_t1 and H_t2 over datasets, HM of one."""
    name = c.experiment.published or ""
    per = published(name.replace("to_new_", "to_new_per_dataset_")) if "to_new_" in name else None
    in_paper = not line.trained or count in c.experiment.shots
    cells: list[Cell | None] = []
    for column, (measure, statistic) in _HALVES.items():
        if column in (("HM",) if total else ("H_t1", "H_t2")):
            cells.append(None)
            continue
        paper = c.figure(line, model, column) if total else None
        if per is not None and not total:
            paper = per.value(str(line.paper), column, title_of(datasets[0]))
        comparable = c.comparable(model, None if total else datasets)
        asked = Question(model, datasets, [count], measure, statistic)
        cells.append(_cell(c, line, asked, paper if in_paper else None, comparable))
    return tuple(cells)


def targets(c: Results) -> Shape:
    """A column for each dataset that is measured on; the mean of all, and of those not trained on."""
    source, *others = c.choices.datasets
    columns = {title_of(name): [name] for name in (source, *others)}
    if others:
        columns |= {"average": [source, *others], "OOD": others}
    rows = []
    for model in c.choices.models:
        for line, count, label in _settings(c):
            cells = []
            for column, names in columns.items():
                paper = c.figure(line, model, column)
                if paper is None:  # the domain table names its columns by backbone
                    title = paper_model(model) or c.experiment.models[0]
                    paper = c.figure(line, model, f"{title} {'IN' if column == 'ImageNet' else column}")
                comparable = c.comparable(model, names if len(names) == 1 else None)
                cells.append(
                    _cell(c, line, Question(model, [source], [count], _on(names)), paper, comparable)
                )
            rows.append(TableRow(label, tuple(cells), group_name(c, model)))
    return list(columns), rows


def _on(names: Sequence[str]) -> Measure:
    """The mean accuracy on some of a run's targets."""

    def measure(result: dict[str, Any]) -> tuple[float | None, ...]:
        found = [result.get("targets", {}).get(name) for name in names]
        return (None if None in found else statistics.fmean(found),)

    return measure


def chosen(c: Results) -> Shape:
    """How often each learning rate and each lam was chosen, in percent of the searches."""
    grid = [options for line in c.lines for options in line.setting.grid]
    rows = []
    for option in ("lr", "lam"):
        for value in dict.fromkeys(options[option] for options in grid if option in options):
            cells = []
            for count in c.choices.shots:
                trials = [(unit.planned.unit.trial, result) for unit, result in c.done]
                picked = [r["chosen"].get(option) for t, r in trials if t.shots == count and t.setting.grid]
                cells.append(Cell(100 * picked.count(value) / len(picked) if picked else None))
            rows.append(TableRow(f"{value:g}", tuple(cells), "learning rate" if option == "lr" else "lam"))
    return [shots_name(shots) for shots in c.choices.shots], rows


def manifold(c: Results) -> Shape:
    """How well classes hold together, before and after."""
    rows = []
    for unit in c.units:
        cells = [
            Cell(None if unit.result is None else 100 * unit.result[stage][figure])
            for figure in ("accuracy", "purity")
            for stage in ("before", "after")
        ]
        rows.append(TableRow(title_of(unit.planned.unit.dataset), tuple(cells)))
    return ["accuracy before", "after", "neighbours of the same class before", "after"], rows


LAYOUTS = {layout.__name__: layout for layout in (shots, datasets, base_to_new, targets, chosen, manifold)}
