"""`prolip bench`: the paper's experiments, run again."""

from __future__ import annotations

import os
import shutil
import sys
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
    from prolip.research.reporting.results import Results
    from prolip.research.reporting.table import Table
    from prolip.research.running.plan import Plan
    from prolip.research.running.run import RunCounts
    from prolip.research.running.source import Source

STYLES = ["text", "markdown", "latex", "csv"]


@command("list")
@argument("name", "[EXPERIMENT]", "Show the lines of this one.", required=False)
def list_experiments(name: str | None) -> None:
    """List the experiments, or the lines of one."""
    from prolip.research.catalogue import EXPERIMENTS, find_experiment
    from prolip.research.running.plan import missing_methods

    if name is None:
        entries = EXPERIMENTS.values()
        if OUTPUT.get().json:
            shown = ("name", "title", "reference")
            print_json([{**{k: getattr(e, k) for k in shown}, "lines": len(e.entries)} for e in entries])
            return
        rows = [[e.name, e.reference, e.title] for e in entries]
        table(None, ["experiment", "in the paper", ""], rows, right=9)
        return
    chosen = find_experiment(name)
    lacking = missing_methods(chosen)
    lines = [(entry.key, entry.label, entry.method) for entry in chosen.entries]
    if OUTPUT.get().json:
        names = ("key", "label", "method")
        print_json([{**dict(zip(names, x, strict=True)), "available": x[2] not in lacking} for x in lines])
        return
    rows = [[*x[:2], f"{x[2]} (not available)" if x[2] in lacking else x[2]] for x in lines]
    table(f"{chosen.title} ({chosen.reference})", ["--line", "label", "method"], rows, right=9)
    if lines:
        shots = ("full" if count is None else str(count) for count in chosen.shots)
        seeds = "-".join(map(str, dict.fromkeys((chosen.seeds[0], chosen.seeds[-1]))))
        click.echo(
            f"\nWithout other options it runs:\n"
            f"--model {' '.join(chosen.models)} --shots {' '.join(shots)} --seeds {seeds} "
            f"--views {chosen.views} --validation {chosen.validation}\n"
            f"--datasets {' '.join((*chosen.datasets, *chosen.targets))}"
        )
    if chosen.note:
        click.echo(f"\n{chosen.note}")


@command("run", cls=SeveralValues)
@experiment
@selection
@machine
@option("--pack", type=PATH, help="Run on the features of `prolip bench pack`, without images.")
@option(
    "--features", type=PATH, multiple=True, help="Run on features of your own: .npz files with x, y and text."
)
@flag("--dry-run", help="Print how many runs there are and how long they take, and run nothing.")
def run(
    name: str,
    selection: Selection,
    machine: Machine,
    pack: Path | None,
    features: tuple[Path, ...],
    dry_run: bool,
) -> None:
    """Run an experiment. It can be stopped at any time; the next run continues it.

    $ prolip bench run validation_free --data ~/data
    $ prolip bench run base_to_new --data photos --datasets pets food --seeds 1-3
    $ prolip bench run validation_free --features mine/*.npz --line zero_shot prolip:lam=0.1 mymodule:Mine
    """
    from prolip.research.catalogue import find_experiment
    from prolip.research.running.plan import make_plan

    source = _source(machine, pack, features)
    plan = make_plan(find_experiment(name), source, **selection.plan_options())
    for missing, why in plan.unavailable.items():
        warn(f"skipped: {missing}, because {why}")
    if dry_run:
        _print_dry_run(plan, machine, source.has_images)
    else:
        _run(plan, source, machine)


def _source(machine: Machine, pack: Path | None, features: tuple[Path, ...]) -> Source:
    """Return where the features come from."""
    from prolip.core.errors import UsageError
    from prolip.data.files import existing
    from prolip.features import FeatureStore
    from prolip.research.datasets.features import FeatureDataset
    from prolip.research.running.own_features import OwnFeatures
    from prolip.research.running.pack import Pack
    from prolip.research.running.source import Images

    if pack is not None and features:
        raise UsageError("--pack and --features are two sources: give one of them")
    if pack is not None:
        return Pack(existing(pack))
    if features:
        return OwnFeatures([FeatureDataset.read(existing(file)) for file in features], machine.device)
    return Images(existing(machine.data), machine.device, FeatureStore(machine.store))


@command("pack", cls=SeveralValues)
@experiment
@selection
@option("--data", type=PATH, default=".", help="Folder that holds the datasets' folders.")
@option("--out", "-o", type=PATH, required=True, help="New folder for the pack.")
@device
@features_store
def write_features(
    name: str, selection: Selection, data: Path, out: Path, device: str, store: Path | None
) -> None:
    """Write the features that an experiment needs, by one encoder, to run it elsewhere without images.

    Features are float16, of one view unless --views says more: with ten, those of ImageNet take gigabytes.

    $ prolip bench pack validation_free --model ViT-B/16 --data ~/data -o pack
    $ prolip bench run validation_free --pack pack
    """
    from prolip.core.errors import UsageError
    from prolip.data.files import existing
    from prolip.features import FeatureStore
    from prolip.research.catalogue import find_experiment
    from prolip.research.running.pack import write_pack
    from prolip.research.running.plan import make_plan
    from prolip.research.running.source import Images

    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out} exists: name a new folder")
    options = selection.plan_options()
    source = Images(existing(data), device, FeatureStore(store))
    plan = make_plan(find_experiment(name), source, **{**options, "views": options["views"] or 1})
    if len(plan.models) > 1:
        raise UsageError(f"a pack has one encoder: --model {' or '.join(plan.models)}")
    with bar("encoding") as drawn:

        def progress(what: str, done: int, total: int) -> None:
            drawn.note(what)
            drawn(done, total)

        write_pack(out, plan, source.encode(plan, progress))
    size = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    if OUTPUT.get().json:
        print_json({"pack": str(out), "datasets": list(plan.datasets), "bytes": size})
    say(f"{len(plan.datasets)} datasets, {size / 1e6:,.0f} MB: {out}")


def _run(plan: Plan, source: Source, machine: Machine) -> None:
    """Run a plan, and print a summary and its table."""
    from prolip.research.running.run import run_plan

    name, results = plan.experiment.name, machine.results
    verb, unit = ("encoding", "images") if source.has_images else ("reading", "datasets")
    with bar(verb, unit) as encoded:
        ran = encoded.beside("running", "runs")

        def encoding(what: str, done: int, total: int) -> None:
            encoded.note(what)
            encoded(done, total)

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
            encoding=encoding,
            progress=progress,
        )
    if OUTPUT.get().json:
        print_json(
            {"experiment": name, "done": counts.done, "failed": counts.failed, "results": str(results)}
        )
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
    found = dry_run(plan, machine.results, workers)
    if OUTPUT.get().json:
        print_json({"experiment": plan.experiment.name, **vars(found)})
        return
    say(f"{found.runs} runs, of which {found.done} are done already")
    if found.done < found.runs:
        guess = f"; a guess for {found.guessed}, as no similar run has been timed" if found.guessed else ""
        on = "one process" if workers < 2 else f"{workers} processes"
        say(f"the others take about {_time(found.seconds)} on {on}{guess}")
        if encodes:
            say("encoding images that are not in the feature store takes additional time")


against_option = option("--against", metavar="LINE", help="Show the paired difference to this line.")
style_option = option(
    "--format", "style", type=click.Choice(STYLES), default="text", help="Format of the table."
)


@command("table", json=False)
@experiment
@style_option
@against_option
@flag("--no-published", help="Leave out the published figures.")
@results_file
def show_table(name: str, style: str, against: str | None, no_published: bool, results: Path) -> None:
    """Print the table of the last run, with the published figures.

    $ prolip bench table validation_free --format latex --no-published > table.tex
    """
    _print_table(_table(name, results, against), style, not no_published)


@command("compare", json=False)
@experiment
@style_option
@against_option
@option("--with", "other", type=PATH, help="Compare with the same runs in another file of results.")
@results_file
def compare_lines(name: str, style: str, against: str | None, other: Path | None, results: Path) -> None:
    """Compare the lines of the last run over datasets: average rank, paired differences, Wilcoxon's test.

    $ prolip bench compare validation_free --against prolip
    $ prolip bench compare validation_free --with old/results.sqlite
    """
    from prolip.core.errors import UsageError
    from prolip.research.reporting.compare import compare, compare_files

    if against and other:
        raise UsageError("--against compares lines, --with compares files: give one of them")
    found = _results(name, results, against)
    _print_table(compare_files(found, _results(name, other)) if other else compare(found), style)


@command("rows", json=False)
@experiment
@option("--out", "-o", type=PATH, required=True, help="A .csv or .parquet file.")
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

    entries = [find_experiment(name)] if name else [*EXPERIMENTS.values(), *not_shown(EXPERIMENTS.values())]
    rows = [
        {
            "experiment": each.name or "-",
            "where": where,
            "row": row,
            "source": ran.source,
            "program": ran.program,
            "settings": ran.settings or "-",
            "template": ran.template,
            "validation": ran.validation,
            "seeds": "not stated" if ran.seeds is None else str(ran.seeds),
            "line": entry.key if entry else "-",
            "compared": "; ".join(why) or "same",
        }
        for each in entries
        for where, row, ran, entry, why in published_rows(each)
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

    failed = [one for one in _results(name, results).runs if one.error and one.result is None]
    if OUTPUT.get().json:
        print_json([{"run": asdict(one.run), "error": one.error} for one in failed])
        return
    for one in failed:
        run = one.run
        head = f"{run.method} {run.options} on {run.dataset}, {run.shots} shots, seed {run.seed}"
        console().print(f"{head}\n{one.error}\n", markup=False, soft_wrap=True)
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


def _table(name: str, results: Path, against: str | None = None) -> Table:
    from prolip.research.catalogue import EXPERIMENTS
    from prolip.research.reporting.table import build, parameters

    return parameters(EXPERIMENTS[name]) if name == "parameters" else build(_results(name, results, against))


def _results(name: str, path: Path, against: str | None = None) -> Results:
    from prolip.io.environment import require

    require("pandas", "bench", "a table of results")

    from prolip.research.catalogue import find_experiment
    from prolip.research.places import is_place
    from prolip.research.reporting.results import Results

    return Results.read(find_experiment(name).name if is_place(name) else name, path, against)


def _print_table(table: Table, style: str = "text", with_published: bool = True) -> None:
    """Print a table; on a terminal in parts that fit, elsewhere as wide as it is, or as COLUMNS says."""
    columns = os.environ.get("COLUMNS", "")
    terminal = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    width = int(columns) if columns.isdigit() else terminal
    click.echo(table.render(style, with_published, width), nl=False)


def _time(seconds: float) -> str:
    hours, rest = divmod(int(seconds), 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60}:{rest % 60:02d}"
