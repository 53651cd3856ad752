"""`prolip predict` and `embed`: classes and embeddings, of one image or a million."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from prolip.cli import options
from prolip.cli.console import bar, percent, print_as_json, report_skipped, say, table, warn
from prolip.cli.parameters import FRACTION, PATH, FilePath, argument, command, flag, option
from prolip.io.progress import counted

if TYPE_CHECKING:
    from prolip.api.output import PredictionFile, Sorter


@command("predict")
@options.saved_model
@argument(
    "sources", "IMAGE_OR_DIR...",
    "Images, or folders, tables, archives or datasets of them; - reads paths from standard input.",
    nargs=-1, required=True,
)  # fmt: skip
@option("--top", type=click.IntRange(1, 100_000), default=1, help="Number of classes to show for each image.")
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
    "--unsure", type=click.FloatRange(0, 1), metavar="P",
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
    from prolip.api.output import PredictionFile, Sorter, absolute_path
    from prolip.api.predict import PredictOptions
    from prolip.core import UsageError
    from prolip.data.files import existing
    from prolip.evaluate.out_of_distribution import FALSE_REJECT
    from prolip.features import NoImagesError
    from prolip.io.files import readable
    from prolip.io.writing import check_place

    for name, value, needed, target in (
        ("false-reject", false_reject, "reject", reject or None),
        ("append", append or None, "out", out),
        ("unsure", unsure, "sort-into", sort_into),
    ):
        if value is not None and target is None:
            raise UsageError(f"--{name} is for --{needed}: add that option")
    if out is not None and os.path.lexists(out) and not append:
        raise UsageError(f"{out} exists: name another file, or add --append")
    for place in filter(None, (out, sort_into)):
        check_place(place)
    clf = saved.load(settings)
    classes = clf.model_.classes
    rate = FALSE_REJECT if false_reject is None else false_reject
    run = clf.prediction_run(PredictOptions(top, reject, rate, coverage))
    sorter = None
    if sort_into is not None:
        folders = [existing(source) for source in sources if source != "-"]
        sorter = Sorter.of(sort_into, folders, classes, unsure or 0.0)
    file = None if out is None else PredictionFile(out, min(top, len(classes)), append, coverage is not None)
    images: Iterable[Any] = _lines() if sources == ("-",) else tables.listed(list(sources))
    total = len(images) if isinstance(images, list) else None
    named = ((readable(str(image)), image) for image in images)
    already = len(file.done) if file else 0
    if already:
        say(f"{already} predictions are in {out} already")
    waiting: dict[str, Any] = {}  # images without a prediction yet, by name
    pending = _pending(named, waiting, file, sorter)
    shown, count = [], 0
    with file.opened() if file else nullcontext(), bar("encoding") as progress:
        for row in run.predict(pending, None if total is None else max(0, total - already), progress):
            image = waiting.pop(row["image"])
            count += 1
            if sorter:
                sorter.copy(Path(image), row)
            if file:
                file.write(row, absolute_path(image) if _is_file(image) else None)
            elif not sorter:
                shown.append(row)
    if run.skipped and not count + already:
        raise NoImagesError(run.skipped)
    report_skipped(run.skipped)
    if file or sorter:
        summary = {"written": count, "already": already, "skipped": len(run.skipped)}
        _summarise(summary, out, sorter)
    elif not print_as_json(shown):
        rows = [[str(row["image"]), _describe(row), ", ".join(map(str, row.get("set", ())))] for row in shown]
        table(None, ["image", "class, probability in %", "" if coverage is None else "set"], rows, right=9)


def _summarise(summary: dict[str, Any], out: Path | None, sorter: Sorter | None) -> None:
    """Print how many images were predicted and copied, and where."""
    if out:
        say(f"{summary['written']} predictions written to {out}")
        summary |= {"out": str(out)}
    if sorter:
        say(f"sorted into {sorter.target}")
        summary |= {"into": str(sorter.target), "sorted": dict(sorter.counts), "failed": len(sorter.failed)}
        if sorter.failed:
            warn(f"{counted(len(sorter.failed))} could not be copied, like {': '.join(sorter.failed[0])}")
    if not print_as_json(summary) and sorter:
        table(None, ["folder", "images"], [[name, str(n)] for name, n in sorted(sorter.counts.items())])


def _pending(
    named: Iterable[tuple[str, Any]],
    waiting: dict[str, Any],
    file: PredictionFile | None,
    sorter: Sorter | None,
) -> Iterator[tuple[str, Any]]:
    """Yield each image once that the file does not have, and note it in `waiting`."""
    from prolip.api.output import absolute_path
    from prolip.core import UsageError

    seen: set[str] = set()
    for name, image in named:
        if not _is_file(image) and (sorter or (file and file.append)):
            raise UsageError(f"{name} is not a file of its own: unpack it to sort it, or to append")
        if name not in seen and not (file and _is_file(image) and absolute_path(image) in file.done):
            seen.add(name)
            waiting[name] = image
            yield name, image


def _is_file(image: Any) -> bool:
    """Whether an image is a path, not a part of an archive or of a table."""
    return isinstance(image, (str, os.PathLike))


def _lines() -> Iterator[str]:
    """Yield names of files from standard input, one per line; bytes that are not UTF-8 are preserved."""
    from prolip.core import InputError

    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="surrogateescape")
    for line in sys.stdin:
        if "\0" in line:  # in no name, but in every image
            raise InputError("- reads names of files, one per line, not images: name the file")
        if name := line.rstrip("\r\n"):
            yield name


def _describe(row: dict[str, Any]) -> str:
    """Return the most probable classes of an image in words."""
    ranked = ", ".join(f"{r['class']} {percent(r['probability'])}" for r in row["top"])
    if not row.get("rejected"):
        return ranked
    return f"none of these ({ranked})" if row["class"] is None else f"{ranked} (none of these?)"


@command("embed")
@options.saved_model
@argument("sources", "DIR...", "Folders of images, archives, tables or images.", nargs=-1, required=True)
@option("--out", "-o", type=FilePath(".npz", ".parquet"), required=True, help="An .npz or .parquet file.")
@option(
    "--ray",
    metavar="ADDRESS",
    help="Encode on a Ray cluster: local starts one here, auto joins a running one.",
)
@options.unlabelled_encoding
@options.unlabelled_tables
def embed(
    saved: options.SavedModel,
    sources: tuple[str, ...],
    out: Path,
    ray: str | None,
    settings: dict[str, Any],
    tables: options.Tables,
) -> None:
    """Write the path and the adapted embedding of each image.

    Features are stored, so that the embeddings of another fit on the same base model take seconds.

    $ prolip embed my-model archive/ -o index.npz
    """
    from prolip.api.output import write_embeddings
    from prolip.core import UsageError
    from prolip.io.files import readable
    from prolip.io.writing import check_place

    check_place(out)
    clf, paths = saved.load(settings), tables.listed(list(sources))
    if ray is not None:
        from prolip.features.pool_extract import store_features
        from prolip.io.pool import open_pool

        if clf.reading.store is None or not all(isinstance(path, Path) for path in paths):
            raise UsageError("--ray encodes files into the store: unpack archives, and omit --no-store")
        with open_pool(ray_address=ray) as pool, bar("encoding on Ray") as progress:
            store_features(pool, clf.model_.encoder, paths, clf.reading.store, progress)
    extraction = clf.features(paths)
    rows = clf.model_.embed(extraction.features[0])
    write_embeddings(out, [readable(str(paths[i])) for i in extraction.kept], rows)
    report_skipped(extraction.bad)
    summary = {"out": str(out), "images": len(rows), "dimensions": rows.shape[1]}
    if not print_as_json({**summary, "skipped": len(extraction.bad)}):
        say(f"embeddings of {counted(len(rows))}, {rows.shape[1]} dimensions each, are in {out}")
