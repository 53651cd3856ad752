"""`prolip export` and `push`: adapted models for other programs and people."""

import sys
from pathlib import Path
from typing import Any

import click

from prolip.cli import options
from prolip.cli.console import OUTPUT, console, escape, print_as_json, say
from prolip.cli.options import PATH, argument, command, flag, option


@command("export")
@options.saved_model("device")
@option(
    "--to", type=click.Choice(["hf", "open_clip", "onnx", "web"]), multiple=True, required=True,
    help="The format.",
)  # fmt: skip
@option("--out", "-o", type=PATH, required=True, help="Folder to write.")
@option(
    "--runtime",
    type=PATH,
    metavar="DIR",
    show_default="a CDN",
    help="web: an unpacked package onnxruntime-web that the page uses.",
)
@flag("--all", "all_graphs", help="onnx: also the graphs of batches and of image embeddings.")
@option(
    "--weights",
    metavar="NAME",
    show_default="known for short names",
    help="hf, open_clip: the model of these libraries that ONNX graphs were made of, like hf:ID-or-FOLDER; "
    "it may be downloaded.",
)
@flag("--force", help="Write into a folder that has files, and replace those of the same names.")
def export(
    saved: options.SavedModel,
    to: tuple[str, ...],
    out: Path,
    runtime: Path | None,
    all_graphs: bool,
    weights: str | None,
    force: bool,
) -> None:
    """Export a model to other libraries or as a web page.

    A model fitted on `clip` or other ONNX graphs exports to hf or open_clip with the original weights, which
    --weights names.

    $ prolip export my-model --to hf -o my-clip
    $ prolip export my-model --to onnx -o my-onnx
    $ prolip export my-model --to web -o site
    """
    from prolip.export.formats import check_request

    check_request(out, list(to), force)
    if "web" in to and runtime is None:
        runtime = _runtime()
    clf = saved.load()
    with console(stderr=True).status("writing, and checking what was written"):
        written = clf.export(out, to, force=force, runtime=runtime, all_graphs=all_graphs, weights=weights)
    if print_as_json({"out": str(out), "files": written}):
        return
    console().print(f"[bold]{escape(out)}[/]: {', '.join(written)}")
    if "web" in to and "classifier.onnx" in written and "onnx" not in to:
        say(f"the model is beside the page: put {out} on a web host, or run `python -m http.server -d {out}`")


def _runtime() -> Path | None:
    """Return where ONNX Runtime Web is, after a question whether to download it."""
    from prolip.export.web import download_runtime, find_runtime

    if (place := find_runtime()) is not None or not sys.stdin.isatty() or OUTPUT.get().json:
        return place
    question = "download ONNX Runtime Web, 14 MB once, so that the page opens without a network?"
    return download_runtime() if click.confirm(question, err=True) else None


@command("push")
@options.saved_model()
@argument("name", "NAME", "The repository: OWNER/NAME, or NAME for one of yours.")
@flag("--public", help="Let everybody see it; a new repository is private otherwise.")
@flag("--support", help="Add the features of the training images, so that others can add images and classes.")
@flag("--force", help="Replace the model in a repository that has files.")
def push(saved: options.SavedModel, name: str, public: bool, **choices: Any) -> None:
    """Upload a model to the Hugging Face hub, with a model card.

    The tuned matrix, the class texts and the card are sent; images are not. Log in first, with `hf auth
    login` or HF_TOKEN. In Python, `FewShotClassifier.from_pretrained("OWNER/NAME")` loads it.

    $ prolip push my-model me/flowers
    $ prolip push my-model me/flowers --public
    """
    clf = saved.load()
    with console(stderr=True).status(escape(f"pushing {saved.path} to {name}")):
        address = clf.push_to_hub(name, private=not public, **choices)
    if not print_as_json({"repository": address}):
        console().print(f"pushed: [bold]{escape(address)}[/]", soft_wrap=True)
