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
@flag("--single-file", help="web: put model and runtime into index.html, which opens from the disk.")
@option("--base-url", metavar="URL", show_default="beside the page", help="web: where its files will be.")
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
    single_file: bool,
    base_url: str | None,
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
    from prolip.export.web import WebOptions
    from prolip.export.write import check_formats, check_request

    check_request(out, list(to), force)
    WebOptions.of(runtime, single_file, base_url)
    clf = saved.load(settings)
    check_formats(clf.fitted_, clf.model_.encoder, to, weights)
    evaluation = None
    if evaluate is not None:
        evaluation = clf.evaluate(str(evaluate))
    say("writing, and checking what was written ...")

    def write(weights: str | None) -> list[str]:
        return clf.export(
            out, to, force=force, evaluation=evaluation, runtime=runtime, single_file=single_file,
            base_url=base_url, weights=weights,
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


def _print_files(out: Path, written: list[str]) -> None:
    if OUTPUT.get().json:
        print_json({"out": str(out), "files": written})
    else:
        console().print(f"[bold]{escape(str(out))}[/]: {', '.join(written)}")
