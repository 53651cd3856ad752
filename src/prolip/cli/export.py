"""`prolip export` and `embed`: adapted models and features for other programs."""

import sys
from pathlib import Path

import click

from prolip.cli import options
from prolip.cli.console import OUTPUT, bar, console, escape, print_json, report_skipped, say
from prolip.cli.parameters import PATH, argument, command, flag, option
from prolip.io.progress import counted

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
@options.device
def export(
    saved: options.SavedModelInput,
    to: tuple[str, ...],
    out: Path,
    evaluate: Path | None,
    runtime: Path | None,
    single_file: bool,
    base_url: str | None,
    weights: str | None,
    force: bool,
    device: str,
) -> None:
    """Export a model to other libraries or as a web page.

    A model fitted on `clip@fp32` or other ONNX graphs exports to hf or open_clip with the original weights,
    which are downloaded if you agree, or taken from --weights.

    $ prolip export my-model --to hf -o my-clip
    $ prolip export my-model --to onnx -o my-onnx
    $ prolip export my-model --to web -o site
    """
    from prolip.api.save import export as export_model
    from prolip.export.checkpoint import OriginalRequiredError
    from prolip.export.web import WebOptions
    from prolip.export.write import check_formats, check_request

    check_request(out, list(to), force)
    web = WebOptions.of(runtime, single_file, base_url)
    clf = saved.load(options.ImageInput(device))
    check_formats(clf.fitted_, clf.model_.encoder, to, weights)
    evaluation = None
    if evaluate is not None:
        with bar("encoding") as progress:
            evaluation = clf.evaluate(str(evaluate), progress=progress)
    say("writing, and checking what was written ...")

    def write(weights: str | None) -> list[str]:
        return export_model(clf.model_, out, to, force=force, evaluation=evaluation, web=web, weights=weights)

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


@command("embed")
@argument("source", "DIR...", "Folders of images, or images.", nargs=-1, required=True)
@option("--out", "-o", type=PATH, required=True, help="Folder for the features.")
@options.base_model
@option("--shard", metavar="I/N", default="1/1", help="Encode part I of N equal parts, counted from 1.")
@option("--ray", metavar="ADDRESS", help="Encode on a Ray cluster; `local` starts one here.")
@options.group("images", options.UnlabelledInput, without=("store", "no_store", "label_column"))
def embed(
    source: tuple[str, ...], out: Path, model: str, shard: str, ray: str | None, images: options.ImageInput
) -> None:
    """Store the features of many images.

    They are the features before the projection, so that they serve every model of the same base model. A run
    that was stopped continues where it was.

    $ prolip embed /archive -o features
    $ prolip embed /archive -o features --shard 2/8
    """
    from prolip.core import UsageError
    from prolip.data import list_images
    from prolip.encoders import load as load_encoder
    from prolip.features.embed import embed as write_features
    from prolip.features.images import NoImagesError
    from prolip.io.writing import check_place

    number, _, shards = shard.partition("/")
    if not (number.isdecimal() and shards.isdecimal() and 1 <= int(number) <= int(shards)):
        raise UsageError(f"--shard takes I/N with I from 1 to N, like 2/8, got {shard!r}")
    check_place(out)
    listed = list_images(list(source), **images.tables())
    paths = [path for path in listed if isinstance(path, Path)]
    if len(paths) < len(listed):
        raise UsageError("embed stores the paths of files: unpack archives and tables of images")
    encoder = load_encoder(model, images.device)
    elsewhere = 0
    how = images.reading()
    if ray is not None:
        from prolip.features import FeatureStore
        from prolip.features.ray_extract import extract_on_ray

        own, features = (
            paths[int(number) - 1 :: int(shards)],
            FeatureStore(out, f"features-{number}-of-{shards}"),
        )
        with bar("encoding on Ray") as progress:
            elsewhere = extract_on_ray(
                model, own, features, address=ray, device=images.device, **how, progress=progress
            ).encoded
    with bar("encoding") as progress:  # after Ray: what is left to do is the index
        part = (int(number), int(shards))
        done = write_features(encoder, paths, out, shard=part, **how, progress=progress)
    if done.skipped and not done.images + done.already:
        raise NoImagesError(done.skipped)
    report_skipped(done.skipped)
    summary = {
        "images": done.images, "encoded": done.encoded + elsewhere, "already": done.already,
        "skipped": len(done.skipped), "out": str(out),
    }  # fmt: skip
    if OUTPUT.get().json:
        print_json(summary)
    else:
        say(f"{counted(done.images)} added ({done.already} were there already) in {out}")
