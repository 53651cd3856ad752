"""Entries over datasets, compared with statistics."""

from __future__ import annotations

import math

import pandas as pd

from prolip.core.errors import UsageError
from prolip.research.reporting.results import Results
from prolip.research.reporting.table import Table, complete, interval

_COLUMNS = ("mean", "ECE", "rank", "difference", "better on", "p")
_DIGITS = {"better on": 0, "p": 4}


def compare(results: Results) -> Table:
    """Compare the entries over datasets: mean, average rank, and the paired difference to one of them.

    The difference is that of `against`, by default the entry with the best mean. An entry that misses runs is
    left out, because ranks need every dataset.
    """
    from scipy.stats import wilcoxon

    labels, rows, notes = {entry.key: entry.label for entry in results.entries}, [], []
    for model in results.plan.models:
        mine = results.draws[results.draws["model"] == model]
        done = mine.groupby("entry")["score"].apply(lambda scores: scores.notna().all())
        scores = 100 * mine.groupby(["dataset", "entry"])["score"].mean().unstack("entry")
        scores = scores[[entry for entry in labels if entry in scores and done[entry]]].dropna()
        notes += [
            f"{labels[key]} is left out: runs are missing" for key in labels if not done.get(key, False)
        ]
        if scores.empty or not len(scores.columns):
            continue
        base = results.against.key if results.against else str(scores.mean().idxmax())
        ranks = scores.rank(axis=1, ascending=False).mean()
        error = 100 * mine.groupby(["entry", "dataset"])["calibration_error"].mean().groupby("entry").mean()
        for entry, own in scores.items():
            figures = {"mean": own.mean(), "ECE": error.get(entry, math.nan), "rank": ranks[entry]}
            gap = pd.Series(dtype=float)
            if base in scores and entry != base:
                gap = own - scores[base]
                p = float(wilcoxon(gap).pvalue) if gap.any() else 1.0
                figures |= {"better on": (gap > 0).sum(), "p": p if len(gap) > 1 else math.nan}
            row = {"group": results.group(model), "label": labels[str(entry)], "entry": entry}
            rows += [{**row, "column": name, "mean": float(value)} for name, value in figures.items()]
            if len(gap):
                gain = {"gain": float(gap.mean()), "interval": interval(gap)}
                rows.append({**row, "column": "difference", **gain})
        datasets = f"over {len(scores)} dataset" + "s" * (len(scores) > 1)
        notes.append(
            f"{results.group(model) or datasets}; difference to {labels.get(base, base)}, ± half its 95 % "
            "interval (Student's t over datasets); p of Wilcoxon's signed-rank test over datasets, "
            "two-sided, without a correction for several tests"
        )
    if not rows:
        raise UsageError(
            f"no line of {results.experiment.name} has an accuracy for each of its runs yet: run the rest"
        )
    return _table(rows, f"{results.title()}: lines over datasets", notes)


def _table(rows: list[dict[str, object]], title: str, notes: list[str]) -> Table:
    order = {name: place for place, name in enumerate(_COLUMNS)}
    frame = pd.DataFrame(sorted(rows, key=lambda row: order[str(row["column"])]))
    frame["digits"] = frame["column"].map(_DIGITS)
    return Table(title, complete(frame), tuple(dict.fromkeys(notes)))
