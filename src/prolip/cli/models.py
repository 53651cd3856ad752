"""`prolip models`: the pretrained models that have a short name, and getting them."""

from __future__ import annotations

import sys

import click

from prolip.cli.console import OUTPUT, bar, hint, print_json, say, table
from prolip.cli.parameters import Group, argument, command, flag, json_flag

models = Group(
    "models",
    help="List pretrained models, or download one. `prolip models get clip` gets the recommended one.",
)
models.params.append(json_flag())


@click.pass_context
def list_models(ctx: click.Context) -> None:
    """Print the table, unless a subcommand follows."""
    if ctx.invoked_subcommand is not None:
        return
    from prolip.encoders.pretrained import list_models as describe

    found = describe()
    if OUTPUT.get().json:
        print_json(found)
        return
    rows = [
        [
            model["name"],
            model["title"] + (" (recommended)" if model["recommended"] else ""),
            f"{model['megabytes']} MB" if model["megabytes"] else "installed",
            model["licence"] or "-",
            "yes" if model["downloaded"] else "no",
        ]
        for model in found
    ]
    table(None, ["name", "model", "download", "licence", "here"], rows, right=9)
    hint(
        "Download one with [bold]prolip models get clip[/], "
        "then [bold]prolip fit photos/ -o my-model --model clip[/]."
    )


models.callback = list_models


@command("get")
@argument("names", "NAME...", "Short names, or onnx:OWNER/REPOSITORY.", nargs=-1, required=True)
@flag("--yes", help="Accept the licence, where it is not free for every use.")
def get(names: tuple[str, ...], yes: bool) -> None:
    """Download models, and check their files.

    Files go to the cache of the Hugging Face hub, as
    HF_HOME, HF_ENDPOINT, HF_TOKEN and HF_HUB_OFFLINE say.

    $ prolip models get clip
    """
    from prolip.encoders import load
    from prolip.encoders.pretrained import find_source

    for name in names:
        find_source(name)  # a misspelt name is refused before anything is downloaded
    for name in names:
        ensure_downloaded(name, yes or find_source(name).free)
        load(name, "cpu")
        say(f"{name} is ready")
    if OUTPUT.get().json:
        print_json([{"name": name} for name in names])


models.add_command(get)


def ensure_downloaded(name: str, yes: bool) -> None:
    """Download a model that is not here, after a question on a terminal; elsewhere only if `yes`."""
    from prolip.encoders import fetch
    from prolip.encoders.pretrained import DownloadRequiredError, find_source, is_here, is_hub_name

    if not is_hub_name(name) or is_here(name):
        return
    source = find_source(name)
    size = f"about {source.megabytes} MB" if source.megabytes else "files of unknown size"
    licence = f", licence: {source.licence}" if source.licence else ""
    if not yes:
        if not sys.stdin.isatty() or OUTPUT.get().json:
            raise DownloadRequiredError(name, source)
        if not click.confirm(f"{name}: download {size} from {source.repository}{licence}?", err=True):
            raise DownloadRequiredError(name, source)
    elif not source.free:
        say(f"{name}: licence: {source.licence}")
    with bar(f"downloading {name}", "bytes") as progress:
        fetch(name, progress)
