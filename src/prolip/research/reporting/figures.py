"""The paper's figures, from the results of a run."""

from __future__ import annotations

import statistics
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from prolip.core.errors import InputError
from prolip.evaluate.curve_plot import plot_format
from prolip.io.writing import write_atomic
from prolip.research.catalogue.experiment import Line
from prolip.research.catalogue.lines import power
from prolip.research.reporting import charts, layouts
from prolip.research.reporting.charts import Cloud, Mark, Marks, Panel
from prolip.research.reporting.plot_style import RED
from prolip.research.reporting.results import Estimate, Question, Results, title_of
from prolip.research.reporting.table import Cell, TableRow

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOTS = "labelled images per class"


def draw(c: Results) -> Figure:
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
    if not c.done:
        raise InputError(f"no run of {c.experiment.name} is done yet: there is nothing to draw")
    figure = kinds[c.experiment.plot](c)
    if note := _unfinished(c):
        figure.supxlabel("\n".join(textwrap.wrap(note, 110)), x=0.01, ha="left", fontsize=9, color=RED)
    return figure


def _unfinished(c: Results) -> str:
    """What is missing from a figure, where anything is."""
    missing = len(c.units) - len(c.done)
    if not missing:
        return ""
    parts = []
    for model in c.choices.models:
        for line in c.lines:
            asked, done = (
                {u.planned.unit.dataset for u in c.of(line, model) if not ended or u.result is not None}
                for ended in (False, True)
            )
            if done < asked:
                has = ", ".join(title_of(name) for name in c.choices.datasets if name in done) or "none"
                parts.append(f"{layouts.group_name(c, model, line.label)}: of the datasets only {has}")
    notes = "; ".join([f"Unfinished: {missing} of {len(c.units)} runs are missing", *parts])
    return f"{notes}. Hollow marks are means of the runs that are done."


def save(figure: Figure, path: Path) -> None:
    """Write a .png, .pdf or .svg, whole or not at all."""
    style = plot_format(path)
    write_atomic(path, lambda temporary: figure.savefig(temporary, format=style, dpi=130))


def _shots_ticks(c: Results) -> list[str]:
    return [layouts.shots_name(shots) for shots in c.choices.shots]


def _mark(found: Estimate) -> Mark:
    return Mark(found.mean, found.std, found.missing > 0)


def _over_shots(c: Results, line: Line, model: str, datasets: Sequence[str]) -> Marks:
    return [_mark(c.estimate(line, Question(model, datasets, [shots]))) for shots in c.choices.shots]


def _level(c: Results, model: str, datasets: Sequence[str]) -> dict[str, float]:
    """Zero-shot accuracy over datasets, where it was measured."""
    zero_shot = {
        line.label: c.estimate(line, Question(model, datasets)).mean for line in c.lines if not line.trained
    }
    return {label: mean for label, mean in zero_shot.items() if mean is not None}


def _each_model(
    c: Results, series_of: Callable[[str], dict[str, Marks]], levels: dict[str, float] | None = None
) -> list[Panel]:
    """A panel for each model of the run, its name above where there are several."""
    means = [_level(c, model, c.choices.datasets) if levels is None else levels for model in c.choices.models]
    return [
        Panel(series_of(model), layouts.group_name(c, model), levels=level)
        for model, level in zip(c.choices.models, means, strict=True)
    ]


def _curves(c: Results) -> Figure:
    """A line for each method over shots; where the table goes by datasets, a panel for each."""
    each = c.experiment.layout == "datasets" and len(c.choices.datasets) > 1
    groups = [(name,) for name in c.choices.datasets] if each else [c.choices.datasets]
    panels = [_curve_panel(c, model, group, each) for model in c.choices.models for group in groups]
    title = f"{', '.join(c.choices.models)}{_band(c)}" if each else _subtitle(c)
    return charts.lines(_shots_ticks(c), panels, SHOTS, title=title)


def _curve_panel(c: Results, model: str, datasets: Sequence[str], each: bool) -> Panel:
    trained = [line for line in c.lines if line.trained]
    series = {line.label: _over_shots(c, line, model, datasets) for line in trained}
    dataset = title_of(datasets[0]) if each else None
    published: dict[str, list[float | None]] = {}
    if c.comparable(model, datasets if each else None):
        for line in trained:
            figures = [c.figure(line, model, tick, dataset) for tick in _shots_ticks(c)]
            if any(value is not None for value in figures):
                published[line.label] = figures
    title = layouts.group_name(c, model, dataset or "")
    return Panel(series, title, published, _level(c, model, datasets))


def _sensitivity(c: Results) -> Figure:
    """A panel for each number of shots: accuracy over learning rates, a line for each lam."""
    if not all({"lam", "lr"} <= line.setting.options.keys() for line in c.lines):
        return _curves(c)
    by = {(line.setting.options["lam"], line.setting.options["lr"]): line for line in c.lines}
    lams, lrs = list(dict.fromkeys(lam for lam, _ in by)), sorted({lr for _, lr in by})
    panels = []
    for model in c.choices.models:
        marks = {at: _over_shots(c, line, model, c.choices.datasets) for at, line in by.items()}
        for i, tick in enumerate(_shots_ticks(c)):
            series = {
                f"lam = {lam:g}": [marks[lam, lr][i] if (lam, lr) in by else Mark(None) for lr in lrs]
                for lam in lams
            }
            panels.append(Panel(series, layouts.group_name(c, model, f"N = {tick}")))
    ticks, wide = [power(lr) for lr in lrs], len(c.choices.shots)
    return charts.lines(ticks, panels, "learning rate", title=_subtitle(c), columns=wide, share=True)


def _variants(c: Results) -> Figure:
    """Lines that are means over learning rates, with the deviation over them; and the exact ones."""
    shown = [
        line
        for line in c.lines
        if line.trained and (len(line.over) > 1 or line.setting.options.get("solver") == "exact")
    ]
    if not shown:
        return _curves(c)
    panels = _each_model(
        c,
        lambda model: {
            line.label: [_over_settings(c, line, model, shots) for shots in c.choices.shots] for line in shown
        },
    )
    return charts.lines(_shots_ticks(c), panels, SHOTS, title=_subtitle(c, "learning rates"))


def _over_settings(c: Results, line: Line, model: str, shots: int | None) -> Mark:
    """Mean and deviation over the settings of a line."""
    units = c.of(line, model, [shots])
    found: dict[str, list[float]] = {}
    for unit in units:
        if unit.result is not None:
            options = str(unit.planned.unit.trial.setting.options)
            found.setdefault(options, []).append(100 * unit.result["accuracy"])
    if not found:
        return Mark(None)
    means = [statistics.fmean(values) for values in found.values()]
    partial = any(unit.result is None for unit in units)
    return Mark(statistics.fmean(means), statistics.pstdev(means), partial)


def _gains(c: Results) -> Figure:
    """What each line adds to the ProLIP line above it: the accuracies themselves lie on each other."""
    pairs: list[tuple[Line, Line]] = []
    base: Line | None = None
    for line in c.lines:
        if line.setting.method == "prolip":
            base = line
        elif line.trained and base is not None:
            pairs.append((line, base))
    if not pairs:
        return _curves(c)

    def series_of(model: str) -> dict[str, Marks]:
        asked = [Question(model, c.choices.datasets, [shots]) for shots in c.choices.shots]
        return {line.label: [_mark(c.gain(line, alone, q)) for q in asked] for line, alone in pairs}

    panels = _each_model(c, series_of, {"ProLIP alone": 0.0})
    return charts.lines(_shots_ticks(c), panels, SHOTS, ylabel="gain over ProLIP, points", title=_subtitle(c))


def _views(c: Results) -> Figure:
    """Accuracy over the number of views, a line for each number of shots."""
    if not all(line.views for line in c.lines):
        return _curves(c)

    def series_of(model: str) -> dict[str, Marks]:
        names = [f"{tick} shot{'' if tick == '1' else 's'}" for tick in _shots_ticks(c)]
        marks = zip(*(_over_shots(c, line, model, c.choices.datasets) for line in c.lines), strict=True)
        return dict(zip(names, marks, strict=True))

    ticks = [str(line.views) for line in c.lines]
    return charts.lines(ticks, _each_model(c, series_of), "views of each image", title=_subtitle(c))


def _bars(c: Results) -> Figure:
    if c.experiment.layout == "targets":
        columns, rows = layouts.targets(c)
        title = f"trained on {title_of(c.choices.datasets[0])}"
    else:
        columns, rows = layouts.shots(c)
        columns = [f"{name} shots" if name.isdigit() else name for name in columns]
        title = f"mean of {_datasets(c)}"
    return _grouped(c, columns, rows, title)


def _base_to_new(c: Results) -> Figure:
    columns, rows = layouts.base_to_new(c)
    kept = [columns.index(name) for name in ("base", "new", "H_t2")]
    means = ("", *c.choices.models)  # the other groups are single datasets
    totals = [replace(row, cells=tuple(row.cells[i] for i in kept)) for row in rows if row.group in means]
    return _grouped(c, ["base classes", "new classes", "harmonic mean"], totals, f"mean of {_datasets(c)}")


def _grouped(c: Results, columns: list[str], rows: list[TableRow], about: str) -> Figure:
    """Bars for each row of a table; a panel for each model."""
    panels = []
    for group in dict.fromkeys(row.group for row in rows):
        mine = {row.label: row.cells for row in rows if row.group == group}
        published = {
            name: [cell.published if cell is not None and cell.comparable else None for cell in cells]
            for name, cells in mine.items()
        }
        panels.append(Panel({name: list(map(_bar, cells)) for name, cells in mine.items()}, group, published))
    several = len(c.choices.models) > 1
    return charts.bars(columns, panels, about if several else f"{c.choices.models[0]}; {about}")


def _bar(cell: Cell | None) -> Mark:
    return Mark(None) if cell is None else Mark(cell.measured, None, cell.missing > 0)


def _chosen(c: Results) -> Figure:
    """For each number of shots, how often each pair of learning rate and lam was chosen."""
    grid = [options for line in c.lines for options in line.setting.grid]
    lrs, lams = (list(dict.fromkeys(options[name] for options in grid)) for name in ("lr", "lam"))
    counts = []
    for shots in c.choices.shots:
        found = np.zeros((len(lrs), len(lams)))
        for unit, result in c.done:
            if unit.planned.unit.trial.shots == shots and unit.planned.unit.trial.setting.grid:
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


def _manifold(c: Results) -> Figure:
    """A row for each dataset, model and number of shots; of several seeds the first that is done."""
    clouds: dict[tuple[Any, ...], Cloud] = {}
    for done, result in c.done:
        unit, model = done.planned.unit, done.planned.model
        key = (unit.dataset, model, unit.trial.shots)
        if key not in clouds:
            name = layouts.group_name(c, model, title_of(unit.dataset))
            stages = {"zero-shot": result["before"], f"after {unit.trial.shots} shots": result["after"]}
            titles = {
                f"{name}, {stage}: accuracy {100 * found['accuracy']:.1f} %": found["points"]
                for stage, found in stages.items()
            }
            clouds[key] = Cloud(titles, result["labels"], result["classes"])
    return charts.scatters(list(clouds.values()))


def _subtitle(c: Results, band: str = "seeds") -> str:
    return f"{', '.join(c.choices.models)}; mean of {_datasets(c)}{_band(c, band)}"


def _band(c: Results, over: str = "seeds") -> str:
    """What bands show, where there are any."""
    return f"; band: deviation over {over}" if over != "seeds" or len(c.choices.seeds) > 1 else ""


def _datasets(c: Results) -> str:
    names = c.choices.datasets
    return ", ".join(map(title_of, names)) if len(names) <= 4 else f"{len(names)} datasets"
