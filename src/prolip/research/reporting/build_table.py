"""The table of a run: measured figures in the shape of the paper's, with the published ones beside them.

A figure is compared with the paper's only where it could be the same: the same encoder, and the same
datasets. Elsewhere the difference is not shown, and the table says why.
"""

from collections.abc import Sequence

from prolip.research.reporting import layouts
from prolip.research.reporting.results import Results, paper_model, title_of
from prolip.research.reporting.table import Table


def build(results: Results) -> Table:
    """The table of a run."""
    experiment = results.experiment
    columns, rows = layouts.LAYOUTS[experiment.layout](results)
    title = f"{experiment.title} ({experiment.where})"
    against = results.against.label if results.against else ""
    return Table(title, tuple(columns), tuple(rows), tuple(_notes(results)), against=against)


def _notes(c: Results) -> list[str]:
    trained = c.choices.datasets[:1] if c.experiment.targets else c.choices.datasets
    where = ", ".join(map(title_of, trained))
    ours = ", ".join(c.choices.models)
    notes = [f"{ours}; {where}; seeds {_span(c.choices.seeds)}; views {c.choices.views}", *_comparison(c)]
    if c.against:
        notes.append(
            f"against {c.against.label}: mean difference on the same datasets, shots and seeds, ± half its "
            "95 % interval (Student's t over seeds); bold where the interval leaves out zero"
        )
    if waiting := sum(unit.status in ("waiting", "running") for unit in c.units):
        notes.append(f"* {waiting} of {len(c.units)} runs are not done yet")
    for line in c.lines:
        failed = [u for u in c.units if u.planned.line == line.key and u.status == "failed"]
        if failed:
            why = (failed[-1].error or "").strip().splitlines() or ["?"]
            notes.append(f"{line.label}: {len(failed)} runs failed, like: {why[-1]}")
    if c.plan.left_out:
        notes.append(f"not in this version: {', '.join(c.plan.left_out)}")
    return [*notes, c.experiment.note] if c.experiment.note else notes


def _comparison(c: Results) -> list[str]:
    """How the run differs from the paper's."""
    if not c.experiment.published:
        return []
    why = []
    if not all(paper_model(model) in c.experiment.models for model in c.choices.models):
        ours, theirs = ", ".join(c.choices.models), ", ".join(c.experiment.models)
        why.append(f"another encoder ({ours}; the paper has {theirs})")
    if set(c.choices.datasets) != {*c.experiment.datasets, *c.experiment.targets}:
        count = len(c.experiment.datasets) + len(c.experiment.targets)
        why.append(f"other datasets ({len(c.choices.datasets)}; the paper has its own {count})")
    if c.choices.templates:
        why.append("other templates")
    if why:
        return [f"NOT COMPARABLE with the published figures: {', '.join(why)}"]
    seeds, theirs_too = len(c.choices.seeds), len(c.experiment.seeds)
    if seeds == theirs_too and c.choices.views == 300:
        return []
    return [f"{seeds} of the paper's {theirs_too} seeds, {c.choices.views} of its 300 views"]


def _span(seeds: Sequence[int]) -> str:
    whole = list(range(seeds[0], seeds[0] + len(seeds)))
    if len(seeds) > 1 and list(seeds) == whole:
        return f"{seeds[0]} to {seeds[-1]}"
    return ", ".join(map(str, seeds))
