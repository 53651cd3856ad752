"""`prolip predict` and `embed`: classes and embeddings, of one image or a million."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from prolip.cli import options
from prolip.cli.console import bar, percent, print_as_json, report_skipped, say, table, warn
from prolip.cli.options import CSV, FRACTION, PATH, FilePath, argument, command, flag, option
from prolip.io.progress import counted

if TYPE_CHECKING:
    from prolip.api.output import Sorter


@command("predict")
@options.saved_model(*options.ENCODING, tolerance=options.SKIP_ALL)
@argument(
    "sources", "IMAGE_OR_DIR...", "Images, or folders, tables, archives or datasets of them.", nargs=-1,
    required=True,
)  # fmt: skip
@option("--top", type=click.IntRange(1, 100_000), default=1, help="Number of classes to show for each image.")
@option("--out", "-o", type=CSV, help="A new .csv file to write to.")
@flag("--reject", help="No class for images that seem to belong to none; they are marked in any case.")
@option(
    "--false-reject", type=FRACTION, default=0.05,
    help="Fraction of images of the classes that may be marked, and rejected with --reject.",
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
    "--unsure", type=click.FloatRange(0, 1), default=0.0, metavar="P",
    help="With --sort-into: images below this probability go into the folder unsure.",
)  # fmt: skip
@options.unlabelled_tables
def predict(
    saved: options.SavedModel,
    sources: tuple[str, ...],
    top: int,
    out: Path | None,
    reject: bool,
    false_reject: float,
    coverage: float | None,
    sort_into: Path | None,
    unsure: float,
    tables: options.Tables,
) -> None:
    """Predict the class of images.

    Their features are stored: an interrupted run that is started again continues.

    $ prolip predict my-model new/*.jpg --top 3
    $ prolip predict my-model archive/ --out predictions.csv
    $ prolip predict my-model unsorted/ --sort-into sorted --unsure 0.6
    """
    from prolip.api.output import Sorter, folder_names, write_predictions
    from prolip.api.predict import PredictOptions
    from prolip.core import UsageError
    from prolip.io.writing import check_place

    if unsure and sort_into is None:
        raise UsageError("--unsure is for --sort-into: add that option")
    options.require_new_file(out)
    for place in filter(None, (out, sort_into)):
        check_place(place)
    for source in map(Path, sources):
        if sort_into is not None and sort_into.resolve().is_relative_to(source.resolve()):
            raise UsageError(
                f"{sort_into} is inside {source}, whose images it would join: name another folder"
            )
    clf = saved.load()
    classes = clf.model_.classes
    sorter = None if sort_into is None else Sorter(sort_into, folder_names(classes), unsure)
    images = list(dict.fromkeys(tables.listed(list(sources))))
    skipped: list[tuple[str, str]] = []
    predictions = clf.predict_stream(images, PredictOptions(top, reject, false_reject, coverage), skipped)

    def rows() -> Iterator[dict[str, Any]]:
        for image, row in predictions:
            if sorter:
                sorter.copy(image, row)
            yield row

    if out is not None:
        count, shown = write_predictions(out, rows(), min(top, len(classes)), coverage is not None), []
    else:
        shown = list(rows())
        count = len(shown)
    report_skipped(skipped)
    if out is not None or sorter:
        _summarise({"written": count, "skipped": len(skipped)}, out, sorter)
    elif not print_as_json(shown):
        lines = [
            [str(row["image"]), _describe(row), ", ".join(map(str, row.get("set", ())))] for row in shown
        ]
        table(None, ["image", "class, probability in %", "" if coverage is None else "set"], lines, right=9)


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


def _describe(row: dict[str, Any]) -> str:
    """Return the most probable classes of an image in words."""
    ranked = ", ".join(f"{r['class']} {percent(r['probability'])}" for r in row["top"])
    if not row.get("rejected"):
        return ranked
    return f"none of these ({ranked})" if row["class"] is None else f"{ranked} (none of these?)"


@command("embed")
@options.saved_model(*options.ENCODING, tolerance=options.SKIP_ALL)
@argument("sources", "DIR...", "Folders of images, archives, tables or images.", nargs=-1, required=True)
@option("--out", "-o", type=FilePath(".npz"), required=True, help="An .npz file.")
@option(
    "--ray",
    metavar="ADDRESS",
    help="Encode on a Ray cluster: local starts one here, auto joins a running one.",
)
@options.unlabelled_tables
def embed(
    saved: options.SavedModel, sources: tuple[str, ...], out: Path, ray: str | None, tables: options.Tables
) -> None:
    """Write the path and the adapted embedding of each image.

    Features are stored, so that the embeddings of another fit on the same base model take seconds.

    $ prolip embed my-model archive/ -o index.npz
    """
    from prolip.api.output import write_embeddings
    from prolip.core import UsageError
    from prolip.io.files import readable
    from prolip.io.writing import check_place

    options.require_new_file(out)
    check_place(out)
    clf, paths = saved.load(), tables.listed(list(sources))
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
