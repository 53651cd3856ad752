"""`prolip bench`: the paper's experiments, run again."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from prolip.cli.console import OUTPUT, bar, console, print_json, say, table, warn
from prolip.cli.options import device, features_store
from prolip.cli.parameters import PATH, FilePath, Group, argument, command, flag, option
from prolip.research.commands.bench_options import (
    Machine,
    Selection,
    SeveralValues,
    experiment,
    machine,
    results_file,
    selection,
)

if TYPE_CHECKING:
    from prolip.io.progress import Bar
    from prolip.research.reporting.results import Results
    from prolip.research.reporting.table import Table
    from prolip.research.running.plan import Plan
    from prolip.research.running.run import RunCounts
    from prolip.research.running.source import Source


@command("list")
@argument("name", "[EXPERIMENT]", "Show the lines of this one.", required=False)
def list_experiments(name: str | None) -> None:
    """List the experiments, or the lines of one."""
    from prolip.research.catalogue import EXPERIMENTS, find_experiment
    from prolip.research.running.plan import missing_methods

    if name is None:
        rows = [[e.name, e.reference, e.title, f"{len(e.entries)}"] for e in EXPERIMENTS.values()]
        if OUTPUT.get().json:
            print_json([dict(zip(("name", "reference", "title", "lines"), row, strict=True)) for row in rows])
        else:
            table(None, ["experiment", "in the paper", "", "lines"], rows, right=3)
        return
    chosen = find_experiment(name)
    lacking = missing_methods(chosen)
    if OUTPUT.get().json:
        names = ("key", "label", "method")
        lines = [{name: getattr(entry, name) for name in names} for entry in chosen.entries]
        print_json([{**line, "available": line["method"] not in lacking} for line in lines])
        return
    rows = [[e.key, e.label, e.method + " (not available)" * (e.method in lacking)] for e in chosen.entries]
    table(f"{chosen.title} ({chosen.reference})", ["--line", "label", "method"], rows, right=9)
    if rows:
        shots = " ".join("full" if count is None else str(count) for count in chosen.shots)
        click.echo(
            f"\nWithout other options it runs:\n"
            f"--model {' '.join(chosen.models)} --shots {shots} --seeds {chosen.seeds[0]}-{chosen.seeds[-1]} "
            f"--views {chosen.views} --validation {chosen.validation}\n"
            f"--datasets {' '.join((*chosen.datasets, *chosen.targets))}"
        )
    if chosen.note:
        click.echo(f"\n{chosen.note}")


@command("run", cls=SeveralValues)
@experiment
@selection
@machine
@option(
    "--features", type=PATH, multiple=True, help="Files of `prolip bench pack`, or .npz with x, y and text."
)
@flag("--dry-run", help="Print how many runs there are and how long they take, and run nothing.")
def run(name: str, selection: Selection, machine: Machine, features: tuple[Path, ...], dry_run: bool) -> None:
    """Run an experiment. It can be stopped at any time; the next run continues it.

    $ prolip bench run validation_free --data ~/data
    $ prolip bench run base_to_new --data photos --datasets pets food --seeds 1-3
    $ prolip bench run validation_free --features mine/*.npz --line zero_shot prolip:lam=0.1 mymodule:Mine
    """
    from prolip.data.files import existing
    from prolip.features import FeatureStore
    from prolip.research.catalogue import find_experiment
    from prolip.research.running.plan import make_plan
    from prolip.research.running.source import Features, Images

    source: Source
    if features:
        source = Features([existing(file) for file in features], machine.device)
    else:
        source = Images(existing(machine.data), machine.device, FeatureStore(machine.store))
    plan = make_plan(find_experiment(name), source, **selection.plan_options())
    for missing, why in plan.unavailable.items():
        warn(f"skipped: {missing}, because {why}")
    if dry_run:
        _print_dry_run(plan, machine, source.has_images)
    else:
        _run(plan, source, machine)


@command("pack", cls=SeveralValues)
@experiment
@selection
@option("--data", type=PATH, default=".", help="Folder that holds the datasets' folders.")
@option("--out", "-o", type=PATH, required=True, help="New folder for the files.")
@device
@features_store
def write_features(
    name: str, selection: Selection, data: Path, out: Path, device: str, store: Path | None
) -> None:
    """Write the features that an experiment needs, to run it elsewhere without images.

    Features are float16, of one view unless --views says more: with ten, those of ImageNet take gigabytes.

    $ prolip bench pack validation_free --model ViT-B/16 --data ~/data -o pack
    $ prolip bench run validation_free --features pack/*
    """
    from prolip.core.errors import UsageError
    from prolip.data.files import existing
    from prolip.features import FeatureStore
    from prolip.io.writing import write_folder
    from prolip.research.catalogue import find_experiment
    from prolip.research.running.plan import make_plan
    from prolip.research.running.source import Images

    if out.exists():
        raise UsageError(f"{out} exists: name a new folder")
    options = selection.plan_options()
    source = Images(existing(data), device, FeatureStore(store))
    plan = make_plan(find_experiment(name), source, **{**options, "views": options["views"] or 1})

    def fill(draft: Path) -> None:
        with bar("encoding") as drawn:
            for encoding in source.encode(plan, _noted(drawn)):
                encoding.write_into(draft)

    write_folder(out, fill)
    files = [file for file in out.iterdir() if file.is_file()]
    size = sum(file.stat().st_size for file in files)
    if OUTPUT.get().json:
        print_json({"pack": str(out), "datasets": list(plan.datasets), "bytes": size})
    say(f"{len(files)} files, {size / 1e6:,.0f} MB: {out}")


def _noted(drawn: Bar) -> Callable[[str, int, int], None]:
    """Return a function that draws the progress of something with a name."""

    def progress(what: str, done: int, total: int) -> None:
        drawn.note(what)
        drawn(done, total)

    return progress


def _run(plan: Plan, source: Source, machine: Machine) -> None:
    """Run a plan, and print a summary and its table."""
    from prolip.research.running.run import run_plan

    name, results = plan.experiment.name, machine.results
    with bar("encoding") as encoded:
        ran = encoded.beside("running", "runs")

        def progress(counts: RunCounts) -> None:
            ran.note(f"{counts.failed} failed" if counts.failed else "")
            ran(counts.done + counts.failed, counts.total)

        counts = run_plan(
            plan,
            source,
            results,
            jobs=machine.jobs,
            ray=machine.ray,
            device=machine.device,
            encoding=_noted(encoded),
            progress=progress,
        )
    if OUTPUT.get().json:
        done = {"done": counts.done, "failed": counts.failed}
        print_json({"experiment": name, **done, "results": str(results)})
    else:
        say(f"{counts.done} runs done, {counts.failed} failed; results in {results}")
        if counts.failed:
            say(f"why: prolip bench failures {name} --results {results}; the next run tries them again")
        _print_table(_table(name, results))
    if counts.failed:
        raise click.exceptions.Exit(1)


def _print_dry_run(plan: Plan, machine: Machine, encodes: bool) -> None:
    from prolip.io.environment import cores
    from prolip.research.running.run import dry_run

    workers = cores() if machine.jobs is None else machine.jobs
    counts = dry_run(plan, machine.results, workers)
    if OUTPUT.get().json:
        print_json({"experiment": plan.experiment.name, **vars(counts)})
        return
    say(f"{counts.runs} runs, of which {counts.done} are done already")
    if ahead := counts.runs - counts.done:
        minutes = f"{counts.seconds / 60:,.0f} minutes on {workers} process{'es' * (workers > 1)}"
        unknown = f"; for {counts.untimed} of them no similar run has been timed" * (counts.untimed > 0)
        say(f"the other {ahead} take about {minutes}{unknown}")
        if encodes:
            say("encoding images that are not in the feature store takes additional time")


against_option = option("--against", metavar="LINE", help="Show the paired difference to this line.")
style_option = option(
    "--format",
    "style",
    type=click.Choice(["text", "markdown", "latex", "csv"]),
    default="text",
    help="Format of the table.",
)


@command("table", json=False)
@experiment
@style_option
@against_option
@flag("--no-published", help="Leave out the published figures.")
@flag("--per-dataset", help="Show each dataset by itself, where the table has columns of shots.")
@results_file
def show_table(
    name: str, style: str, against: str | None, no_published: bool, per_dataset: bool, results: Path
) -> None:
    """Print the table of the last run, with the published figures.

    $ prolip bench table validation_free --format latex --no-published > table.tex
    """
    _print_table(_table(name, results, against, per_dataset), style, not no_published)


@command("compare", json=False)
@experiment
@style_option
@against_option
@results_file
def compare_lines(name: str, style: str, against: str | None, results: Path) -> None:
    """Compare the lines of the last run over datasets: average rank, paired differences, Wilcoxon's test.

    $ prolip bench compare validation_free --against prolip
    """
    from prolip.research.reporting.compare import compare

    _print_table(compare(_results(name, results, against)), style)


@command("rows", json=False)
@experiment
@option("--out", "-o", type=FilePath(".csv"), required=True, help="A .csv file.")
@results_file
def write_rows(name: str, out: Path, results: Path) -> None:
    """Write a row for each run of the last plan that is done: line, dataset, shots, seed and score."""
    say(f"{_results(name, results).save(out)} rows: {out}")


@command("published")
@argument("name", "[EXPERIMENT]", "Show the figures of this one.", required=False)
@option(
    "--format", "style", type=click.Choice(["text", "markdown"]), default="text", help="Format of the table."
)
def show_published(name: str | None, style: str) -> None:
    """List the published figures: who ran which program, how, and whether a line here runs the same."""
    from prolip.research.catalogue import EXPERIMENTS, find_experiment
    from prolip.research.catalogue.published import not_shown, published_rows

    chosen = [find_experiment(name)] if name else [*EXPERIMENTS.values(), *not_shown(EXPERIMENTS.values())]
    rows = [
        {
            "experiment": experiment.name or "-",
            "where": where,
            "row": row,
            "source": provenance.source,
            "program": provenance.program,
            "settings": provenance.settings or "-",
            "template": provenance.template,
            "validation": provenance.validation,
            "seeds": "not stated" if provenance.seeds is None else str(provenance.seeds),
            "line": entry.key if entry else "-",
            "compared": "; ".join(why) or "same",
        }
        for experiment in chosen
        for where, row, provenance, entry, why in published_rows(experiment)
    ]
    if OUTPUT.get().json:
        print_json(rows)
    elif style == "markdown":
        texts = [list(rows[0]), ["---"] * len(rows[0]), *(list(row.values()) for row in rows)]
        click.echo("\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in texts))
    else:
        shown = ["where", "row", "source", "line", "compared"]
        table(None, shown, [[row[column] for column in shown] for row in rows], right=9)


@command("plot", json=False)
@experiment
@option(
    "--out",
    "-o",
    type=FilePath(".png", ".pdf", ".svg"),
    show_default="EXPERIMENT.png",
    help="A .png, .pdf or .svg file.",
)
@results_file
def plot(name: str, out: Path | None, results: Path) -> None:
    """Draw the figure of the last run."""
    from prolip.research.reporting import figures

    path = out or results.parent / f"{name}.png"
    figures.save(figures.draw(_results(name, results)), path)
    say(f"written: {path}")


@command("failures")
@experiment
@results_file
def failures(name: str, results: Path) -> None:
    """Show the runs of the last plan that failed, with their tracebacks."""
    from dataclasses import asdict

    failed = [(x.run, x.error) for x in _results(name, results).runs if x.error and x.result is None]
    if OUTPUT.get().json:
        print_json([{"run": asdict(run), "error": error} for run, error in failed])
        return
    for run, error in failed:
        head = f"{run.method} {run.options} on {run.dataset}, {run.shots} shots, seed {run.seed}"
        console().print(f"{head}\n{error}\n", markup=False, soft_wrap=True)
    say(f"{len(failed)} runs failed")


bench = Group(
    "bench",
    help="""Run the paper's experiments again: tables and figures.

    \b
    Examples:
      prolip bench list                                   all experiments
      prolip bench list validation_free                   the lines of one, and what it runs on
      prolip bench run validation_free --data ~/data      run it, or what is left of it
      prolip bench table validation_free                  accuracies beside the published ones
      prolip bench plot validation_free
    """,
)
for subcommand in (
    list_experiments, run, write_features, show_table, compare_lines, write_rows, plot, failures,
    show_published,
):  # fmt: skip
    bench.add_command(subcommand)


def _table(name: str, path: Path, against: str | None = None, per_dataset: bool = False) -> Table:
    from prolip.research.catalogue import EXPERIMENTS
    from prolip.research.reporting.table import build, parameters

    if name == "parameters":
        return parameters(EXPERIMENTS[name])
    results = _results(name, path, against)
    return build(results.per_dataset() if per_dataset else results)


def _results(name: str, path: Path, against: str | None = None) -> Results:
    from prolip.io.environment import require

    require("pandas", "bench", "a table of results")

    from prolip.research.catalogue import find_experiment
    from prolip.research.reporting.results import Results

    return Results.read(find_experiment(name).name, path, against)


def _print_table(table: Table, style: str = "text", with_published: bool = True) -> None:
    """Print a table; on a terminal in parts that fit, elsewhere as wide as it is."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    click.echo(table.render(style, with_published, width), nl=False)
