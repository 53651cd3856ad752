"""`prolip models`, `methods` and `compare`: what a fit starts from, how it learns, and which is best."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Any

import click

from prolip.cli import options
from prolip.cli.console import console, escape, hint, percent, print_as_json, say, table, typed
from prolip.cli.options import Group, argument, command, flag, json_flag, option

if TYPE_CHECKING:
    from prolip.evaluate.comparison import Comparison

COLUMNS = ["model", "method", "accuracy %", "95 % interval", "difference", "fit s", "open-class"]


@click.pass_context
def list_models(ctx: click.Context) -> None:
    """Print the table, unless a subcommand follows."""
    if ctx.invoked_subcommand is not None:
        return
    from prolip.encoders import pretrained

    models = pretrained.list_models()
    if print_as_json(models):
        return
    rows = [
        [
            model["name"],
            model["title"] + (" (recommended)" if model["recommended"] else ""),
            f"{model['megabytes']} MB" if model["megabytes"] else "installed",
            model["licence"] or "-",
            "yes" if model["downloaded"] else "no",
        ]
        for model in models
    ]
    table(None, ["name", "model", "download", "licence", "here"], rows, right=9)
    hint("Download one: [bold]prolip models get clip[/]")


@command("get")
@argument("names", "NAME...", "Short names, or onnx:OWNER/REPOSITORY.", nargs=-1, required=True)
def get(names: tuple[str, ...]) -> None:
    """Download models, and check their files.

    Files go to the cache of the Hugging Face hub, as HF_HOME, HF_ENDPOINT, HF_TOKEN and HF_HUB_OFFLINE say.

    $ prolip models get clip
    """
    from prolip.encoders import load
    from prolip.encoders.pretrained import find_source

    for name in names:  # a misspelt name is refused before any download
        find_source(name)
    for name in names:
        options.ensure_downloaded(name, True)
        load(name, "cpu")
        say(f"{name} is ready")
    print_as_json([{"name": name} for name in names])


models = Group(
    "models",
    callback=list_models,
    help="List pretrained models, or download one. `prolip models get clip` gets the recommended one.",
)
models.params.append(json_flag())
models.add_command(get)


@command("methods")
@argument("name", "[NAME]", "A method, to show its options.", required=False)
def list_methods(name: str | None) -> None:
    """List the methods, or show the options of one.

    Methods that add a bias to the zero-shot logits can be combined: `--method a+b` trains two together.

    $ prolip methods
    $ prolip methods prolip
    """
    from prolip import methods

    if name is not None:
        _show(name)
        return
    available = methods.available()
    fields = ("summary", "open_class", "size")
    if print_as_json(
        [
            {"name": name} | {field: getattr(kind, field) for field in fields}
            for name, kind in available.items()
        ]
    ):
        return
    for title, research in ((None, False), ("For experiments", True)):
        rows = [[name, kind.summary] for name, kind in available.items() if kind.research == research]
        table(title, ["method", "what it is"], rows, right=9)
    hint(f"\nOptions of one: {typed('methods', 'NAME')}")


def _show(name: str) -> None:
    """Print the options of a method, with their defaults and their descriptions in the docstrings."""
    from prolip import methods
    from prolip.methods.base import plain

    kind = methods.get(name)
    method, described = kind(), _descriptions(kind)
    rows = [
        {"name": each, "default": plain(getattr(method, each)), "help": described.get(each, "")}
        for each in methods.options(name)
    ]
    fields = ("name", "summary", "open_class", "size")
    shown = {field: getattr(method, field) for field in fields} | {"needs": method.needs.describe()}
    if print_as_json({**shown, "options": rows}):
        return
    console().print(f"[bold]{escape(name)}[/]: {escape(method.summary)}")
    console().print(f"trains {escape(method.size)}; needs {', '.join(shown['needs'])}\n")
    table(None, ["option", "default", ""], [list(map(str, row.values())) for row in rows], right=9)
    hint(f"\nSet one: {typed('fit', 'DIR', '-o', 'MODEL', '--method', name, '-O', 'NAME=VALUE')}")


def _descriptions(kind: type) -> dict[str, str]:
    """Return the descriptions of parameters in the docstrings of a class and of its bases."""
    described: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        section = inspect.cleandoc(base.__doc__ or "").partition("Parameters\n----------\n")[2]
        for names, text in re.findall(r"^(\S.*)\n((?:[ ]+.*\n?)+)", section, re.MULTILINE):
            described |= dict.fromkeys(names.split(", "), " ".join(text.split()))
    return described


@command("compare")
@argument("source", "DIR", options.TRAINING)
@option(
    "--model",
    "models",
    multiple=True,
    show_default="offline",
    help="A model, as `fit` takes it; the first is the one to beat.",
)
@options.fit_options("shots", "seed", "templates", "skip_bad", "download", "device", "store")
@option("--method", multiple=True, show_default="five", help="Compare this method with the default one.")
@flag("--all", "every", help="Compare every method that trains no encoder.")
@options.tables
def compare(
    source: str,
    models: tuple[str, ...],
    method: tuple[str, ...],
    every: bool,
    settings: dict[str, Any],
    tables: options.Tables,
) -> None:
    """Compare methods, and models, on your images, and suggest one.

    Five methods (anchored, prolip, gda, linear_probe and zero_shot), those of --method, or all are fitted on
    four fifths of the images and evaluated on the rest, five times, on the same images. It takes some seconds
    for a few dozen images; all methods take minutes for a thousand. Several models are compared on the same
    images.

    $ prolip compare photos/
    $ prolip compare photos/ --model offline --model clip --model siglip2-b16
    $ prolip compare photos/ --method gda --method linear_probe
    """
    from prolip.core import UsageError
    from prolip.evaluate.comparison import USUAL, Candidate

    if every and method:
        raise UsageError("--all and --method exclude each other")
    candidates = None if every else [Candidate(name) for name in method] or USUAL
    names = list(dict.fromkeys(models)) or ["offline"]
    for name in names:
        options.ensure_downloaded(name, settings["download"])
    clf = options.new_classifier({"model": names[0], **settings})
    comparison = clf.compare(tables.labelled(source, "train"), candidates=candidates, models=names)
    if print_as_json(comparison.report()):
        return
    _show_comparison(comparison)
    if comparison.decided:
        score = comparison.chosen
        flags: list[object] = ["--model", score.model, "--method", score.candidate.method]
        for name, value in score.candidate.options.items():
            flags += ["-O", f"{name}={value}"]
        for name, value in {**vars(tables), "shots": settings["shots"]}.items():  # the same images
            flags += [] if value is None else [f"--{name.replace('_', '-')}", value]
        console().print(typed("fit", source, "-o", "my-model", *flags), soft_wrap=True)


def _show_comparison(comparison: Comparison) -> None:
    """Print the figures of all candidates, and which of them is recommended."""
    first = 0 if len({score.model for score in comparison.scores}) > 1 else 1  # the column of the model
    rows = [
        [
            score.model,
            str(score.candidate),
            percent(score.accuracy),
            f"{percent(score.low)} to {percent(score.high)}",
            f"{100 * score.gap:+.1f} ± {100 * score.error:.1f}",
            f"{score.seconds:.2f}",
            "yes" if score.open_class else "no",
        ]
        for score in comparison.scores
    ]
    table(None, COLUMNS[first:], [row[first:] for row in rows], right=2 - first)
    for name, why in comparison.left_out.items():
        say(f"not fitted: {name}: {why}")
    if comparison.decided:
        chosen = escape(comparison.chosen)
        console().print(f"\nRecommended: [bold]{chosen}[/]: {escape(comparison.why)}.")
    else:
        console().print(f"\n[bold]Cannot tell[/]: {escape(comparison.why)}. Add images, and compare again.")
