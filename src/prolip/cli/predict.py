"""`prolip predict`: one image, or a million."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from prolip.cli import options
from prolip.cli.console import LISTED, OUTPUT, bar, percent, print_json, report_skipped, say, table, warn
from prolip.cli.parameters import FRACTION, PATH, FilePath, Fraction, argument, command, flag, option
from prolip.io.progress import counted

if TYPE_CHECKING:
    from prolip.api.output import PredictionFile, Sorter
    from prolip.api.predict import PredictionRun

    NamedImages = Iterable[tuple[str, Any]]

MAX_TOP = 100_000  # classes; a model with fewer shows all that it has


@command("predict")
@options.saved_model
@argument(
    "sources", "IMAGE_OR_DIR...",
    "Images, or folders, tables, archives or datasets of them; - reads paths from standard input.",
    nargs=-1, required=True,
)  # fmt: skip
@option("--top", type=click.IntRange(1, MAX_TOP), default=1, help="Number of classes to show for each image.")
@option("--out", "-o", type=FilePath(".csv", ".jsonl"), help="A new .csv or .jsonl file to write to.")
@flag("--append", help="With --out: add to the file; skip images that it has.")
@flag("--reject", help="No class for images that seem to belong to none; they are marked in any case.")
@option(
    "--false-reject", type=FRACTION, show_default="0.05",
    help="With --reject: the fraction of images of the classes that may be rejected.",
)  # fmt: skip
@option(
    "--set", "coverage", type=FRACTION, metavar="P",
    help="Show the classes that contain the right one with this frequency, such as 0.95.",
)  # fmt: skip
@option(
    "--sort-into", type=PATH, metavar="DIR",
    help="Copy each image into a folder for its class; with --reject, into none-of-these too.",
)  # fmt: skip
@option(
    "--unsure", type=Fraction(0, 1), metavar="P",
    help="With --sort-into: images below this probability go into the folder unsure.",
)  # fmt: skip
@options.unlabelled_encoding
@options.unlabelled_tables
def predict(
    saved: options.SavedModel,
    sources: tuple[str, ...],
    top: int,
    out: Path | None,
    append: bool,
    reject: bool,
    false_reject: float | None,
    coverage: float | None,
    sort_into: Path | None,
    unsure: float | None,
    settings: dict[str, Any],
    tables: options.Tables,
) -> None:
    """Predict the class of images.

    $ prolip predict my-model new/*.jpg --top 3
    $ find /archive -name '*.jpg' | prolip predict my-model - --out predictions.csv
    $ prolip predict my-model unsorted/ --sort-into sorted --unsure 0.6
    """
    from prolip.api.output import PredictionFile, Sorter
    from prolip.api.predict import PredictOptions
    from prolip.core import UsageError
    from prolip.data.files import existing
    from prolip.evaluate.out_of_distribution import FALSE_REJECT

    if not reject and false_reject is not None:
        raise UsageError("--false-reject is for --reject: add that option")
    if append and out is None:
        raise UsageError("--append is for --out: add that option")
    if unsure is not None and sort_into is None:
        raise UsageError("--unsure is for --sort-into: add that option")
    if out is not None and os.path.lexists(out) and not append:
        raise UsageError(f"{out} exists: name another file, or add --append")
    clf = saved.load(settings)
    classes = clf.model_.classes
    rate = FALSE_REJECT if false_reject is None else false_reject
    run = clf.prediction_run(PredictOptions(top, reject, rate, coverage))
    sorter = None
    if sort_into is not None:
        named_sources = [existing(source) for source in sources if source != "-"]
        sorter = Sorter.of(sort_into, named_sources, classes, unsure or 0.0)
    file = None if out is None else PredictionFile(out, min(top, len(classes)), append, coverage is not None)
    named, total = _named(sources, tables)
    if file is None and sorter is None:
        with bar("encoding") as progress:
            shown = list(run.predict(named, total, progress))
        _report(run, len(shown))
        _show(shown)
    else:
        _write(run, named, total, file, sorter)


def _write(
    run: PredictionRun,
    named: NamedImages,
    total: int | None,
    file: PredictionFile | None,
    sorter: Sorter | None,
) -> None:
    """Copy images, then write their predictions, as they come; print how many there are."""
    from contextlib import nullcontext

    already = len(file.done) if file else 0
    if file and already:
        say(f"{already} predictions are in {file.path} already")
    waiting: dict[str, tuple[Any, str | None]] = {}  # images without a prediction yet, by name
    pending = _pending(named, waiting, file, sorter)
    written = 0
    with file.opened() if file else nullcontext(), bar("encoding") as progress:
        for row in run.predict(pending, None if total is None else max(0, total - already), progress):
            image, path = waiting.pop(row["image"])
            if sorter:
                sorter.copy(Path(image), row)
            if file:
                file.write(row, path)
            written += 1
    _report(run, written + already)
    if sorter and sorter.failed:
        warn(f"{counted(len(sorter.failed))} could not be copied:")
        for name, reason in sorter.failed[:LISTED]:
            say(f"  {name}: {reason}")
    summary: dict[str, Any] = {"written": written, "already": already, "skipped": len(run.skipped)}
    if file:
        summary |= {"out": str(file.path)}
    if sorter:
        summary |= {"into": str(sorter.target), "sorted": dict(sorter.counts), "failed": len(sorter.failed)}
    if OUTPUT.get().json:
        print_json(summary)
        return
    if sorter:
        table(None, ["folder", "images"], [[name, str(n)] for name, n in sorted(sorter.counts.items())])
        say(f"sorted into {sorter.target}")
    if file:
        say(f"{written} predictions written to {file.path}")


def _pending(
    named: NamedImages,
    waiting: dict[str, tuple[Any, str | None]],
    file: PredictionFile | None,
    sorter: Sorter | None,
) -> Iterator[tuple[str, Any]]:
    """Yield each image once that the file does not have, and note its path in `waiting`."""
    from prolip.api.output import absolute_path
    from prolip.core import UsageError

    seen: set[str] = set()
    for name, image in named:
        is_file = isinstance(image, (str, os.PathLike))
        if not is_file and (sorter or (file and file.append)):
            raise UsageError(f"{name} is not a file of its own: unpack it to sort it, or to append")
        path = absolute_path(image) if is_file else None
        if name not in seen and not (file and path in file.done):
            seen.add(name)
            waiting[name] = image, path
            yield name, image


def _report(run: PredictionRun, predictions: int) -> None:
    """Print what could not be read; fail if there is nothing else."""
    from prolip.features.images import NoImagesError

    if run.skipped and not predictions:
        raise NoImagesError(run.skipped)
    report_skipped(run.skipped)


def _named(sources: tuple[str, ...], tables: options.Tables) -> tuple[NamedImages, int | None]:
    """Return images with their names, and their number; standard input is read as it comes."""
    from prolip.io.files import readable

    if sources == ("-",):
        return ((readable(line), line) for line in _lines()), None
    listed = tables.listed(list(sources))
    return ((readable(str(image)), image) for image in listed), len(listed)


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
    rows, columns = [], ["image", "class, probability in %"]
    if found and "set" in found[0]:
        columns.append("set")
    for row in found:
        ranked = ", ".join(f"{r['class']} {percent(r['probability'])}" for r in row["top"])
        if row.get("rejected"):
            ranked = f"none of these ({ranked})" if row["class"] is None else f"{ranked} (none of these?)"
        rows.append([str(row["image"]), ranked, *([", ".join(map(str, row["set"]))] if "set" in row else [])])
    table(None, columns, rows, right=9)
