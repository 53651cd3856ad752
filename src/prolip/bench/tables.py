"""Measured figures in the shape of the paper's tables, with the published ones beside them.

A figure is compared with the paper's only where it could be the same: the same encoder, and the same
datasets. Elsewhere the difference is not shown, and the table says why.
"""

from __future__ import annotations

from collections.abc import Sequence

from prolip.bench import layouts
from prolip.bench.cells import Table
from prolip.bench.collect import Collected, paper_model, title_of
from prolip.bench.plan import missing_methods


def build(collected: Collected) -> Table:
    """The table of a run."""
    experiment = collected.experiment
    shapes = {
        "shots": layouts.shots,
        "datasets": layouts.datasets,
        "base_to_new": layouts.base_to_new,
        "targets": layouts.targets,
        "chosen": layouts.chosen,
        "manifold": layouts.manifold,
    }
    columns, lines = shapes[experiment.layout](collected)
    title = f"{experiment.title} ({experiment.where})"
    return Table(title, tuple(columns), tuple(lines), tuple(_notes(collected)))


def _notes(c: Collected) -> list[str]:
    notes = []
    ours = ", ".join(c.choices.models)
    trained = c.choices.datasets[:1] if c.experiment.targets else c.choices.datasets
    where = ", ".join(map(title_of, trained))
    notes.append(f"{ours}; {where}; seeds {_span(c.choices.seeds)}; views {c.choices.views}")
    why = []
    if not all(paper_model(model) in c.experiment.models for model in c.choices.models):
        why.append(f"another encoder ({ours}; the paper has {', '.join(c.experiment.models)})")
    if set(c.choices.datasets) != {*c.experiment.datasets, *c.experiment.targets}:
        theirs = len(c.experiment.datasets) + len(c.experiment.targets)
        why.append(f"other datasets ({len(c.choices.datasets)}; the paper has its own {theirs})")
    if c.choices.templates:
        why.append("other templates")
    if why and c.experiment.published:
        notes.append(f"NOT COMPARABLE with the published figures: {', '.join(why)}")
    elif c.experiment.published and (
        len(c.choices.seeds) != len(c.experiment.seeds) or c.choices.views != 300
    ):
        notes.append(
            f"{len(c.choices.seeds)} of the paper's {len(c.experiment.seeds)} seeds, "
            f"{c.choices.views} of its 300 views"
        )
    if waiting := sum(p.unit.spec() not in c.results for p in c.planned) - len(c.failures):
        notes.append(f"* {waiting} of {len(c.planned)} runs are not done yet")
    for label, error in dict(c.failures).items():
        count = sum(1 for name, _ in c.failures if name == label)
        notes.append(
            f"{label}: {count} runs failed, like: {error.strip().splitlines()[-1] if error.strip() else '?'}"
        )
    if lacking := missing_methods(c.experiment):
        notes.append(f"not in this version: {', '.join(lacking)}")
    if c.experiment.note:
        notes.append(c.experiment.note)
    return notes


def _span(seeds: Sequence[int]) -> str:
    whole = list(range(seeds[0], seeds[0] + len(seeds)))
    return (
        f"{seeds[0]} to {seeds[-1]}"
        if len(seeds) > 1 and list(seeds) == whole
        else ", ".join(map(str, seeds))
    )
