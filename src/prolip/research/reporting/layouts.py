"""The shapes of tables. A layout turns results into values: which of them belong into which cell.

A layout returns a data frame with a row for each value and cell that it counts in:

    model, about    the group of rows: a model, and the dataset that the rows are about ("" for a mean)
    entry, row      the entry, and the label of its row
    column          the column
    dataset, seed, setting       what the value is of: averaged settings first, then seeds, then datasets
    value           in the table's unit, NaN where the run is not done
    trained         whether seeds make a difference

An `Experiment` has the name of one of LAYOUTS, or the place of another: "package.module:NAME".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pandas as pd

from prolip.research.catalogue.published import paper_model, published
from prolip.research.protocols.protocols import harmonic_mean, total_harmonic_means
from prolip.research.reporting.results import STAGES, Results, shots_name, title_of

GROUP = ["model", "about", "entry", "row", "column"]
ECE = "ECE"  # the column of the expected calibration error
LOSS = "OOD difference"  # the column of the gain over an entry's `gain_over`


@dataclass(frozen=True)
class Layout:
    """How values become a table."""

    values: Callable[[Results], pd.DataFrame]
    # Columns of published figures by ours, and the datasets that a figure is about.
    published: Callable[[Results, str, str, str], tuple[Sequence[str], Sequence[str] | None]] = (
        lambda results, model, about, column: ([column], [about] if about else None)
    )
    unit: str = "%"
    digits: int = 2


def values_of(
    frame: pd.DataFrame, measure: str, column: str | pd.Series, percent: bool = True
) -> pd.DataFrame:
    """Return values of a measure in a column, or in the columns that a series names."""
    names = {"label": "row", "options": "setting"}
    kept = frame[["model", "entry", "shots", "dataset", "seed", "trained", *names]].rename(columns=names)
    return kept.assign(about="", column=column, value=frame[measure] * (100 if percent else 1))


def by_shots(results: Results) -> pd.DataFrame:
    """Return a column for each number of shots, and the mean over them where the paper has it."""
    draws = results.draws
    parts = [values_of(draws, "accuracy", draws["shots"])]
    paper = _published_columns(results)
    if results.experiment.columns.get("average", "average") in paper and len(results.plan.shots) > 1:
        # Only where every number of shots has a figure.
        complete = parts[0].groupby(["model", "entry", "column"])["value"].transform("count") > 0
        all_done = complete.groupby([parts[0]["model"], parts[0]["entry"]]).transform("all")
        parts.append(parts[0][all_done].assign(column="average"))
    if draws["calibration_error"].notna().any():
        parts.append(values_of(draws, "calibration_error", ECE))
    return pd.concat(parts, ignore_index=True)


def by_dataset(results: Results) -> pd.DataFrame:
    """Return the same, dataset by dataset."""
    values = by_shots(results)
    return values.assign(about=values["dataset"])


def base_to_new(results: Results) -> pd.DataFrame:
    """Return means with both total harmonic means, then each dataset with its own."""
    draws = _rows_by_shots(results)
    halves = pd.concat([values_of(draws, name, name) for name in ("base", "new")], ignore_index=True)
    keys = ["model", "entry", "row", "shots", "trained"]
    mean = halves.groupby([*keys, "dataset", "column"], sort=False)["value"].mean().unstack("column")
    mean = mean.reindex(columns=["base", "new"]).dropna()
    each = mean.apply(lambda pair: harmonic_mean(pair["base"], pair["new"]), axis=1)
    own = each.rename("value").reset_index().assign(about=lambda frame: frame["dataset"], column="HM")
    parts = [halves]
    for place, name in enumerate(("H_t1", "H_t2")):
        totals = {
            key: total_harmonic_means(pairs[["base", "new"]].to_numpy().tolist())[place]
            for key, pairs in mean.groupby(keys, sort=False)
        }
        series = pd.Series(totals, dtype=float).rename_axis(keys)
        parts.append(series.rename("value").reset_index().assign(about="", column=name, dataset=""))
    if len(results.plan.datasets) > 1:
        parts += [halves.assign(about=halves["dataset"]), own]
    single = {"seed": 0, "setting": "", "trained": False}  # harmonic means have no deviation
    return pd.concat([part if "seed" in part else part.assign(**single) for part in parts], ignore_index=True)


def targets(results: Results) -> pd.DataFrame:
    """Return a column for each test dataset, the mean of all, and of those not trained on."""
    draws = _rows_by_shots(results)
    others = results.plan.datasets[1:]
    values = values_of(draws, "accuracy", draws["dataset"].map(title_of))
    parts = [values]
    if others:
        outside = values[values["dataset"].isin(others)]
        parts += [values.assign(column="average"), outside.assign(column="OOD")]
        if LOSS in _published_columns(results):
            parts.append(_losses(results, outside))
    return pd.concat(parts, ignore_index=True)


def _losses(results: Results, values: pd.DataFrame) -> pd.DataFrame:
    """Return the difference of each entry to the one that it names, draw by draw."""
    base = {entry.key: entry.gain_over for entry in results.entries if entry.gain_over}
    mine = values[values["entry"].isin(base)]
    keys = ["model", "shots", "dataset", "seed"]
    theirs = values.groupby([*keys, "entry"], sort=False)["value"].mean().rename("theirs").reset_index()
    theirs = theirs.rename(columns={"entry": "over"})
    joined = mine.assign(over=mine["entry"].map(base)).merge(theirs, on=[*keys, "over"], how="left")
    return joined.assign(value=joined["value"] - joined["theirs"], column=LOSS)


def seconds(results: Results) -> pd.DataFrame:
    """Return the mean seconds of each entry, and how many times those of the first one they are."""
    draws = _rows_by_shots(results)
    values = values_of(draws, "seconds", "seconds", percent=False).assign(trained=False)
    means = values.groupby(["model", "shots", "entry"], sort=False)["value"].mean()
    first = means[means.index.get_level_values("entry") == results.entries[0].key].droplevel("entry")
    ratio = values["value"] / values.set_index(["model", "shots"]).index.map(first)
    return pd.concat([values, values.assign(value=ratio, column="times the first line")], ignore_index=True)


def manifold(results: Results) -> pd.DataFrame:
    """Return accuracy and neighbours of the same class, before and after."""
    draws = results.draws
    rows = draws["dataset"].map(title_of) + ", " + draws["shots"] + " shots"
    columns = {
        name: name.replace("purity", "neighbours of the same class").replace("_", " ") for name in STAGES
    }
    parts = [values_of(draws, name, column).assign(row=rows) for name, column in columns.items()]
    return pd.concat(parts, ignore_index=True)


def _rows_by_shots(results: Results) -> pd.DataFrame:
    """Return the draws with the shots in the labels, for layouts without columns of shots."""
    draws = results.draws
    if len(results.plan.shots) == 1:
        return draws
    first = draws["shots"] == shots_name(results.plan.shots[0])
    kept = draws[draws["trained"] | first]  # one row for an entry without training
    suffix = ", " + kept["shots"] + kept["shots"].map(lambda shots: " shot" if shots == "1" else " shots")
    return kept.assign(label=kept["label"].where(~kept["trained"], kept["label"] + suffix))


def _published_columns(results: Results) -> Sequence[str]:
    name = results.experiment.published
    return published(name).columns if name else ()


def _target_columns(
    results: Results, model: str, about: str, column: str
) -> tuple[Sequence[str], Sequence[str] | None]:
    """The domain table names its columns by backbone; single columns are about one dataset."""
    title = paper_model(model) or results.experiment.models[0]
    names = {title_of(name): name for name in results.plan.datasets}
    short = f"{title} {'IN' if column == 'ImageNet' else column}"
    return [column, short], [names[column]] if column in names else None


LAYOUTS = {
    "shots": Layout(by_shots),
    "datasets": Layout(by_dataset),
    "base_to_new": Layout(base_to_new),
    "targets": Layout(targets, _target_columns),
    "seconds": Layout(seconds, unit="s", digits=3),
    "manifold": Layout(manifold),
}
