"""`prolip export`, `convert`, `embed` and `reproject`: adapted models and features for other programs."""

from pathlib import Path
from typing import Annotated

import typer

from prolip.cli import common
from prolip.cli.console import bar, console, escape, print_json, say

Force = Annotated[
    bool,
    typer.Option("--force", help="Write into a folder that holds files, replacing those of the same names."),
]


def export(
    saved: common.Saved,
    to: Annotated[
        list[str], typer.Option(help="hf, open_clip, adapter or onnx; repeat it for several in one folder.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to write.")],
    evaluate: Annotated[
        Path | None,
        typer.Option("--eval", metavar="DIR", help="Test images whose figures go into the model card."),
    ] = None,
    force: Force = False,
    base: common.Base = None,
    trust_base: common.TrustBase = False,
    device: common.Device = "auto",
    json: common.Json = False,
) -> None:
    """Write an adapted model as other libraries load it, with a model card.

    prolip export my-model --to hf --to open_clip -o my-clip

    prolip export my-model --to onnx -o my-onnx
    """
    from prolip.export.write import check_request

    check_request(out, to, force)
    clf = common.load(saved, device, None, False, base, trust_base)
    evaluation = None
    if evaluate is not None:
        with bar("encoding", quiet=json) as progress:
            evaluation = clf.evaluate(str(evaluate), progress=progress)
        common.warn_of_copies(evaluation["duplicates"])
    say("writing, and checking what was written ...", quiet=json)
    _tell(out, clf.export(out, to, force=force, evaluation=evaluation), json)


def convert(
    source: Annotated[
        str,
        typer.Argument(
            metavar="MODEL", help="hf:ID-or-PATH, open_clip:ARCH/TAG or open_clip:local-dir:PATH."
        ),
    ],
    to: Annotated[str, typer.Option(help="hf or open_clip.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to write.")],
    force: Force = False,
    json: common.Json = False,
) -> None:
    """Turn a CLIP model of transformers into one of open_clip, or the other way round; the weights stay.

    prolip convert hf:openai/clip-vit-base-patch32 --to open_clip -o clip-b32
    """
    from prolip.encoders import load as load_encoder
    from prolip.export.write import check_empty, convert_model

    check_empty(out, force)
    _tell(out, convert_model(load_encoder(source, "cpu"), out, to, force=force), json)


def _tell(out: Path, written: list[str], json: bool) -> None:
    if json:
        print_json({"out": str(out), "files": written})
    else:
        console().print(f"[bold]{escape(str(out))}[/]: {', '.join(written)}")


def embed(
    source: Annotated[list[str], typer.Argument(metavar="DIR...", help="Folders of images, or images.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the features.")],
    model: Annotated[str, typer.Option(help="As for `prolip fit`.")] = "offline",
    shard: Annotated[
        str, typer.Option(metavar="I/N", help="Of N equal parts the I-th, from 1: run them side by side.")
    ] = "1/1",
    ray: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Encode on a Ray cluster; `local` starts one here.")
    ] = None,
    device: common.Device = "auto",
    skip_bad: common.SkipBad = False,
    exact_decode: common.ExactDecode = False,
    json: common.Json = False,
) -> None:
    """Write features from before the projection, once; `prolip reproject` turns them into any adapted space.

    A run that was stopped goes on where it was.

        prolip embed /archive -o features

        prolip embed /archive -o features --shard 2/8
    """
    from prolip.core import UsageError
    from prolip.core.writing import check_place
    from prolip.data import list_images
    from prolip.encoders import load as load_encoder
    from prolip.features.embed import embed as write_features

    number, slash, shards = shard.partition("/")
    if not (slash and number.isdecimal() and shards.isdecimal()):
        raise UsageError(f"--shard takes I/N, like 2/8, got {shard!r}")
    check_place(out)
    listed = list_images(source)
    paths = [path for path in listed if isinstance(path, Path)]
    if len(paths) < len(listed):
        raise UsageError("embed keeps the paths of files: unpack archives and tables that hold images")
    encoder = load_encoder(model, device)
    elsewhere = 0
    if ray is not None:
        from prolip.features import FeatureStore
        from prolip.features.ray_extract import extract_on_ray

        own = paths[int(number) - 1 :: max(1, int(shards))]
        with bar("encoding on Ray", quiet=json) as progress:
            elsewhere = extract_on_ray(
                model,
                own,
                FeatureStore(out),
                address=ray,
                device=device,
                skip_bad=skip_bad,
                exact_decode=exact_decode,
                progress=progress,
            ).encoded
    with bar("encoding", quiet=json) as progress:  # after Ray: what is left to do is the index
        done = write_features(
            encoder,
            paths,
            out,
            shard=(int(number), int(shards)),
            skip_bad=skip_bad,
            exact_decode=exact_decode,
            progress=progress,
        )
    common.report_skipped(done.skipped, json)
    summary = {
        "images": done.images, "encoded": done.encoded + elsewhere, "already": done.already,
        "skipped": len(done.skipped), "out": str(out),
    }  # fmt: skip
    if json:
        print_json(summary)
    else:
        say(f"{done.images} images added ({done.already} were there already) in {out}")


def reproject(
    store: Annotated[
        Path, typer.Argument(metavar="STORE", help="What `prolip embed` wrote, or an .npy of features.")
    ],
    saved: common.Saved,
    out: Annotated[Path, typer.Option("--out", "-o", help="A .npy or .safetensors file.")],
    dtype: Annotated[str, typer.Option(help="float32 or float16.")] = "float32",
    base: common.Base = None,
    trust_base: common.TrustBase = False,
    device: common.Device = "auto",
    json: common.Json = False,
) -> None:
    """Turn stored features into the embeddings of an adapted model, without opening an image.

    prolip reproject features my-model -o index.npy
    """
    from prolip.core import Projected, UsageError
    from prolip.core.writing import check_place
    from prolip.export.reproject import reproject as move

    check_place(out)
    clf = common.load(saved, device, False, False, base, trust_base)
    fitted = clf.fitted_
    if not isinstance(fitted, Projected):
        raise UsageError(
            f"{clf.method} makes no embeddings of its own: re-project with a model of prolip or rla"
        )
    encoder = clf.model_.encoder if clf.model_.encoder.takes_pictures else None
    with bar("projecting", "rows", quiet=json) as progress:
        rows = move(
            store, fitted.head, out, adapter=fitted.adapter, encoder=encoder, dtype=dtype, progress=progress
        )
    summary = {"out": str(out), "rows": rows, "dimensions": fitted.head.dim, "dtype": dtype}
    if json:
        print_json(summary)
    else:
        say(f"{rows} embeddings of {fitted.head.dim} dimensions written to {out}")
