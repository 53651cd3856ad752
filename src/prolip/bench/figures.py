"""The paper's figures, from the results of a run."""

from __future__ import annotations

import statistics
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from prolip.bench import charts, layouts
from prolip.bench.cells import Cell, Line
from prolip.bench.collect import Collected, title_of
from prolip.bench.experiment import Row
from prolip.bench.rows import power
from prolip.core.errors import InputError, UsageError
from prolip.core.files import write_atomic

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(c: Collected) -> Figure:
    """The figure of an experiment."""
    kinds = {
        "curves": _curves,
        "sensitivity": _sensitivity,
        "variants": _variants,
        "bars": _bars,
        "base_to_new": _base_to_new,
        "views": _views,
        "gains": _gains,
        "chosen": _chosen,
        "manifold": _manifold,
    }
    if not c.results:
        raise InputError(f"no run of {c.experiment.name} is done yet: there is nothing to draw")
    if c.experiment.layout == "parameters":
        raise UsageError("parameters are a table: prolip bench table parameters")
    return kinds[c.experiment.plot](c)


def save(figure: Figure, path: Path) -> None:
    """Write a .png, .pdf or .svg, whole or not at all."""
    suffix = path.suffix.lower().lstrip(".")
    if suffix not in ("png", "pdf", "svg"):
        raise UsageError(f"{path}: a plot is a .png, .pdf or .svg file")
    write_atomic(path, lambda temporary: figure.savefig(temporary, format=suffix, dpi=130))


def _shots_ticks(c: Collected) -> list[str]:
    return [layouts.shots_name(shots) for shots in c.choices.shots]


def _level(c: Collected) -> dict[str, float]:
    """Zero-shot accuracy over the datasets of the run, where it was measured."""
    for row in c.rows:
        if not row.trained:
            mean, _, _ = c.mean(row, c.choices.models[0], c.choices.datasets, None, _accuracy)
            if mean is not None:
                return {row.label: mean}
    return {}


def _accuracy(result: dict[str, Any]) -> float | None:
    return result.get("accuracy")


def _series(c: Collected, row: Row, datasets: tuple[str, ...]) -> list[tuple[float | None, float | None]]:
    model = c.choices.models[0]
    return [c.mean(row, model, datasets, shots, _accuracy)[:2] for shots in c.choices.shots]


def _curves(c: Collected) -> Figure:
    """A line for each method over shots."""
    trained = [row for row in c.rows if row.trained]
    series = {row.label: _series(c, row, c.choices.datasets) for row in trained}
    published: dict[str, list[float | None]] = {}
    if c.comparable(c.choices.models[0]):
        for row in trained:
            figures = [c.figure(row, c.choices.models[0], tick) for tick in _shots_ticks(c)]
            if any(value is not None for value in figures):
                published[row.label] = figures
    return charts.lines(
        _shots_ticks(c), series, "labelled images per class", published or None, _level(c), _subtitle(c)
    )


def _sensitivity(c: Collected) -> Figure:
    """A panel for each number of shots: accuracy over learning rates, a line for each lam."""
    lams = list(dict.fromkeys(row.options["lam"] for row in c.rows))
    lrs = sorted({row.options["lr"] for row in c.rows})
    by = {(row.options["lam"], row.options["lr"]): row for row in c.rows}
    model = c.choices.models[0]
    series = {
        f"lam = {lam:g}": [
            [
                c.mean(by[lam, lr], model, c.choices.datasets, shots, _accuracy)[:2]
                if (lam, lr) in by
                else (None, None)
                for lr in lrs
            ]
            for shots in c.choices.shots
        ]
        for lam in lams
    }
    titles = [f"{'N = ' if not i else ''}{tick}" for i, tick in enumerate(_shots_ticks(c))]
    return charts.panels(titles, [power(lr) for lr in lrs], series, "learning rate", _level(c))


def _variants(c: Collected) -> Figure:
    """Lines that are means over learning rates, with the deviation over them; and the exact ones."""
    model = c.choices.models[0]
    series = {}
    for row in c.rows:
        if row.trained and (len(row.over) > 1 or row.options.get("solver") == "exact"):
            series[row.label] = [_over_settings(c, row, model, shots) for shots in c.choices.shots]
    if not series:
        return _curves(c)
    return charts.lines(
        _shots_ticks(c), series, "labelled images per class", None, _level(c), _subtitle(c, "learning rates")
    )


def _over_settings(
    c: Collected, row: Row, model: str, shots: int | None
) -> tuple[float | None, float | None]:
    """Mean and deviation over the settings of a line."""
    values: dict[str, list[float]] = defaultdict(list)
    for p in c.planned:
        if p.row.key == row.key and p.model == model and p.unit.shots == shots:
            result = c.results.get(p.unit.spec())
            if result is not None:
                values[str(p.unit.options)].append(100 * result["accuracy"])
    means = [statistics.fmean(found) for found in values.values()]
    if not means:
        return None, None
    return statistics.fmean(means), statistics.pstdev(means)


def _gains(c: Collected) -> Figure:
    """What each line adds to the ProLIP line above it: the accuracies themselves lie on each other."""
    series: dict[str, list[tuple[float | None, float | None]]] = {}
    base: Row | None = None
    for row in c.rows:
        if row.method == "prolip":
            base = row
        elif row.trained and base is not None:
            series[row.label] = [_gain(c, row, base, shots) for shots in c.choices.shots]
    if not series:
        return _curves(c)
    return charts.lines(
        _shots_ticks(c),
        series,
        "labelled images per class",
        levels={"ProLIP alone": 0.0},
        title=_subtitle(c),
        ylabel="gain over ProLIP, points",
    )


def _gain(c: Collected, row: Row, base: Row, shots: int | None) -> tuple[float | None, float | None]:
    """Mean and deviation over seeds of the difference between two lines."""
    ours, theirs = (_by_seed(c, line, shots) for line in (row, base))
    gains = [ours[seed] - theirs[seed] for seed in ours if seed in theirs]
    return (statistics.fmean(gains), statistics.pstdev(gains)) if gains else (None, None)


def _by_seed(c: Collected, row: Row, shots: int | None) -> dict[int, float]:
    found: dict[int, list[float]] = defaultdict(list)
    for p in c.planned:
        result = c.results.get(p.unit.spec())
        if p.row.key == row.key and p.unit.shots == shots and result is not None:
            found[p.unit.seed].append(100 * result["accuracy"])
    return {seed: statistics.fmean(values) for seed, values in found.items()}


def _views(c: Collected) -> Figure:
    """Accuracy over the number of views, a line for each number of shots."""
    model = c.choices.models[0]
    series = {
        f"{tick} shot{'' if tick == '1' else 's'}": [
            c.mean(row, model, c.choices.datasets, shots, _accuracy)[:2] for row in c.rows
        ]
        for tick, shots in zip(_shots_ticks(c), c.choices.shots, strict=True)
    }
    return charts.lines([str(row.views) for row in c.rows], series, "views of each image", title=_subtitle(c))


def _bars(c: Collected) -> Figure:
    columns, lines = layouts.targets(c) if c.experiment.layout == "targets" else layouts.shots(c)
    return _grouped(c, columns, lines)


def _base_to_new(c: Collected) -> Figure:
    columns, lines = layouts.base_to_new(c)
    kept = [columns.index(name) for name in ("base", "new", "H_t2")]
    totals = [Line(line.label, tuple(line.cells[i] for i in kept)) for line in lines if not line.group]
    return _grouped(c, ["base classes", "new classes", "harmonic mean"], totals)


def _grouped(c: Collected, columns: list[str], lines: list[Line]) -> Figure:
    several = len(c.choices.models) > 1
    series = {f"{line.label}, {line.group}" if several else line.label: line.cells for line in lines}
    published = {
        name: [cell.published if cell is not None and cell.comparable else None for cell in cells]
        for name, cells in series.items()
    }
    return charts.bars(
        columns, {name: [_value(cell) for cell in cells] for name, cells in series.items()}, published
    )


def _value(cell: Cell | None) -> float | None:
    return None if cell is None else cell.measured


def _chosen(c: Collected) -> Figure:
    """For each number of shots, how often each pair of learning rate and lam was chosen."""
    grid = [options for row in c.rows for options in row.grid]
    lrs, lams = (list(dict.fromkeys(options[name] for options in grid)) for name in ("lr", "lam"))
    counts = []
    for shots in c.choices.shots:
        found = np.zeros((len(lrs), len(lams)))
        for p in c.planned:
            result = c.results.get(p.unit.spec())
            if p.unit.shots == shots and result is not None:
                found[lrs.index(result["chosen"]["lr"]), lams.index(result["chosen"]["lam"])] += 1
        counts.append(found)
    titles = [f"N = {tick}" for tick in _shots_ticks(c)]
    return charts.heat_maps(
        titles, counts, [power(lr) for lr in lrs], [f"{lam:g}" for lam in lams], ("learning rate", "lam")
    )


def _manifold(c: Collected) -> Figure:
    first = next(p for p in c.planned if p.unit.spec() in c.results)
    result = c.results[first.unit.spec()]
    stages = {"zero-shot": result["before"], f"after {first.unit.shots} shots": result["after"]}
    titles = [
        f"{title_of(first.unit.dataset)}, {stage}: accuracy {100 * found['accuracy']:.1f} %"
        for stage, found in stages.items()
    ]
    points = [found["points"] for found in stages.values()]
    return charts.scatters(titles, points, result["labels"], result["classes"])


def _subtitle(c: Collected, band: str = "seeds") -> str:
    names = (
        ", ".join(map(title_of, c.choices.datasets))
        if len(c.choices.datasets) <= 4
        else f"{len(c.choices.datasets)} datasets"
    )
    return f"{', '.join(c.choices.models)}; mean of {names}; band: deviation over {band}"
