"""The paper's figures, from the results of a run."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from prolip.bench import charts, layouts
from prolip.bench.cells import Cell, Line
from prolip.bench.charts import Cloud, Panel, Points
from prolip.bench.collect import Collected, title_of
from prolip.bench.experiment import Row
from prolip.bench.rows import power
from prolip.core.errors import InputError, UsageError
from prolip.core.files import write_atomic
from prolip.evaluate.curve_plot import plot_format

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOTS = "labelled images per class"


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
    style = plot_format(path)
    write_atomic(path, lambda temporary: figure.savefig(temporary, format=style, dpi=130))


def _shots_ticks(c: Collected) -> list[str]:
    return [layouts.shots_name(shots) for shots in c.choices.shots]


def _accuracy(result: dict[str, Any]) -> float | None:
    return result.get("accuracy")


def _level(c: Collected, model: str, datasets: Sequence[str]) -> dict[str, float]:
    """Zero-shot accuracy over datasets, where it was measured."""
    for row in c.rows:
        if not row.trained:
            mean, _, _ = c.mean(row, model, datasets, None, _accuracy)
            if mean is not None:
                return {row.label: mean}
    return {}


def _each_model(
    c: Collected, series_of: Callable[[str], dict[str, Points]], levels: bool = True
) -> list[Panel]:
    """A panel for each model of the run, its name above where there are several."""
    return [
        Panel(
            series_of(model),
            layouts.group_name(c, model),
            levels=_level(c, model, c.choices.datasets) if levels else {},
        )
        for model in c.choices.models
    ]


def _curves(c: Collected) -> Figure:
    """A line for each method over shots; where the table goes by datasets, a panel for each."""
    each = c.experiment.layout == "datasets" and len(c.choices.datasets) > 1
    groups = [(name,) for name in c.choices.datasets] if each else [c.choices.datasets]
    panels = [_curve_panel(c, model, group, each) for model in c.choices.models for group in groups]
    title = f"{', '.join(c.choices.models)}{_band(c)}" if each else _subtitle(c)
    return charts.lines(_shots_ticks(c), panels, SHOTS, title=title)


def _curve_panel(c: Collected, model: str, datasets: Sequence[str], each: bool) -> Panel:
    trained = [row for row in c.rows if row.trained]
    series = {
        row.label: [c.mean(row, model, datasets, shots, _accuracy)[:2] for shots in c.choices.shots]
        for row in trained
    }
    dataset = title_of(datasets[0]) if each else None
    published: dict[str, list[float | None]] = {}
    if c.comparable(model, datasets if each else None):
        for row in trained:
            figures = [c.figure(row, model, tick, dataset) for tick in _shots_ticks(c)]
            if any(value is not None for value in figures):
                published[row.label] = figures
    title = layouts.group_name(c, model, dataset or "")
    return Panel(series, title, published, _level(c, model, datasets))


def _sensitivity(c: Collected) -> Figure:
    """A panel for each number of shots: accuracy over learning rates, a line for each lam."""
    lams = list(dict.fromkeys(row.options["lam"] for row in c.rows))
    lrs = sorted({row.options["lr"] for row in c.rows})
    by = {(row.options["lam"], row.options["lr"]): row for row in c.rows}

    def point(model: str, lam: float, lr: float, shots: int | None) -> tuple[float | None, float | None]:
        if (lam, lr) not in by:
            return None, None
        return c.mean(by[lam, lr], model, c.choices.datasets, shots, _accuracy)[:2]

    panels = [
        Panel(
            {f"lam = {lam:g}": [point(model, lam, lr, shots) for lr in lrs] for lam in lams},
            layouts.group_name(c, model, f"N = {tick}"),
            levels=_level(c, model, c.choices.datasets),
        )
        for model in c.choices.models
        for tick, shots in zip(_shots_ticks(c), c.choices.shots, strict=True)
    ]
    ticks, wide = [power(lr) for lr in lrs], len(c.choices.shots)
    return charts.lines(ticks, panels, "learning rate", title=_subtitle(c), columns=wide, share=True)


def _variants(c: Collected) -> Figure:
    """Lines that are means over learning rates, with the deviation over them; and the exact ones."""
    shown = [
        row for row in c.rows if row.trained and (len(row.over) > 1 or row.options.get("solver") == "exact")
    ]
    if not shown:
        return _curves(c)
    panels = _each_model(
        c,
        lambda model: {
            row.label: [_over_settings(c, row, model, shots) for shots in c.choices.shots] for row in shown
        },
    )
    return charts.lines(_shots_ticks(c), panels, SHOTS, title=_subtitle(c, "learning rates"))


def _over_settings(
    c: Collected, row: Row, model: str, shots: int | None
) -> tuple[float | None, float | None]:
    """Mean and deviation over the settings of a line."""
    values = c.grouped(row, model, shots, lambda unit: str(unit.options))
    means = list(values.values())
    return (statistics.fmean(means), statistics.pstdev(means)) if means else (None, None)


def _gains(c: Collected) -> Figure:
    """What each line adds to the ProLIP line above it: the accuracies themselves lie on each other."""
    pairs: list[tuple[Row, Row]] = []
    base: Row | None = None
    for row in c.rows:
        if row.method == "prolip":
            base = row
        elif row.trained and base is not None:
            pairs.append((row, base))
    if not pairs:
        return _curves(c)

    def series_of(model: str) -> dict[str, Points]:
        return {
            row.label: [_gain(c, row, alone, model, shots) for shots in c.choices.shots]
            for row, alone in pairs
        }

    panels = [
        replace(panel, levels={"ProLIP alone": 0.0}) for panel in _each_model(c, series_of, levels=False)
    ]
    return charts.lines(_shots_ticks(c), panels, SHOTS, ylabel="gain over ProLIP, points", title=_subtitle(c))


def _gain(
    c: Collected, row: Row, base: Row, model: str, shots: int | None
) -> tuple[float | None, float | None]:
    """Mean and deviation over seeds of the difference between two lines."""
    ours, theirs = (c.grouped(line, model, shots, lambda unit: unit.seed) for line in (row, base))
    gains = [ours[seed] - theirs[seed] for seed in ours if seed in theirs]
    return (statistics.fmean(gains), statistics.pstdev(gains)) if gains else (None, None)


def _views(c: Collected) -> Figure:
    """Accuracy over the number of views, a line for each number of shots."""

    def series_of(model: str) -> dict[str, Points]:
        return {
            f"{tick} shot{'' if tick == '1' else 's'}": [
                c.mean(row, model, c.choices.datasets, shots, _accuracy)[:2] for row in c.rows
            ]
            for tick, shots in zip(_shots_ticks(c), c.choices.shots, strict=True)
        }

    ticks = [str(row.views) for row in c.rows]
    return charts.lines(ticks, _each_model(c, series_of), "views of each image", title=_subtitle(c))


def _bars(c: Collected) -> Figure:
    if c.experiment.layout == "targets":
        columns, lines = layouts.targets(c)
        title = f"trained on {title_of(c.choices.datasets[0])}"
    else:
        columns, lines = layouts.shots(c)
        columns = [f"{name} shots" if name.isdigit() else name for name in columns]
        title = f"mean of {_datasets(c)}"
    return _grouped(c, columns, lines, title)


def _base_to_new(c: Collected) -> Figure:
    columns, lines = layouts.base_to_new(c)
    kept = [columns.index(name) for name in ("base", "new", "H_t2")]
    means = ("", *c.choices.models)  # the other groups are single datasets
    totals = [
        Line(line.label, tuple(line.cells[i] for i in kept), line.group)
        for line in lines
        if line.group in means
    ]
    return _grouped(c, ["base classes", "new classes", "harmonic mean"], totals, f"mean of {_datasets(c)}")


def _grouped(c: Collected, columns: list[str], lines: list[Line], about: str) -> Figure:
    """Bars for each line of a table; a panel for each model."""
    panels = []
    for group in dict.fromkeys(line.group for line in lines):
        mine = {line.label: line.cells for line in lines if line.group == group}
        series = {name: [(_value(cell), None) for cell in cells] for name, cells in mine.items()}
        published = {
            name: [cell.published if cell is not None and cell.comparable else None for cell in cells]
            for name, cells in mine.items()
        }
        panels.append(Panel(series, group, published))
    several = len(c.choices.models) > 1
    return charts.bars(columns, panels, about if several else f"{c.choices.models[0]}; {about}")


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
    names = (", ".join(c.choices.models), _datasets(c))
    return charts.heat_maps(
        [f"N = {tick}" for tick in _shots_ticks(c)],
        counts,
        [power(lr) for lr in lrs],
        [f"{lam:g}" for lam in lams],
        ("learning rate", "lam"),
        f"{'; '.join(names)}; percent of the searches",
    )


def _manifold(c: Collected) -> Figure:
    """A row for each dataset, model and number of shots; of several seeds the first that is done."""
    clouds: dict[tuple[Any, ...], Cloud] = {}
    for p in c.planned:
        result, unit = c.results.get(p.unit.spec()), p.unit
        if result is not None and (unit.dataset, p.model, unit.shots) not in clouds:
            name = layouts.group_name(c, p.model, title_of(unit.dataset))
            stages = {"zero-shot": result["before"], f"after {unit.shots} shots": result["after"]}
            titles = {
                f"{name}, {stage}: accuracy {100 * found['accuracy']:.1f} %": found["points"]
                for stage, found in stages.items()
            }
            cloud = Cloud(titles, result["labels"], result["classes"])
            clouds[unit.dataset, p.model, unit.shots] = cloud
    return charts.scatters(list(clouds.values()))


def _subtitle(c: Collected, band: str = "seeds") -> str:
    return f"{', '.join(c.choices.models)}; mean of {_datasets(c)}{_band(c, band)}"


def _band(c: Collected, over: str = "seeds") -> str:
    """What bands show, where there are any."""
    return f"; band: deviation over {over}" if over != "seeds" or len(c.choices.seeds) > 1 else ""


def _datasets(c: Collected) -> str:
    names = c.choices.datasets
    return ", ".join(map(title_of, names)) if len(names) <= 4 else f"{len(names)} datasets"
