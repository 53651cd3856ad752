"""`prolip predict`: one image, or a million."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from prolip.cli import options
from prolip.cli.console import (
    LISTED,
    OUTPUT,
    bar,
    percent,
    print_json,
    report_skipped,
    say,
    table,
    warn,
)
from prolip.cli.options import shared
from prolip.cli.parameters import FRACTION, PATH, FilePath, Fraction, argument, command, flag, option
from prolip.io.progress import counted

if TYPE_CHECKING:
    from prolip.api import AdaptedModel
    from prolip.api.predict import PredictionRun, PredictOptions
    from prolip.api.sorting import Sorting
    from prolip.api.tagging import Tagging

    NamedImages = Iterable[tuple[str, Any]]

MAX_TOP = 100_000  # classes; a model with fewer shows all that it has


@dataclass(frozen=True)
class SortOptions:
    """Whether and how image files are sorted into folders, or get keywords."""

    sort_into: Path | None = shared(
        option(
            "--sort-into", type=PATH, metavar="DIR",
            help="Copy each image into a folder for its class; with --reject, into none-of-these too.",
        )
    )  # fmt: skip
    link: bool = shared(flag("--link", help="With --sort-into: link instead of copying."))
    move: bool = shared(flag("--move", help="With --sort-into: move instead of copying."))
    unsure: float | None = shared(
        option(
            "--unsure", type=Fraction(0, 1), metavar="P",
            help="With --sort-into: images below this probability go into the folder unsure; with --tag: "
            "they get no keyword.",
        )
    )  # fmt: skip
    tag: bool = shared(
        flag("--tag", help="Write the class as a keyword into an XMP sidecar beside each image.")
    )
    undo: bool = shared(flag("--undo", help="With --tag: remove the keywords that --tag added."))


@command("predict")
@options.saved_model
@argument(
    "sources", "IMAGE_OR_DIR...",
    "Images, or folders, tables, archives or datasets of them; - reads paths from standard input.",
    nargs=-1, required=True,
)  # fmt: skip
@option("--top", type=click.IntRange(1, MAX_TOP), default=1, help="Number of classes to show for each image.")
@option(
    "--out", "-o", type=FilePath(".csv", ".jsonl"),
    help="A .csv or .jsonl file to write to; a run that was stopped continues there.",
)  # fmt: skip
@flag("--reject", help="No class for images that seem to belong to none.")
@option(
    "--false-reject", type=FRACTION, show_default="0.05",
    help="With --reject: the fraction of images of the classes that may be rejected.",
)  # fmt: skip
@option(
    "--false-accept", type=FRACTION, help="Instead: the fraction of images of other classes that may pass."
)
@flag("--transductive", help="Classify all images together, if that helps held-out labelled ones.")
@options.groups
@options.group("sort", SortOptions)
@options.unlabelled_input
def predict(
    saved: options.SavedModelInput,
    sources: tuple[str, ...],
    top: int,
    out: Path | None,
    reject: bool,
    false_reject: float | None,
    false_accept: float | None,
    transductive: bool,
    groups: Path | None,
    sort: SortOptions,
    images: options.ImageInput,
) -> None:
    """Predict the class of images.

    $ prolip predict my-model new/*.jpg --top 3
    $ find /archive -name '*.jpg' | prolip predict my-model - --out predictions.csv
    $ prolip predict my-model unsorted/ --sort-into sorted --unsure 0.6
    $ prolip predict my-model photos/ --tag
    """
    from prolip.api.groups import read_groups
    from prolip.api.predict import PredictionRun, PredictOptions
    from prolip.api.prediction_file import check_prediction_file
    from prolip.core import UsageError
    from prolip.evaluate.out_of_distribution import FALSE_REJECT

    if not reject and not (false_reject is None and false_accept is None):
        raise UsageError("--false-reject and --false-accept are for --reject: add that option")
    if sort.undo:
        _undo_tags(sources, sort)
        return
    if out is not None:
        check_prediction_file(out)
    clf = saved.load(images)
    model = clf.model_
    predicting = PredictOptions(
        top, reject, FALSE_REJECT if false_reject is None else false_reject, false_accept,
        None if groups is None else read_groups(groups, model.classes), transductive,
    )  # fmt: skip
    run = PredictionRun(model, predicting, clf.reading, _sorting(model, predicting, sources, sort))
    named, total = _named(model, sources, images.tables())
    if out is not None:
        _write(run, named, total, out)
        return
    if run.placement is not None:
        named = _remaining(named, set())
    with bar("encoding") as progress:
        shown = list(run.predict(named, total, progress))
    _report(run, len(shown))
    if run.placement is not None:
        _show_placed(run.placement, len(run.skipped))
    else:
        _show(shown)


def _report(run: PredictionRun, predictions: int) -> None:
    """Print what could not be read, and whether images were predicted together; fail if there is none."""
    from prolip.features.images import NoImageLeft

    if run.skipped and not predictions:
        raise NoImageLeft(run.skipped)
    report_skipped(run.skipped)
    for each in run.evidence:
        say(f"classified {'together' if each.used else 'one by one'}: {each.why}")


def _write(run: PredictionRun, named: NamedImages, total: int | None, out: Path) -> None:
    """Append predictions to a file, except those that it has, and print how many there are."""
    from prolip.api.predict import run_name
    from prolip.api.prediction_file import PredictionFile
    from prolip.core import UsageError

    ranks, name = min(run.options.top, len(run.model.classes)), run_name(run.model, run.options)
    with PredictionFile(out, ranks, run.options.reject, name).opened() as file, bar("encoding") as progress:
        already = len(file.done)
        if already and run.options.transductive:
            raise UsageError(f"{out} has predictions, and --transductive needs all at once: name a new file")
        if already:
            say(f"{already} predictions are in {out} already")
        left = None if total is None else max(0, total - already)
        # Predicted images may not have been sorted yet.
        named = _remaining(named, set() if run.placement else file.done)
        written = file.write(run.predict(named, left, progress))
    _report(run, written + already)
    if run.placement is not None:
        _show_placed(run.placement, len(run.skipped))
    elif OUTPUT.get().json:
        summary = {"out": str(out), "written": written, "already": already, "skipped": len(run.skipped)}
        print_json(summary | ({"transductive": vars(run.evidence[0])} if run.evidence else {}))
    else:
        say(f"{written} predictions written to {out}")


def _remaining(named: NamedImages, done: set[str]) -> Iterator[tuple[str, Any]]:
    """Yield images without a prediction, each once."""
    seen = set(done)
    for name, image in named:
        if name not in seen:
            seen.add(name)
            yield name, image


def _sorting(
    model: AdaptedModel, predicting: PredictOptions, sources: tuple[str, ...], chosen: SortOptions
) -> Sorting | Tagging | None:
    """Return how images are sorted into folders or get keywords, if they do."""
    from prolip.api.sorting import Sorting
    from prolip.api.tagging import Tagging
    from prolip.core import UsageError
    from prolip.data.files import existing
    from prolip.io.files import lies_in

    root = chosen.sort_into
    if root is not None and chosen.tag:
        raise UsageError("--sort-into and --tag exclude each other: tag first, then sort")
    if root is None:
        if chosen.link or chosen.move or (chosen.unsure is not None and not chosen.tag):
            raise UsageError("--link, --move and --unsure are for --sort-into: add that option")
        return Tagging(chosen.unsure or 0.0) if chosen.tag else None
    if chosen.link and chosen.move:
        raise UsageError("--link and --move exclude each other")
    named = [existing(source) for source in sources if source != "-"]
    if named and all(lies_in(path, root) for path in named):
        raise UsageError(
            f"nothing to sort: {sources[0]} is in {root}, the folder to sort into, where images count as "
            "sorted; name another --sort-into"
        )
    classes = model.classes if predicting.groups is None else predicting.groups.names
    way: Literal["copy", "link", "move"] = "link" if chosen.link else "move" if chosen.move else "copy"
    return Sorting(root, classes, way, chosen.unsure or 0.0)


def _undo_tags(sources: tuple[str, ...], chosen: SortOptions) -> None:
    from prolip.api.tagging import untag
    from prolip.core import UsageError

    if not chosen.tag:
        raise UsageError("--undo is for --tag: add that option")
    removed, failed = untag(_lines() if sources == ("-",) else sources)
    _report_sidecars(failed)
    if OUTPUT.get().json:
        print_json({"removed": removed, "failed": len(failed)})
    else:
        say(f"keywords of {counted(removed)} removed")


def _report_sidecars(failed: list[tuple[str, str]]) -> None:
    if failed:
        warn(f"{counted(len(failed), 'sidecar')} cannot be read, and did not change:")
        for name, reason in failed[:LISTED]:
            say(f"  {name}: {reason}")


def _show_placed(sorting: Sorting | Tagging, skipped: int) -> None:
    from prolip.api.tagging import Tagging

    if isinstance(sorting, Tagging):
        _report_sidecars(sorting.failed)
        tagged = {name: n for name, n in sorted(sorting.counts.items()) if name}
        if OUTPUT.get().json:
            print_json({"tagged": tagged, "failed": len(sorting.failed), "skipped": skipped})
            return
        table(None, ["keyword", "images"], [[name, str(n)] for name, n in tagged.items()])
        say("keywords are in XMP sidecars beside the images; --tag --undo removes them")
        return
    if OUTPUT.get().json:
        print_json({"into": str(sorting.root), "sorted": dict(sorting.counts), "skipped": skipped})
        return
    table(None, ["folder", "images"], [[name, str(n)] for name, n in sorted(sorting.counts.items())])
    say(f"sorted into {sorting.root}")


def _named(
    model: AdaptedModel, sources: tuple[str, ...], tables: dict[str, Any]
) -> tuple[NamedImages, int | None]:
    """Return images with their names, and their number; standard input is read as it comes."""
    from prolip.api.support import ImageSource
    from prolip.io.files import readable

    if sources == ("-",):
        return ((readable(line), line) for line in _lines()), None
    return ImageSource(model.encoder).named(sources, **tables)


def _lines() -> Iterator[str]:
    """Yield names of files from standard input, one per line; bytes that are not UTF-8 are preserved."""
    from prolip.core import InputError

    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="surrogateescape")
    line = None
    for line in filter(None, (raw.rstrip("\r\n") for raw in sys.stdin)):
        if "\0" in line:  # in no name, but in every image
            raise InputError("- reads names of files, one per line, not images: name the file")
        yield line
    if line is None:
        raise InputError("no images: - reads names of files from standard input, one per line")


def _show(found: list[dict[str, Any]]) -> None:
    if OUTPUT.get().json:
        print_json(found)
        return
    rows = []
    for row in found:
        ranked = ", ".join(f"{r['class']} {percent(r['probability'])}" for r in row["top"])
        rows.append([str(row["image"]), f"none of these ({ranked})" if row.get("rejected") else ranked])
    table(None, ["image", "class, probability in %"], rows, right=9)
