"""`prolip bench`: the paper's experiments, run again."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from prolip.cli.console import bar, console, print_as_json, say, table, warn
from prolip.cli.options import (
    PATH,
    POSITIVE,
    Command,
    FilePath,
    Group,
    argument,
    command,
    device,
    features_store,
    flag,
    option,
)

if TYPE_CHECKING:
    from prolip.research.reporting.results import Results
    from prolip.research.reporting.table import Table
    from prolip.research.running.run import RunCounts
    from prolip.research.running.source import Source

_HOW = ("source", "program", "settings", "template", "validation")  # of a published figure
SEED = click.IntRange(1, 999_999)

experiment = argument("name", "EXPERIMENT", "A name from `prolip bench list`.")
results_file = option(
    "--results",
    type=PATH,
    default=Path("prolip-bench") / "results.sqlite",
    help="SQLite file with the results.",
)


class SeveralValues(Command):
    """A command with options of several values: `--datasets a b` is `--datasets a --datasets b`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Repeat the option before each of its values."""
        several = {name for each in self.params if getattr(each, "multiple", False) for name in each.opts}
        spread: list[str] = []
        option = ""
        for word in args:
            if word.startswith("-") or not option:
                option = word if word in several else ""
                spread.append(word)
            else:
                spread += [word] if spread[-1] == option else [option, word]
        return super().parse_args(ctx, spread)


def _shots(ctx: click.Context, param: click.Parameter, words: tuple[str, ...]) -> tuple[int | None, ...]:
    return tuple(None if word == "full" else POSITIVE(word, param, ctx) for word in words)


def _seeds(ctx: click.Context, param: click.Parameter, words: tuple[str, ...]) -> tuple[int, ...]:
    seeds: list[int] = []
    for word in words:
        first, dash, last = word.partition("-")
        start, stop = (SEED(text, param, ctx) for text in (first, last if dash else first))
        if stop < start:
            raise click.BadParameter(f"{word!r} is an empty range", ctx, param)
        seeds += range(start, stop + 1)
    return tuple(seeds)


@command("list")
@argument("name", "[EXPERIMENT]", "Show the lines of this one.", required=False)
def list_experiments(name: str | None) -> None:
    """List the experiments, or the lines of one."""
    from prolip.research.catalogue import EXPERIMENTS, find_experiment
    from prolip.research.running.plan import missing_methods

    if name is None:
        rows = [[e.name, e.reference, e.title, f"{len(e.entries)}"] for e in EXPERIMENTS.values()]
        names = ("name", "reference", "title", "lines")
        if not print_as_json([dict(zip(names, row, strict=True)) for row in rows]):
            table(None, ["experiment", "in the paper", "", "lines"], rows, right=3)
        return
    chosen = find_experiment(name)
    lacking = missing_methods(chosen)
    lines = [{"key": e.key, "label": e.label, "method": e.method} for e in chosen.entries]
    if print_as_json([{**line, "available": line["method"] not in lacking} for line in lines]):
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
@option("--datasets", multiple=True, help="Datasets, or folders of images in --data.")
@option(
    "--model",
    "models",
    multiple=True,
    help="RN50, RN101, ViT-B/16, ViT-B/32 or any encoder.",
    show_default="the paper's for its datasets, offline for others",
)
@option(
    "--line",
    "entries",
    multiple=True,
    help="Lines of `prolip bench list EXPERIMENT`, or any method, with options: prolip:lam=0.1:solver=adam.",
)
@option("--shots", multiple=True, callback=_shots, help="Shots: numbers, or `full`.")
@option("--seeds", multiple=True, callback=_seeds, help="Seeds: numbers, or a range like 1-10.")
@option("--views", type=POSITIVE, help="Views of each support image; the paper has 300.")
@option("--template", "templates", multiple=True, help="Prompt to use instead of those of the lines.")
@option(
    "--validation",
    type=click.Choice(["none", "shots", "min4", "split"]),
    show_default="the experiment's",
    help="Images to choose options on: none, N shots, min(N, 4) shots, or the validation split.",
)
@option("--features", type=PATH, multiple=True, help="Files .npz with x, y and text, in place of datasets.")
@option("--data", type=PATH, default=".", help="Folder that holds the datasets' folders.")
@results_file
@option("--jobs", "-j", type=POSITIVE, show_default="one per core", help="Processes.")
@option("--ray", metavar="ADDRESS", help="Run on a Ray cluster; `local` starts one here.")
@device
@features_store
def run(
    name: str,
    features: tuple[Path, ...],
    data: Path,
    results: Path,
    jobs: int | None,
    ray: str | None,
    device: str,
    store: Path | None,
    **selection: Any,
) -> None:
    """Run an experiment. It can be stopped at any time; the next run continues it.

    $ prolip bench run validation_free --data ~/data
    $ prolip bench run base_to_new --data photos --datasets pets food --seeds 1-3
    $ prolip bench run validation_free --features mine/*.npz --line zero_shot prolip:lam=0.1 mymodule:Mine
    """
    from prolip.data.folders import existing
    from prolip.features import FeatureStore
    from prolip.io.environment import require
    from prolip.research.catalogue import find_experiment
    from prolip.research.running.plan import make_plan
    from prolip.research.running.run import run_plan
    from prolip.research.running.source import Features, Images

    require("pandas", "bench", "the table of an experiment")  # before it is run
    source: Source
    if features:
        source = Features([existing(file) for file in features], device)
    else:
        source = Images(existing(data), device, FeatureStore(store))
    plan = make_plan(find_experiment(name), source, **selection)
    for missing, why in plan.unavailable.items():
        warn(f"skipped: {missing}, because {why}")
    say(f"{len(plan.runs)} runs on {', '.join(plan.datasets)}")
    with bar("encoding") as encoded:
        ran = encoded.beside("running", "runs")

        def show_encoding(what: str, done: int, total: int) -> None:
            encoded.note = what
            encoded(done, total)

        def show_running(counts: RunCounts) -> None:
            ran.note = f"{counts.failed} failed" if counts.failed else ""
            ran(counts.done + counts.failed, counts.total)

        counts = run_plan(
            plan,
            source,
            results,
            jobs=jobs,
            ray=ray,
            device=device,
            encoding=show_encoding,
            progress=show_running,
        )
    done = {"done": counts.done, "failed": counts.failed}
    if not print_as_json({"experiment": name, **done, "results": str(results)}):
        say(f"{counts.done} runs done, {counts.failed} failed; results in {results}")
        if counts.failed:
            say(f"why: prolip bench failures {name} --results {results}; the next run tries them again")
        _print_table(_table(name, results))
    if counts.failed:
        raise click.exceptions.Exit(1)


@command("table", json=False)
@experiment
@option(
    "--format",
    "style",
    type=click.Choice(["text", "latex", "csv"]),
    default="text",
    help="Format of the table.",
)
@option("--against", metavar="LINE", help="Show the paired difference to this line.")
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
            **{name: getattr(provenance, name) or "-" for name in _HOW},
            "seeds": "not stated" if provenance.seeds is None else str(provenance.seeds),
            "line": entry.key if entry else "-",
            "compared": "; ".join(why) or "same",
        }
        for experiment in chosen
        for where, row, provenance, entry, why in published_rows(experiment)
    ]
    if print_as_json(rows):
        return
    if style == "markdown":
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

    failed = [(one.run, one.error) for one in _results(name, results).runs if one.error]
    if print_as_json([{"run": asdict(run), "error": error} for run, error in failed]):
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
    list_experiments, run, show_table, write_rows, plot, failures, show_published,
):  # fmt: skip
    bench.add_command(subcommand)


def _table(name: str, path: Path, against: str | None = None, per_dataset: bool = False) -> Table:
    from prolip.io.environment import require
    from prolip.research.catalogue import EXPERIMENTS

    require("pandas", "bench", "a table of results")
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
