"""`prolip models` and `methods`: what a fit can start from, and how it can learn."""

from __future__ import annotations

import inspect
import re

import click

from prolip.cli.console import console, escape, hint, print_as_json, say, table, typed
from prolip.cli.options import ensure_downloaded
from prolip.cli.parameters import Group, argument, command, json_flag


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
    hint(
        "Download one with [bold]prolip models get clip[/], "
        "then [bold]prolip fit photos/ -o my-model --model clip[/]."
    )


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
        ensure_downloaded(name, True)
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
    options = [
        {"name": option, "default": plain(getattr(method, option)), "help": described.get(option, "")}
        for option in methods.options(name)
    ]
    fields = ("name", "summary", "open_class", "size")
    shown = {field: getattr(method, field) for field in fields} | {"needs": method.needs.describe()}
    if print_as_json({**shown, "options": options}):
        return
    console().print(f"[bold]{escape(name)}[/]: {escape(method.summary)}\n")
    table(None, ["option", "default", ""], [list(map(str, row.values())) for row in options], right=9)
    hint(f"\nSet one: {typed('fit', 'DIR', '-o', 'MODEL', '--method', name, '-O', 'NAME=VALUE')}")


def _descriptions(kind: type) -> dict[str, str]:
    """Return the descriptions of parameters in the docstrings of a class and of its bases."""
    described: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        section = inspect.cleandoc(base.__doc__ or "").partition("Parameters\n----------\n")[2]
        for names, text in re.findall(r"^(\S.*)\n((?:[ ]+.*\n?)+)", section, re.MULTILINE):
            described |= dict.fromkeys(names.split(", "), " ".join(text.split()))
    return described
