"""The shapes that the paper's tables have: columns and lines from collected results."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from prolip.bench.cells import Cell, Line
from prolip.bench.collect import Collected, paper_model, title_of
from prolip.bench.experiment import Row
from prolip.bench.published import published
from prolip.evaluate.protocols import harmonic_mean, total_harmonic_means

Mean = tuple[float | None, float | None, int]  # mean, deviation, missing runs


def shots_name(shots: int | None) -> str:
    """A column's heading."""
    return "full" if shots is None else str(shots)


def _shot_cells(
    c: Collected, row: Row, model: str, datasets: Sequence[str], dataset: str | None
) -> list[Cell]:
    comparable = c.comparable(model, None if dataset is None else datasets)
    cells = []
    for shots in c.choices.shots:
        mean, std, missing = c.mean(row, model, datasets, shots, lambda result: result.get("accuracy"))
        paper = c.figure(row, model, shots_name(shots), dataset and title_of(dataset))
        cells.append(Cell(mean, std, paper, comparable, missing))
    if _has_average(c):
        values = [cell.measured for cell in cells if cell.measured is not None]
        complete = len(values) == len(cells)
        mean = statistics.fmean(values) if complete else None
        whole = comparable and c.choices.shots == c.experiment.shots
        missing = sum(cell.missing for cell in cells)
        cells.append(Cell(mean, None, c.figure(row, model, "average", dataset), whole, missing))
    return cells


def _has_average(c: Collected) -> bool:
    table = c.paper
    named = c.experiment.columns.get("average", "average")
    return table is not None and named in table.columns and len(c.choices.shots) > 1


def shots(c: Collected) -> tuple[list[str], list[Line]]:
    """A column for each number of shots, the mean over datasets."""
    columns = [shots_name(shots) for shots in c.choices.shots]
    if _has_average(c):
        columns.append("average")
    return columns, [
        Line(row.label, tuple(_shot_cells(c, row, model, c.choices.datasets, None)), group_name(c, model))
        for model in c.choices.models
        for row in c.rows
    ]


def datasets(c: Collected) -> tuple[list[str], list[Line]]:
    """A column for each number of shots, dataset by dataset."""
    columns = [shots_name(shots) for shots in c.choices.shots]
    return columns, [
        Line(row.label, tuple(_shot_cells(c, row, model, [name], name)), group_name(c, model, title_of(name)))
        for model in c.choices.models
        for name in c.choices.datasets
        for row in c.rows
    ]


def group_name(c: Collected, model: str, dataset: str = "") -> str:
    """What lines of a dataset stand under: its name, and the model's where there are several."""
    several = len(c.choices.models) > 1
    return ", ".join([model] * several + [dataset] * bool(dataset))


def _settings(c: Collected) -> list[tuple[Row, int | None, str]]:
    """Lines of a layout without columns for shots: row, shots, label."""
    several = len(c.choices.shots) > 1
    found: list[tuple[Row, int | None, str]] = []
    for row in c.rows:
        for count in c.choices.shots if row.trained else (None,):
            shown = (
                f", {shots_name(count)} shot{'' if count == 1 else 's'}" if several and row.trained else ""
            )
            found.append((row, count, f"{row.label}{shown}"))
    return found


def base_to_new(c: Collected) -> tuple[list[str], list[Line]]:
    """Means with both total harmonic means, then each dataset with its own."""
    lines: dict[str, list[Line]] = {}
    for model in c.choices.models:
        for row, count, label in _settings(c):
            halves = {name: _halves(c, row, model, name, count) for name in c.choices.datasets}
            cells = {group_name(c, model): _total_cells(c, row, model, count, list(halves.values()))}
            for name, (base, new) in halves.items() if len(halves) > 1 else ():
                half = _half_cells(c, row, model, name, count, base, new)
                cells[group_name(c, model, title_of(name))] = half
            for group, found in cells.items():
                lines.setdefault(group, []).append(Line(label, found, group))
    return ["base", "new", "HM", "H_t1", "H_t2"], [line for group in lines.values() for line in group]


def _halves(c: Collected, row: Row, model: str, dataset: str, count: int | None) -> tuple[Mean, Mean]:
    """Accuracy on base and on new classes."""
    base = c.mean(row, model, [dataset], count, lambda result: result.get("base"))
    return base, c.mean(row, model, [dataset], count, lambda result: result.get("new"))


def _in_paper(c: Collected, row: Row, count: int | None) -> bool:
    """Whether the paper has this number of shots."""
    return not row.trained or count in c.experiment.shots


def _total_cells(
    c: Collected, row: Row, model: str, count: int | None, halves: Sequence[tuple[Mean, Mean]]
) -> tuple[Cell | None, ...]:
    pairs = [(base[0], new[0]) for base, new in halves if base[0] is not None and new[0] is not None]
    if not pairs:
        return (None,) * 5
    base, new = (statistics.fmean(pair[i] for pair in pairs) for i in (0, 1))
    first, second = total_harmonic_means(pairs)
    missing = sum(half[0][2] for half in halves)

    def cell(value: float, column: str) -> Cell:
        paper = c.figure(row, model, column) if _in_paper(c, row, count) else None
        return Cell(value, None, paper, c.comparable(model), missing)

    return cell(base, "base"), cell(new, "new"), None, cell(first, "H_t1"), cell(second, "H_t2")


def _half_cells(
    c: Collected, row: Row, model: str, dataset: str, count: int | None, base: Mean, new: Mean
) -> tuple[Cell | None, ...]:
    if base[0] is None or new[0] is None:
        return (None,) * 5
    name = c.experiment.published or ""
    per = published(name.replace("to_new_", "to_new_per_dataset_")) if "to_new_" in name else None
    comparable = c.comparable(model, [dataset])

    def cell(value: float, std: float | None, column: str) -> Cell:
        known = per is not None and _in_paper(c, row, count)
        paper = per.value(str(row.paper), column, title_of(dataset)) if per and known else None
        return Cell(value, std, paper, comparable, base[2])

    harmonic = cell(harmonic_mean(base[0], new[0]), None, "HM")
    return cell(base[0], base[1], "base"), cell(new[0], new[1], "new"), harmonic, None, None


def targets(c: Collected) -> tuple[list[str], list[Line]]:
    """A column for each dataset that is measured on; the mean of all, and of those not trained on."""
    source, *others = c.choices.datasets
    columns = [title_of(source), *map(title_of, others)]
    if others:
        columns += ["average", "OOD"]
    lines = []
    for model in c.choices.models:
        for row, count, label in _settings(c):
            cells: list[Cell | None] = []
            for name in (source, *others):
                found = c.mean(
                    row,
                    model,
                    [source],
                    count,
                    lambda result, name=name: result.get("targets", {}).get(name),  # type: ignore[misc]
                )
                cells.append(_target_cell(c, row, model, title_of(name), [name], found))
            if others:
                values = [cell.measured for cell in cells if cell is not None]
                missing = sum(cell.missing for cell in cells if cell is not None)
                for column, part in (("average", values), ("OOD", values[1:])):
                    known = [value for value in part if value is not None]
                    mean = statistics.fmean(known) if known and len(known) == len(part) else None
                    cells.append(_target_cell(c, row, model, column, None, (mean, None, missing)))
            lines.append(Line(label, tuple(cells), group_name(c, model)))
    return columns, lines


def _target_cell(
    c: Collected,
    row: Row,
    model: str,
    column: str,
    datasets: Sequence[str] | None,
    found: Mean,
) -> Cell:
    paper = c.figure(row, model, column)
    if paper is None:  # the domain table names its columns by backbone
        title = paper_model(model) or c.experiment.models[0]
        paper = c.figure(row, model, f"{title} {'IN' if column == 'ImageNet' else column}")
    return Cell(found[0], found[1], paper, c.comparable(model, datasets), found[2])


def chosen(c: Collected) -> tuple[list[str], list[Line]]:
    """How often each learning rate and each lam was chosen, in percent of the searches."""
    grid = [options for row in c.rows for options in row.grid]
    lines = []
    for option in ("lr", "lam"):
        for value in dict.fromkeys(options[option] for options in grid if option in options):
            cells = []
            for count in c.choices.shots:
                picked = [
                    result["chosen"][option]
                    for p in c.planned
                    if p.unit.shots == count and (result := c.results.get(p.unit.spec())) is not None
                ]
                share = 100 * picked.count(value) / len(picked) if picked else None
                cells.append(Cell(share))
            lines.append(Line(f"{value:g}", tuple(cells), "learning rate" if option == "lr" else "lam"))
    return [shots_name(shots) for shots in c.choices.shots], lines


def manifold(c: Collected) -> tuple[list[str], list[Line]]:
    """How well classes hold together, before and after."""
    lines = []
    for p in c.planned:
        result = c.results.get(p.unit.spec())
        cells = [
            Cell(None if result is None else 100 * result[stage][figure])
            for figure in ("accuracy", "purity")
            for stage in ("before", "after")
        ]
        lines.append(Line(title_of(p.unit.dataset), tuple(cells)))
    return ["accuracy before", "after", "neighbours of the same class before", "after"], lines
