"""`prolip export`: adapted models for other programs."""

import sys
from pathlib import Path
from typing import Any

import click

from prolip.cli import options
from prolip.cli.console import OUTPUT, console, escape, print_json, say
from prolip.cli.parameters import PATH, command, flag, option

FORMATS = ["hf", "open_clip", "onnx", "web"]
out_folder = option("--out", "-o", type=PATH, required=True, help="Folder to write.")
force = flag("--force", help="Write into a folder that has files, and replace those of the same names.")


@command("export")
@options.saved_model
@option("--to", type=click.Choice(FORMATS), multiple=True, required=True, help="The format.")
@out_folder
@option(
    "--eval", "evaluate", type=PATH, metavar="DIR", help="Test images whose figures go into the model card."
)
@option(
    "--runtime",
    type=PATH,
    metavar="DIR",
    show_default="a CDN",
    help="web: an unpacked package onnxruntime-web that the page uses.",
)
@flag("--all", "all_graphs", help="onnx: also the graphs of batches, images and texts.")
@option(
    "--weights",
    metavar="NAME",
    show_default="known for short names",
    help="hf, open_clip: the model of these libraries that ONNX graphs were made of, like hf:ID-or-FOLDER.",
)
@force
@options.fit_options("device")
def export(
    saved: options.SavedModel,
    to: tuple[str, ...],
    out: Path,
    evaluate: Path | None,
    runtime: Path | None,
    all_graphs: bool,
    weights: str | None,
    force: bool,
    settings: dict[str, Any],
) -> None:
    """Export a model to other libraries or as a web page.

    A model fitted on `clip` or other ONNX graphs exports to hf or open_clip with the original weights,
    which are downloaded if you agree, or taken from --weights.

    $ prolip export my-model --to hf -o my-clip
    $ prolip export my-model --to onnx -o my-onnx
    $ prolip export my-model --to web -o site
    """
    from prolip.export.checkpoint import OriginalRequiredError
    from prolip.export.formats import check_formats, check_request

    check_request(out, list(to), force)
    if "web" in to and runtime is None:
        runtime = _runtime()
    clf = saved.load(settings)
    check_formats(clf.fitted_, clf.model_.encoder, to, weights)
    evaluation = None
    if evaluate is not None:
        evaluation = clf.report(str(evaluate), held_out=False)
    say("writing, and checking what was written ...")

    def write(weights: str | None) -> list[str]:
        return clf.export(
            out, to, force=force, evaluation=evaluation, runtime=runtime,
            all_graphs=all_graphs, weights=weights,
        )  # fmt: skip

    try:
        written = write(weights)
    except OriginalRequiredError as error:
        if not sys.stdin.isatty() or OUTPUT.get().json:
            raise
        question = f"download the original weights, {error.original}, hundreds of MB?"
        if not click.confirm(question, err=True):
            raise
        written = write(error.original)
    _print_files(out, written)
    if "web" in to:
        say(_how_to_open(out, "onnx" in to or "classifier.onnx" not in written, runtime is not None))


def _runtime() -> Path | None:
    """Return where ONNX Runtime Web is, after a question whether to download it."""
    from prolip.export.web import download_runtime, find_runtime

    if (found := find_runtime()) is not None or not sys.stdin.isatty() or OUTPUT.get().json:
        return found
    question = "download ONNX Runtime Web, 13 MB once, so that the page opens without a network?"
    return download_runtime() if click.confirm(question, err=True) else None


def _how_to_open(out: Path, inside: bool, offline: bool) -> str:
    """Say where the page opens."""
    if not inside:
        return (
            f"the model is beside the page: put {out} on a web host, or run `python -m http.server -d {out}`"
        )
    if offline:
        return f"{out / 'index.html'} opens by a double click, without a network"
    return (
        f"{out / 'index.html'} opens by a double click; it loads ONNX Runtime Web from a CDN (--runtime DIR)"
    )


def _print_files(out: Path, written: list[str]) -> None:
    if OUTPUT.get().json:
        print_json({"out": str(out), "files": written})
    else:
        console().print(f"[bold]{escape(str(out))}[/]: {', '.join(written)}")
