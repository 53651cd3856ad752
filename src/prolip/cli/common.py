"""Options and steps that commands on saved models share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from prolip.cli.console import counted, detail, say, warn

if TYPE_CHECKING:
    from prolip.api import FewShotClassifier

Json = Annotated[bool, typer.Option("--json", help="One JSON document on standard output, nothing else.")]
Device = Annotated[str, typer.Option(help="Where the towers run: auto, cpu, cuda or mps.")]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Go on past images that cannot be read.")]
ExactDecode = Annotated[
    bool, typer.Option("--exact-decode", help="Decode large images in full: several times slower.")
]
Store = Annotated[
    Path | None, typer.Option(help="Folder that features are kept in; the user's cache unless named.")
]
NoStore = Annotated[bool, typer.Option("--no-store", help="Keep no features on disk.")]
Model = Annotated[
    str,
    typer.Option(
        help="offline, open_clip:ARCH/TAG, open_clip:local-dir:PATH, hf:ID-or-PATH; "
        "arrays for an .npz of embeddings."
    ),
]
Template = Annotated[
    list[str] | None,
    typer.Option(help="Prompt with {} for the class, or a dataset's name for its own; may be repeated."),
]
Descriptions = Annotated[
    Path | None, typer.Option(help="Sentences by class beside the templates: a .json, .csv or .tsv file.")
]
Groups = Annotated[
    Path | None,
    typer.Option(help="A .csv or .json with the group of each class: answers by group, too, or instead."),
]
Saved = Annotated[Path, typer.Argument(metavar="MODEL", help="A saved model.")]
AbsolutePaths = Annotated[
    bool, typer.Option("--absolute-paths", help="Let a table name files outside its own folder.")
]
IMAGES = (
    "a folder per class, a table (.csv .tsv .jsonl .parquet), an archive (.zip .tar .tar.gz) or a dataset"
)
Shots = Annotated[int | None, typer.Option(min=1, help="Images per class to use; all unless named.")]
Replacing = Annotated[
    Path | None, typer.Option("--out", "-o", help="Save here; unless named, the model is replaced.")
]
MAX_SEED = 2**32 - 1  # what NumPy's generators take
Base = Annotated[
    str | None,
    typer.Option("--base", metavar="NAME", help="The base model of MODEL, where it was never used here."),
]
TrustBase = Annotated[
    bool, typer.Option("--trust-base", help="Open or fetch whatever base model MODEL names.")
]


def load(
    saved: Path,
    device: str,
    store: Any,
    skip_bad: bool,
    base: str | None = None,
    trust_base: bool = False,
    exact_decode: bool = False,
) -> FewShotClassifier:
    """A saved model, ready to use."""
    from prolip.api import FewShotClassifier
    from prolip.encoders.base import check_device

    check_device(device)
    clf = FewShotClassifier.load(
        saved,
        device=device,
        store=store,
        skip_bad=skip_bad,
        exact_decode=exact_decode,
        base=base,
        trust_base=trust_base,
    )
    detail(f"{saved}: {clf.method} on {clf.model_.encoder.name}, {len(clf.classes_)} classes")
    return clf


def labelled(source: str, split: str, absolute_paths: bool) -> Any:
    """Labelled images as `fit` and `evaluate` take them; embeddings stay the path that was named."""
    from prolip.data import read_images

    return read_images(source, split, min_classes=1, absolute_paths=True) if absolute_paths else source


def check_fraction(option: str, value: float | None) -> None:
    """Refuse what is no fraction from 0 to below 1."""
    from prolip.core import UsageError

    if value is not None and not 0 <= value < 1:
        raise UsageError(f"{option} must be a fraction from 0 to below 1, got {value}")


def report_skipped(bad: list[tuple[str, str]], quiet: bool) -> None:
    """Tell how many images could not be read, and the first of them."""
    if bad:
        warn(f"{counted(len(bad))} could not be read and {'was' if len(bad) == 1 else 'were'} left out")
        for name, reason in bad[:5]:
            say(f"  {name}: {reason}", quiet=quiet or not name)


def warn_of_copies(count: int) -> None:
    """Tell that test images are not new to the model."""
    if count:
        were = "was" if count == 1 else "were"
        warn(f"{count} of these images {were} in the support set: the accuracy is too good")
