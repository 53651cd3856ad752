"""`prolip bench`: the paper's experiments, run again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from prolip.cli.console import bar, console, print_json, say, table, warn

if TYPE_CHECKING:
    from prolip.bench.runner import Status

Name = Annotated[str, typer.Argument(metavar="EXPERIMENT", help="A name of `prolip bench list`.")]
Results = Annotated[Path, typer.Option("--results", help="File that results are kept in (SQLite).")]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on standard output, nothing else.")]

RESULTS = Path("prolip-bench") / "results.sqlite"


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(no_args_is_help=True, help="Run the paper's experiments again: tables and figures.")
    group.command("list")(list_experiments)
    group.command("run", cls=_Several)(run)
    group.command("table")(show_table)
    group.command("plot")(plot)
    group.command("failures")(failures)
    app.add_typer(group, name="bench")


class _Several(TyperCommand):
    """A command whose options take several values: `--datasets a b c` is `--datasets a --datasets b ..`."""

    options = frozenset({"--datasets", "--model", "--methods", "--shots", "--seeds", "--template"})

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Repeat the option before each of its values."""
        spread: list[str] = []
        option: str | None = None
        for word in args:
            if word.startswith("-"):
                option = word if word in self.options else None
                spread += [] if option else [word]
            else:
                spread += [option, word] if option else [word]
        return super().parse_args(ctx, spread)


def list_experiments(
    name: Annotated[str | None, typer.Argument(metavar="[EXPERIMENT]", help="Show its lines too.")] = None,
    json: Json = False,
) -> None:
    """List the experiments, or the lines of one."""
    from prolip.bench.experiments import EXPERIMENTS, experiment
    from prolip.bench.plan import missing_methods

    if name is None:
        found: list[dict[str, Any]] = [
            {"name": e.name, "title": e.title, "where": e.where, "lines": len(e.rows)}
            for e in EXPERIMENTS.values()
        ]
        if json:
            print_json(found)
            return
        table(
            None,
            ["experiment", "in the paper", ""],
            [[e["name"], e["where"], e["title"]] for e in found],
            right=9,
        )
        return
    chosen, lacking = experiment(name), missing_methods(experiment(name))
    lines: list[dict[str, Any]] = [
        {"key": row.key, "label": row.label, "method": row.method, "available": row.method not in lacking}
        for row in chosen.rows
    ]
    if json:
        print_json(lines)
        return
    rows = [
        [row["key"], row["label"], row["method"] if row["available"] else f"{row['method']} (not here)"]
        for row in lines
    ]
    table(f"{chosen.title} ({chosen.where})", ["--methods", "line", "method"], rows, right=9)
    if chosen.note:
        console().print(f"\n{chosen.note}", markup=False)


def run(
    name: Name,
    data: Annotated[Path, typer.Option("--data", help="Folder that holds the datasets' folders.")] = Path(),
    datasets: Annotated[
        list[str] | None,
        typer.Option(help="Datasets, or folders of images in --data that stand in for them."),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="RN50, RN101, ViT-B/16, ViT-B/32, or any encoder; else the paper's for its datasets "
            "and offline for others."
        ),
    ] = None,
    methods: Annotated[
        list[str] | None, typer.Option(help="Lines to run: see `prolip bench list EXPERIMENT`.")
    ] = None,
    shots: Annotated[list[str] | None, typer.Option(help="Shots: numbers, or `full`.")] = None,
    seeds: Annotated[list[str] | None, typer.Option(help="Seeds: numbers, or a range like 1-10.")] = None,
    views: Annotated[int | None, typer.Option(help="Views of each support image; the paper has 300.")] = None,
    template: Annotated[list[str] | None, typer.Option(help="Prompt in place of the datasets' own.")] = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", "-j", help="Processes; one per core unless named.")
    ] = None,
    ray: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="A Ray cluster; `local` starts one.")
    ] = None,
    retry: Annotated[bool, typer.Option("--retry", help="Run what failed again.")] = False,
    results: Results = RESULTS,
    device: Annotated[str, typer.Option(help="Where the towers run: auto, cpu, cuda or mps.")] = "auto",
    store: Annotated[Path | None, typer.Option(help="Folder that features are kept in.")] = None,
    json: Json = False,
) -> None:
    """Run an experiment. What is done already is not done again; stop it and start it as you like.

    prolip bench run validation_free --data ~/data

    prolip bench run base_to_new --data photos --datasets pets food --seeds 1-3
    """
    from prolip.bench import session
    from prolip.bench.experiments import experiment
    from prolip.bench.plan import Choices, missing_methods
    from prolip.data import as_templates
    from prolip.data.files import existing
    from prolip.features import FeatureStore

    chosen = experiment(name)
    choices = Choices(
        _words(datasets),
        _words(model),
        tuple(methods or ()),
        tuple(None if s == "full" else _number(s, "shots") for s in _words(shots)),
        tuple(seed for text in _words(seeds) for seed in _range(text)),
        views,
        as_templates(template) if template else (),
    )
    for lacking in missing_methods(chosen):
        warn(f"{lacking} is not in this version: its lines are left out")
    how = session.How(existing(data), results, jobs, ray, retry, device, FeatureStore(store))
    with bar("encoding", quiet=json) as progress, _live(json) as live:
        counts = session.run(chosen, choices, how, lambda _, done, total: progress(done, total), live)
    if json:
        print_json(
            {"experiment": name, "done": counts.done, "failed": counts.failed, "results": str(results)}
        )
    else:
        say(f"{counts.done} runs done, {counts.failed} failed; results in {results}")
        if counts.failed:
            say(f"why: prolip bench failures {name} --results {results}; once mended: --retry")
        _print_table(session.table(chosen, results))
    if counts.failed:
        raise typer.Exit(1)


def show_table(
    name: Name,
    style: Annotated[str, typer.Option("--format", help="rich, markdown, latex or csv.")] = "rich",
    results: Results = RESULTS,
) -> None:
    """Print the table of the last run, with the published figures."""
    from prolip.bench import session
    from prolip.bench.experiments import experiment
    from prolip.bench.render import render

    found = session.table(experiment(name), results)
    if style == "rich":
        _print_table(found)
    else:
        typer.echo(render(found, style), nl=False)


def plot(
    name: Name,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="A .png, .pdf or .svg file.")] = None,
    results: Results = RESULTS,
) -> None:
    """Draw the figure of the last run."""
    from prolip.bench import figures, session
    from prolip.bench.experiments import experiment

    chosen = experiment(name)
    path = out or results.parent / f"{name}.png"
    figures.save(figures.draw(session.collect(chosen, results)), path)
    say(f"written: {path}")


def failures(
    name: Name,
    results: Results = RESULTS,
    json: Json = False,
) -> None:
    """Show the runs of the last plan that failed, with their tracebacks."""
    from prolip.bench.experiments import experiment
    from prolip.bench.results import ResultStore

    with ResultStore(results) as store:
        plan = store.last_plan(experiment(name).name)
        failed = [row for row in store.rows(plan[0]) if row.status == "failed"] if plan else []
    if json:
        print_json([{"unit": row.unit.spec(), "error": row.error} for row in failed])
        return
    for row in failed:
        unit = row.unit
        head = f"{unit.method} {unit.options} on {unit.dataset}, {unit.shots} shots, seed {unit.seed}"
        console().print(f"{head}\n{row.error}\n", markup=False, soft_wrap=True)
    say(f"{len(failed)} runs failed")


def _print_table(found: Any) -> None:
    from prolip.bench.render import rich_table

    console().print(rich_table(found))
    for note in found.notes:
        style = "bold yellow" if note.startswith("NOT COMPARABLE") else "dim"
        console().print(note, style=style, markup=False, soft_wrap=True)


@contextmanager
def _live(quiet: bool) -> Iterator[Callable[[Status], None]]:
    """Done, failed, rate and time left, on one line of standard error."""
    from rich.progress import BarColumn, Progress, TextColumn

    line = "{task.completed} of {task.total} done[red]{task.fields[failed]}[/]  {task.fields[rate]}"
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn(line))
    with Progress(*columns, console=console(stderr=True), transient=True, disable=quiet) as progress:
        task: Any = None

        def advance(status: Status) -> None:
            nonlocal task
            counts = status.counts
            if task is None:
                task = progress.add_task("running", total=counts.total, failed="", rate="")
            left = counts.waiting + counts.running
            rate = (
                f"{60 * status.rate:.0f} a minute, {_time(left / status.rate)} left" if status.run > 2 else ""
            )
            failed = f", {counts.failed} failed" if counts.failed else ""
            progress.update(task, completed=counts.done, total=counts.total, failed=failed, rate=rate)

        yield advance


def _time(seconds: float) -> str:
    hours, rest = divmod(int(seconds), 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60}:{rest % 60:02d}"


def _words(given: list[str] | None) -> tuple[str, ...]:
    """Values with commas between them are several."""
    return tuple(word for text in given or () for word in text.split(",") if word)


def _number(text: str, what: str) -> int:
    from prolip.core.errors import UsageError

    try:
        value = int(text)
    except ValueError:
        raise UsageError(f"--{what}: {text!r} is not a number") from None
    if value < 1:
        raise UsageError(f"--{what} must be at least 1, got {value}")
    return value


def _range(text: str) -> list[int]:
    from prolip.core.errors import UsageError

    first, dash, last = text.partition("-")
    start = _number(first, "seeds")
    stop = _number(last, "seeds") if dash else start
    if stop < start:
        raise UsageError(f"--seeds: {text!r} is an empty range, did you mean {stop}-{start}?")
    return list(range(start, stop + 1))
