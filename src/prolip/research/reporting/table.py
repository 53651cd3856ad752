"""The table of a run: measured figures in the shape of the paper's table, with the published ones.

A difference is shown only where it means something: the same program in the same setting (`Provenance`), the
same encoder, shots and datasets, all of them complete, and as many seeds. Other published figures stand
apart, with the reason.

`cells` has a row for each cell: mean, deviation, missing runs, the gain over another entry with its 95 %
interval, the published figure and why it does not compare. Formats are pandas' own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

from prolip.core.errors import UnknownNameError
from prolip.research.catalogue.experiment import Experiment
from prolip.research.places import find
from prolip.research.reporting.layouts import ECE, GROUP, LAYOUTS, Layout
from prolip.research.reporting.results import Results, shots_name, title_of

FORMATS = ("text", "latex", "csv")
_BEST = (r"\textbf{{{}}}", r"\underline{{{}}}")  # the best of a column in LaTeX, and the second best

_COLUMNS = (
    "group", "label", "entry", "column", "mean", "std", "missing", "gain", "interval", "gain_missing",
    "published", "published_std", "difference", "why",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Table:
    """A table for any format."""

    title: str
    cells: pd.DataFrame
    notes: tuple[str, ...] = ()
    unit: str = "%"
    digits: int = 2
    against: str = ""  # the label of the entry that gains are relative to

    def reasons(self) -> dict[str, int]:
        """Why published figures are not compared: a number for each reason."""
        return {
            why: number for number, why in enumerate(dict.fromkeys(self.cells["why"].explode().dropna()), 1)
        }

    def footnotes(self, with_published: bool = True) -> list[str]:
        """Return the notes, those on published figures included."""
        reasons = self.reasons().items() if with_published else ()
        return [*self.notes, *(f"[{number}] not compared: {why}" for why, number in reasons)]

    def render(self, style: str, with_published: bool = True, width: int | None = None) -> str:
        """Format the table as "text" (of this width), "latex" or "csv"."""
        if style not in FORMATS:
            raise UnknownNameError("format", style, FORMATS)
        if style == "csv":
            return self._csv(with_published)
        frame = self.frame(style == "latex", with_published)
        notes = self.footnotes(with_published)
        if style == "latex":
            latex: str = frame.rename(columns=_tex).to_latex(
                index=False, escape=False, caption=f"{_tex(self.title)}, {_tex(self.unit)}.",
                column_format="".join("r" if str(name).strip() else "l" for name in frame),
            )  # fmt: skip
            return "".join(f"% {note}\n" for note in notes) + latex
        names = [name for name in ("", " ") if name in frame]
        shown = frame.set_index(names).to_string(line_width=width, justify="right", index_names=False)
        return f"{self.title} ({self.unit})\n{shown}\n" + "".join(f"{note}\n" for note in notes)

    def frame(self, latex: bool = False, with_published: bool = True) -> pd.DataFrame:
        """Return the table as text: a row for each line, and others below it."""
        rows = []
        for group, members in self.cells.groupby("group", sort=False):
            best = _ranked(members) if self.unit == "%" and latex else {}
            for _, line in members.groupby("label", sort=False):
                heading = _tex(str(group)) if latex else group
                for title, texts in self._rows(latex, line, best, with_published):
                    rows.append({"": heading, " ": title, **texts})
                    heading = ""
        columns = dict.fromkeys(self.cells["column"])
        frame = pd.DataFrame(rows, columns=["", " ", *columns]).fillna("-")
        return frame if frame[""].any() else frame.drop(columns="")

    def _rows(
        self, latex: bool, line: pd.DataFrame, best: dict[int, int], with_published: bool
    ) -> Iterator[tuple[str, dict[str, str]]]:
        """Yield title and texts of a line's rows."""
        escape, indent, plain = (_tex, r"\quad ", r"\textit{{{}}}") if latex else (str, "", "{}")
        cells = list(line.itertuples())

        def number(value: str, deviation: str = "", missing: str = "", sign: str = "") -> dict[str, str]:
            """Return the texts of a figure by column, with a star where runs are missing."""
            texts = {}
            for cell in cells:
                spread, star = getattr(cell, deviation, math.nan), "*" * (getattr(cell, missing, 0) > 0)
                texts[cell.column] = _number(latex, getattr(cell, value), spread, self.digits, sign, star)
            return texts

        means = number("mean", "std", "missing")
        yield (
            escape(cells[0].label),
            means
            | {
                cell.column: _BEST[best[cell.Index]].format(means[cell.column])
                for cell in cells
                if cell.Index in best
            },
        )
        if self.against and line["gain"].notna().any():
            gains = number("gain", "interval", "gain_missing", "+")
            significant = [cell.column for cell in cells if latex and abs(cell.gain) > cell.interval]
            bold = {column: _BEST[0].format(gains[column]) for column in significant}
            yield f"{indent}against {escape(self.against)}", gains | bold
        if with_published and line["published"].notna().any():
            reasons = [self.reasons()[why] for why in line["why"].explode().dropna().unique()]
            marks = f" [{', '.join(map(str, sorted(reasons)))}]" if reasons else ""
            yield f"{indent}{plain.format(f'published{marks}')}", number("published", "published_std")
        if with_published and line["difference"].notna().any() and not latex:
            yield "difference", number("difference", sign="+")

    def _csv(self, with_published: bool) -> str:
        frame = self.cells.assign(why=self.cells["why"].map("; ".join))
        if not with_published:
            frame = frame.drop(columns=["published", "published_std", "difference", "why"])
        text: str = frame.to_csv(index=False, float_format="%.4f")
        return text


def build(results: Results) -> Table:
    """Build the table of a run."""
    experiment, layout = results.experiment, find("layout", results.experiment.layout, LAYOUTS)
    values = layout.values(results)
    cells = summarise(values, results)
    if results.against is not None:
        cells = cells.join(gains(values, results.against.key), on=GROUP)
    cells = _with_published(cells, results, layout)
    notes = tuple(_notes(results, {*cells["column"]}))
    against = results.against.label if results.against else ""
    if experiment.note:
        notes += (experiment.note,)
    return Table(results.title(), cells, notes, layout.unit, layout.digits, against)


def summarise(values: pd.DataFrame, results: Results) -> pd.DataFrame:
    """Average settings, then seeds, then datasets, for each cell.

    The deviation is that of the paper's program: over the seeds of each dataset (NumPy's, with n below the
    root), and the mean of these over datasets; or over settings, where the experiment says learning rates.
    """
    draws = values.groupby([*GROUP, "dataset", "seed"], sort=False)["value"].mean()
    seeds = draws.groupby([*GROUP, "dataset"], sort=False)
    datasets = pd.DataFrame({"mean": seeds.mean(), "std": seeds.std(ddof=0)})
    datasets.loc[seeds.count() < 2, "std"] = math.nan
    cells = datasets.groupby(GROUP, sort=False).mean()
    grouped = values.groupby(GROUP, sort=False)
    cells["std"] = cells["std"].where(grouped["trained"].any())
    if results.experiment.deviation != "seeds":
        averaged = {entry.key for entry in results.entries if len(entry.averaged_over) > 1}
        own = values[values["entry"].isin(averaged)]
        settings = own.groupby([*GROUP, "setting", "dataset"], sort=False)["value"].mean()
        over = settings.groupby([*GROUP, "setting"], sort=False).mean().groupby(GROUP, sort=False).std(ddof=0)
        cells["std"] = over.reindex(cells.index)
    cells["missing"] = grouped["value"].apply(lambda column: int(column.isna().sum()))
    # A run that is not trained is repeated for every seed, and counts once.
    cells.loc[~grouped["trained"].any(), "missing"] = cells["missing"].clip(upper=1)
    cells["shots"] = grouped["shots"].first() if "shots" in values else ""
    return _in_order(cells.reset_index(), results)


def gains(values: pd.DataFrame, base: str) -> pd.DataFrame:
    """Return the mean paired difference to an entry by cell, and half of its 95 % interval.

    Differences are of the same datasets, shots and seeds; the interval is Student's t over seeds.
    """
    keys = ["model", "about", "column", "shots"]
    draws = values.groupby([*keys, "dataset", "seed", "entry", "row"], sort=False)["value"].mean()
    mine = draws.reset_index()
    theirs = mine[mine["entry"] == base].drop(columns=["entry", "row"]).rename(columns={"value": "theirs"})
    pairs = mine[mine["entry"] != base].merge(theirs, on=[*keys, "dataset", "seed"], how="left")
    pairs["gain"] = pairs["value"] - pairs["theirs"]
    seeds = pairs.dropna(subset="gain").groupby([*GROUP, "seed"], sort=False)["gain"].mean().groupby(GROUP)
    spread = pd.DataFrame({"gain": seeds.mean(), "interval": seeds.agg(interval)})
    return spread.assign(gain_missing=pairs["gain"].isna().groupby([pairs[name] for name in GROUP]).sum())


def interval(values: pd.Series) -> float:
    """Compute half the width of the mean's 95 % interval, by Student's t; NaN of a single value."""
    from scipy.special import stdtrit

    return float(stdtrit(len(values) - 1, 0.975)) * float(values.sem()) if len(values) > 1 else math.nan


def _in_order(cells: pd.DataFrame, results: Results) -> pd.DataFrame:
    """Sort models, groups and rows as they were planned, and name the groups."""
    order = {
        "model": results.plan.models,
        "about": dict.fromkeys(["", *results.plan.datasets, *cells["about"]]),
        "entry": [entry.key for entry in results.entries],
    }
    cells = cells.sort_values(
        list(order), key=lambda column: column.map({name: k for k, name in enumerate(order[column.name])}),
        kind="stable", ignore_index=True,
    )  # fmt: skip
    cells["group"] = [results.group(*pair) for pair in zip(cells["model"], cells["about"], strict=True)]
    return cells.rename(columns={"row": "label"}).assign(row=cells["row"])


def _with_published(cells: pd.DataFrame, results: Results, layout: Layout) -> pd.DataFrame:
    entries = {entry.key: entry for entry in results.entries}
    rows_have_shots = results.experiment.layout in ("targets", "base_to_new")
    figures = []
    for cell in cells.itertuples():
        columns, tested = layout.published(results, cell.model, cell.about, cell.column)
        if cell.about and cell.about not in results.plan.datasets:
            columns = []
        shots = cell.shots if rows_have_shots else None
        place = entries[cell.entry], cell.model, columns, cell.about or None, tested, shots
        figures.append(results.published_figure(*place))
    cells[["published", "why", "published_std"]] = pd.DataFrame(figures, index=cells.index)
    comparable = (cells["why"].map(len) == 0) & (cells["missing"] == 0)
    cells["difference"] = (cells["mean"] - cells["published"]).where(comparable)
    return complete(cells)


def complete(cells: pd.DataFrame) -> pd.DataFrame:
    """Return cells with every column that a table reads, in one order."""
    cells = cells.reindex(columns=_COLUMNS).reset_index(drop=True)
    cells["why"] = [why if isinstance(why, tuple) else () for why in cells["why"]]
    return cells.fillna({"group": "", "missing": 0, "gain_missing": 0})


def _notes(results: Results, columns: set[str]) -> Iterator[str]:
    plan, experiment = results.plan, results.experiment
    sources = ", ".join(map(title_of, plan.datasets[:1] if experiment.targets else plan.datasets))
    counts = ", ".join(map(shots_name, plan.shots))
    parts = [", ".join(plan.models), sources, f"shots {counts}", f"seeds {' '.join(map(str, plan.seeds))}"]
    parts.append(f"views {plan.views}")
    if rules := dict.fromkeys(run.validation for run in plan.runs if run.validation != "none"):
        parts.append(f"validation {', '.join(rules)}")
    yield "; ".join(parts)
    theirs = {*experiment.datasets, *experiment.targets} & {*plan.datasets}
    of_the_paper = theirs and not experiment.reference.endswith(("repository", "repositories"))
    if experiment.published and of_the_paper and experiment.views > 1 and plan.views < 300:
        yield f"{plan.views} of the paper's 300 views"
    if experiment.deviation != "seeds":
        yield f"±: standard deviation over {experiment.deviation} (of n, not n - 1)"
    elif len(plan.seeds) > 1:
        yield (
            "±: standard deviation over seeds (of n, not n - 1) of each dataset, and the mean of these over "
            "datasets, as the paper's"
        )
    if ECE in columns:
        yield f"{ECE}: expected calibration error, 15 bins, the mean over all shots"
    if results.against:
        yield (
            f"against {results.against.label}: mean difference on the same datasets, shots and seeds, ± half "
            "its 95 % interval (Student's t over seeds); bold where the interval excludes zero"
        )
    if waiting := sum(one.result is None and one.error is None for one in results.runs):
        yield f"* {waiting} of {len(results.runs)} runs are not done yet"
    for entry in results.entries:
        failed = [one for one in results.runs if one.run.entry == entry.key and one.error]
        if failed:
            last = (failed[-1].error or "").strip().splitlines() or ["?"]
            yield f"{entry.label}: {len(failed)} runs failed, like: {last[-1]}"
    for entry in results.entries:
        done = [one.result for one in results.runs if one.run.entry == entry.key and one.result]
        if short := sum(result.get("converged") is False for result in done):
            yield f"{entry.label}: {short} of {len(done)} fits ended before they were at a minimum"
    if plan.unavailable:
        yield f"not available here: {', '.join(plan.unavailable)}"


def parameters(experiment: Experiment) -> Table:
    """Count trained parameters in millions: ProLIP's for each backbone, and every method's on ImageNet."""
    from prolip.research.catalogue.parameters import counted

    cells = complete(pd.DataFrame(counted()).assign(column="parameters", entry=""))
    note = "Of methods that train inside a tower, those whose size the paper states."
    title = f"{experiment.title} ({experiment.reference})"
    return Table(title, cells, (note, experiment.note), unit="millions", digits=3)


def _ranked(cells: pd.DataFrame) -> dict[int, int]:
    """Return which cells are the best (0) and second best (1) of their columns, of finished ones."""
    places: dict[int, int] = {}
    finished = cells[(cells["missing"] == 0) & cells["mean"].notna()]
    for column, group in finished.groupby("column", sort=False):
        if len(cells["label"].unique()) > 1:
            ranks = group["mean"].round(2).rank(method="dense", ascending=column == ECE)
            places |= {index: int(rank) - 1 for index, rank in ranks.items() if rank <= 2}
    return places


def _number(latex: bool, value: float, deviation: float, digits: int, sign: str, star: str) -> str:
    if math.isnan(value):
        return "-"
    mark = r" $\pm$ " if latex else " ± "
    spread = "" if math.isnan(deviation) else f"{mark}{deviation:.{digits}f}"
    return f"{value:{sign}.{digits}f}{spread}{star}"


_TEX = {c: rf"\{c}" for c in "%&#_{}$"} | {"^": r"\^{}", "~": r"\~{}", "\\": r"\textbackslash{}"}
_TEX |= {"<": "$<$", ">": "$>$", "±": r"$\pm$"}


def _tex(text: str) -> str:
    return "".join(_TEX.get(letter, letter) for letter in text)
