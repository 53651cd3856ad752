"""Options and steps that commands on saved models share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from prolip.cli.console import say, warn

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
Saved = Annotated[Path, typer.Argument(metavar="MODEL", help="A saved model.")]


def load(
    saved: Path, device: str, store: Any, skip_bad: bool, exact_decode: bool = False
) -> FewShotClassifier:
    """A saved model, ready to use."""
    from prolip.api import FewShotClassifier

    return FewShotClassifier.load(
        saved, device=device, store=store, skip_bad=skip_bad, exact_decode=exact_decode
    )


def report_skipped(bad: list[tuple[str, str]], quiet: bool) -> None:
    """Tell how many images could not be read, and the first of them."""
    if bad:
        warn(f"{len(bad)} images could not be read and were left out")
        for name, reason in bad[:5]:
            say(f"  {name}: {reason}", quiet=quiet or not name)


def warn_of_copies(count: int) -> None:
    """Tell that test images are not new to the model."""
    if count:
        warn(f"{count} of these images were in the support set: the accuracy is too good")
