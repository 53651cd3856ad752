"""`prolip search`: images of a folder, ranked by words or by an image."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from prolip.cli import options
from prolip.cli.console import OUTPUT, bar, print_json, say, table
from prolip.cli.parameters import HTML, PATH, argument, command, flag, option

if TYPE_CHECKING:
    from prolip.core import Projected
    from prolip.encoders import Encoder


@command("search")
@argument("source", "DIR", "Images: a folder, a table or an archive.")
@argument("words", "[WORDS]", "What to search for.", required=False)
@option("--like", type=PATH, help="An image that others should be like; also together with words.")
@option("--top", type=click.IntRange(1, 10_000), default=20, help="Number of images to show.")
@option(
    "--model", default="offline",
    help="The encoder (see `prolip models`), or a saved model, whose tuned projection is then used.",
)  # fmt: skip
@flag("--yes", help="Download the model, if it is not here, without asking.")
@option("--report", type=HTML, help="An .html file for a page of thumbnails.")
@options.unlabelled_input
def search(
    source: str,
    words: str | None,
    like: Path | None,
    top: int,
    model: str,
    yes: bool,
    report: Path | None,
    images: options.ImageInput,
) -> None:
    """Rank images by words, or by an example.

    $ prolip search photos/ "red shoes" --model clip --report found.html
    $ prolip search photos/ --like shoe.jpg
    """
    from prolip.api.search import search as rank
    from prolip.api.support import ReadOptions, open_store
    from prolip.core import UsageError
    from prolip.data import list_images
    from prolip.io.files import readable

    if words is None and like is None:
        raise UsageError("name what to search for: words, or --like an image")
    if words is not None and os.path.isfile(words):  # noqa: PTH113 - which takes words of any length
        raise UsageError(f"{words} is a file: write --like {shlex.quote(words)} for images like it")
    encoder, fitted = _open(model, yes, images)
    listed = list_images(source, **images.tables())
    settings = images.settings()
    reading = ReadOptions(open_store(settings["store"]), settings["skip_bad"])
    with bar("encoding") as progress:
        found = rank(
            encoder, listed, words=words, like=like, top=top, fitted=fitted, reading=reading,
            progress=progress,
        )  # fmt: skip
    names = [readable(str(each.image)) for each in found]
    if report is not None:
        from prolip.io.writing import write_text
        from prolip.report.search_page import search_page

        short = [os.path.relpath(name, source) if Path(source).is_dir() else name for name in names]
        title = " ".join(filter(None, [words, f"like {like.name}" if like else None]))
        write_text(report, search_page(found, short, query=title, source=source))
    scores = [each.score for each in found]
    if OUTPUT.get().json:
        rows = zip(names, scores, strict=True)
        print_json([{"image": name, "score": round(score, 6)} for name, score in rows])
        return
    table(None, ["image", "score"], [[name, f"{s:.3f}"] for name, s in zip(names, scores, strict=True)])
    if report is not None:
        say(f"page written to {report}")


def _open(model: str, yes: bool, images: options.ImageInput) -> tuple[Encoder, Projected | None]:
    """Load an encoder by its name, or a saved model: its encoder and its tuned projection."""
    if Path(model).is_dir():
        from prolip.api import FewShotClassifier
        from prolip.core import Projected

        clf = FewShotClassifier.load(model, **images.settings())
        return clf.model_.encoder, clf.fitted_ if isinstance(clf.fitted_, Projected) else None
    from prolip import encoders
    from prolip.cli.models import ensure_downloaded

    ensure_downloaded(model, yes)
    return encoders.load(model, images.device), None
