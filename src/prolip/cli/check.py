"""`prolip check`: find problems in a folder of images."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prolip.cli import options
from prolip.cli.console import console, escape, print_as_json, show_written, table
from prolip.cli.parameters import CSV, HTML, PATH, argument, command, option

if TYPE_CHECKING:
    from prolip.api.check import Check

SHOWN = 10  # images of a kind, and classes


@command("check")
@argument("source", "DIR", "A folder per class; or a folder with train/ and test/.", type=PATH)
@option("--out", "-o", type=CSV, help="Write path, label and suggested label of each finding to a .csv file.")
@option("--report", type=HTML, help="Write a page with the images, an .html file.")
@options.fit_options("model", "download", "seed", "device", "store")
@options.tables
def check(
    source: Path, report: Path | None, out: Path | None, settings: dict[str, Any], tables: options.Tables
) -> None:
    """Find label errors, near-copies, and images of none of the classes.

    Unreadable images are listed too. Nothing is changed: correct the folders by the list of --out, or the
    labels on the page of `prolip app`.

    $ prolip check photos/ --report check.html --out check.csv
    """
    from prolip.data import read_images
    from prolip.data.folders import MissingSplitError
    from prolip.io.writing import write_text

    clf, test = options.new_classifier(settings), None
    train = read_images(source, split="train", min_classes=2, **vars(tables))
    if train.split == "train":
        with suppress(MissingSplitError):
            test = read_images(source, split="test", min_classes=1, **vars(tables))
    result = clf.check(train, test=None if test is None or test.images == train.images else test)
    if out is not None:
        result.write_csv(out)
    if report is not None:
        from prolip.report import check_page

        write_text(report, check_page(result, title=f"Check of {source.resolve().name}", source=str(source)))
    written = {name: str(path) for name, path in (("report", report), ("out", out)) if path is not None}
    if not print_as_json({**_as_json(result), **written}):
        _show(result)
        show_written(list=out, page=report)


def _as_json(result: Check) -> dict[str, Any]:
    return {
        "images": len(result.images),
        "classes": result.classes,
        "counts": result.counts,
        "accuracy": result.accuracy,
        "findings": result.rows(),
        "small_classes": [name for name, _ in result.small],
    }


def _show(result: Check) -> None:
    from prolip.api.check import KINDS

    rows = {kind: [row for row in result.rows() if row["kind"] == kind] for kind in KINDS}
    table(None, ["problem", "images"], [[kind, str(len(rows[kind]))] for kind in KINDS])
    for kind in (kind for kind in KINDS if rows[kind]):
        console().print()
        shown = [[str(row["path"]), str(row["label"]), _why(row)] for row in rows[kind][:SHOWN]]
        table(kind, ["image", "label", ""], shown, right=9)
        if len(rows[kind]) > SHOWN:
            console().print(f"... and {len(rows[kind]) - SHOWN} more")
    console().print()
    if result.small:
        names = ", ".join(f"{name} ({n})" for name, n in result.small[:SHOWN])
        console().print(escape(f"too small: {names}"))


def _why(row: dict[str, Any]) -> Any:
    """Return what a finding is based on."""
    if row["other"]:
        label = "" if row["other_label"] == row["label"] else f" ({row['other_label']})"
        return f"same as {row['other']}{label}"
    if row["suggestion"]:
        return f"probably {row['suggestion']}"
    return row["reason"] or f"cosine {row['score']:.2f} to the nearest class"
