"""The paper's figures, from the results of a run."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from prolip.core.errors import InputError, UsageError
from prolip.io.writing import write_atomic
from prolip.research.catalogue.experiment import Line
from prolip.research.catalogue.lines import power
from prolip.research.reporting import charts
from prolip.research.reporting.build_table import ECE, LAYOUTS
from prolip.research.reporting.charts import Panel, ScatterRow
from prolip.research.reporting.results import Estimate, Query, Results, shots_name, title_of
from prolip.research.reporting.table import Cell

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(results: Results) -> Figure:
    """Draw the figure of an experiment."""
    if not results.done:
        raise InputError(f"no run of {results.experiment.name} is done yet: there is nothing to draw")
    figure = CHART_KINDS[results.experiment.plot](results)
    if note := _missing_runs(results):
        wrapped = textwrap.wrap(note, int(14 * figure.get_figwidth()))
        figure.supxlabel("\n".join(wrapped), x=0.01, ha="left", fontsize=9, color=charts.RED)
    return figure


def save(figure: Figure, path: Path) -> None:
    """Write a .png, .pdf or .svg file atomically."""
    style = path.suffix.lower().lstrip(".")
    if style not in ("png", "pdf", "svg"):
        raise UsageError(f"{path}: a plot is a .png, .pdf or .svg file")
    write_atomic(path, lambda temporary: figure.savefig(temporary, format=style, dpi=130))


def _missing_runs(results: Results) -> str:
    """Return a note on the runs that are missing from a figure."""
    missing = len(results.runs) - len(results.done)
    if not missing:
        return ""
    parts = []
    for model in results.plan.models:
        for line in results.lines:
            runs = results.of(line, model)
            done = {one.run.dataset for one in runs if one.result is not None}
            if done < {one.run.dataset for one in runs}:
                has = ", ".join(title_of(name) for name in results.plan.datasets if name in done)
                parts.append(f"{results.group(model, line.label)}: {f'only {has}' if has else 'no dataset'}")
    more = [f"{len(parts) - 4} more lines lack datasets"] * (len(parts) > 5)
    parts = [*parts[:4], *more] if more else parts
    notes = "; ".join([f"Unfinished: {missing} of {len(results.runs)} runs are missing", *parts])
    return f"{notes}. Hollow marks are means of the runs that are done."


def _title(results: Results, *parts: str) -> str:
    """Return the title of a figure: the experiment, and below it what was run."""
    head = f"{results.experiment.title} ({results.experiment.where})"
    return f"{head}\n{'; '.join(part for part in parts if part)}"


def lines(results: Results) -> Figure:
    """Draw a line for each method over shots; where the table goes by datasets, a panel for each.

    Lines that have a `base` are drawn as the gain over it, because the accuracies overlap.
    """
    plan, by_key = results.plan, {line.key: line for line in results.lines}
    trained = [line for line in results.lines if line.trained]
    shown = [line for line in trained if line.in_figure] or trained
    pairs = [(line, by_key[line.base]) for line in shown if line.base in by_key]
    ticks = [shots_name(shots) for shots in plan.shots]
    band = "seeds" if pairs else results.experiment.band
    note = f"deviation over {band}" if band != "seeds" or len(plan.seeds) > 1 else ""
    models = ", ".join(plan.models)
    title = _title(results, models, _datasets(results), note)
    xlabel = "labelled images per class"
    if pairs:
        panels = []
        for model in plan.models:
            queries = [Query(model, plan.datasets, [shots]) for shots in plan.shots]
            series = {a.label: [results.gain(a, b, query) for query in queries] for a, b in pairs}
            panels.append(Panel(series, results.group(model), levels={"ProLIP alone": 0.0}))
        return charts.lines(ticks, panels, xlabel, "gain over ProLIP, points", title)
    if results.experiment.layout == "datasets" and len(plan.datasets) > 1:
        title = _title(results, models, note)
        panels = [_panel(results, shown, m, (name,), name) for m in plan.models for name in plan.datasets]
    else:
        panels = [_panel(results, shown, model, plan.datasets) for model in plan.models]
    return charts.lines(ticks, panels, xlabel, title=title)


def _panel(
    results: Results, shown: list[Line], model: str, datasets: Sequence[str], dataset: str | None = None
) -> Panel:
    """Return a panel of lines over shots on some datasets; `dataset` is the name of a single one."""
    queries = [Query(model, datasets, [shots]) for shots in results.plan.shots]
    estimate = results.estimate if results.experiment.band == "seeds" else results.deviation_over_settings
    series = {line.label: [estimate(line, query) for query in queries] for line in shown}
    published: dict[str, list[float | None]] = {}
    tested = None if dataset is None else datasets
    for line in shown:
        found = [results.figure(line, model, shots_name(n), dataset, tested) for n in results.plan.shots]
        if any(figure.value is not None and not figure.why for figure in found):
            published[line.label] = [None if figure.why else figure.value for figure in found]
    zero_shot = [(x.label, results.estimate(x, queries[0]).mean) for x in results.lines if not x.trained]
    levels = {label: mean for label, mean in zero_shot if mean is not None}
    return Panel(series, results.group(model, title_of(dataset or "")), published, levels)


def bars(results: Results) -> Figure:
    """Draw bars for each row of the table, a panel for each model; of base-to-new only the means."""
    plan, layout = results.plan, results.experiment.layout
    columns, rows = LAYOUTS[layout](results)
    subject = _datasets(results)
    kept = dict(zip(columns, columns, strict=True))  # the columns that are drawn, and their names
    if layout == "targets":
        subject = f"trained on {title_of(plan.datasets[0])}, {', '.join(map(shots_name, plan.shots))} shots"
    elif layout == "base_to_new":
        kept = {"base": "base classes", "new": "new classes", "H_t2": "harmonic mean of\nboth means (H_t2)"}
        rows = [row for row in rows if row.group in ("", *plan.models)]  # the others are single datasets
    elif layout == "shots":
        kept = {name: f"{name} shots" if name.isdigit() else name for name in columns if name != ECE}
    elif layout == "seconds":
        kept = {"seconds": "seconds"}
    places = [columns.index(name) for name in kept]
    rows = [replace(row, cells=tuple(row.cells[i] for i in places)) for row in rows]
    panels = []
    for group in dict.fromkeys(row.group for row in rows):
        mine = {row.label: [cell or Cell(None) for cell in row.cells] for row in rows if row.group == group}
        published = {
            name: [None if cell.why else cell.published for cell in cells] for name, cells in mine.items()
        }
        series = {
            name: [Estimate(cell.measured, cell.std, cell.missing) for cell in cells]
            for name, cells in mine.items()
        }
        panels.append(Panel(series, group, published))
    deviation = "deviation over seeds" if len(plan.seeds) > 1 else ""
    title = _title(results, ", ".join(plan.models), subject, deviation)
    return charts.bars(list(kept.values()), panels, title, seconds=layout == "seconds")


def heat_map(results: Results) -> Figure:
    """Draw a map of learning rate and lam for each number of shots.

    With a grid search, it shows how often each pair was chosen; otherwise the accuracy of each pair.
    """
    plan = results.plan
    shown = [line for line in results.lines if line.in_figure]
    searched = [options for line in shown for options in line.grid]
    pairs = searched or [line.options for line in shown]
    if not all({"lr", "lam"} <= options.keys() for options in pairs):
        return lines(results)
    lrs, lams = (list(dict.fromkeys(options[name] for options in pairs)) for name in ("lr", "lam"))
    maps: dict[str, Any] = {}
    for model in plan.models:
        for shots in plan.shots:
            values = np.full((len(lrs), len(lams)), 0.0 if searched else np.nan)
            if searched:
                found = [
                    result["chosen"]
                    for one, result in results.done
                    if (one.run.model, one.run.shots) == (model, shots) and one.run.grid
                ]
                for options in found:
                    values[lrs.index(options["lr"]), lams.index(options["lam"])] += 100 / len(found)
            else:
                for line in shown:
                    mean = results.estimate(line, Query(model, plan.datasets, [shots])).mean
                    place = lrs.index(line.options["lr"]), lams.index(line.options["lam"])
                    values[place] = np.nan if mean is None else mean
            name = results.group(model, f"N = {shots_name(shots)}")
            beside = [line for line in results.lines if line not in shown]
            means = [
                (x.label, results.estimate(x, Query(model, plan.datasets, [shots])).mean) for x in beside
            ]
            name += "".join(f"\n{label}: {mean:.1f}" for label, mean in means if mean is not None)
            maps[name] = values
    what = "percent of the searches" if searched else "accuracy, %"
    title = _title(results, ", ".join(plan.models), _datasets(results), what)
    rates = [power(lr) for lr in lrs]
    names = [f"{lam:g}" for lam in lams]
    return charts.heat_maps(maps, rates, names, ("learning rate", "lam"), title)


def scatter(results: Results) -> Figure:
    """Draw a row for each dataset, model and number of shots; of several seeds the first that is done."""
    rows: dict[tuple[Any, ...], ScatterRow] = {}
    for one, result in results.done:
        run = one.run
        stages = {"zero-shot": result["before"], f"after {run.shots} shots": result["after"]}
        name = results.group(run.model, title_of(run.dataset))
        points = {
            f"{name}, {stage}: accuracy {100 * found['accuracy']:.1f} %": found["points"]
            for stage, found in stages.items()
        }
        row = ScatterRow(points, result["labels"], result["classes"])
        rows.setdefault((run.dataset, run.model, run.shots), row)
    return charts.scatters(rows.values(), _title(results, ", ".join(results.plan.models), "UMAP"))


CHART_KINDS = {"lines": lines, "bars": bars, "heat_map": heat_map, "scatter": scatter}


def _datasets(results: Results) -> str:
    names = results.plan.datasets
    several = ", ".join(map(title_of, names)) if len(names) <= 4 else f"{len(names)} datasets"
    return f"mean of {several}" if len(names) > 1 else several
