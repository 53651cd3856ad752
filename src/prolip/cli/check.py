"""`prolip check`: find problems in a folder of images."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from prolip.cli import options
from prolip.cli.console import OUTPUT, console, escape, print_json, table
from prolip.cli.parameters import CSV, HTML, PATH, argument, command, option

if TYPE_CHECKING:
    from prolip import FewShotClassifier
    from prolip.api.check import Check

SHOWN = 10


@command("check")
@argument("source", "DIR", "A folder per class; or a folder with train/ and test/.", type=PATH)
@option("--out", "-o", type=CSV, help="Write path, label and suggested label of each finding to a .csv file.")
@option("--report", type=HTML, help="Write a page with the images, an .html file.")
@option("--saved", type=PATH, help="Use this saved model instead of fitting one on DIR.")
@options.base
@options.fit_options("model", "download", "seed", "device", "store")
@options.tables
def check(
    source: Path,
    saved: Path | None,
    base: str | None,
    report: Path | None,
    out: Path | None,
    settings: dict[str, Any],
    tables: options.Tables,
) -> None:
    """Find label errors, near-copies, and images of none of the classes.

    Unreadable images are listed too. Nothing is changed: correct the folders by the list of --out, or the
    labels on the page of `prolip app`.

    $ prolip check photos/ --report check.html --out check.csv
    """
    from prolip.core import UsageError
    from prolip.io.writing import write_text

    if saved is not None:
        for name in ("model", "seed"):
            if click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE:
                raise UsageError(f"--{name} is for a fit on the images, and --saved has a fitted model")
        runtime: dict[str, Any] = {name: settings[name] for name in ("device", "store") if name in settings}
        clf = options.SavedModel(saved, base).load(runtime)
    elif base is not None:
        raise UsageError("--base is for --saved: add that option")
    else:
        clf = options.new_classifier(settings)
    found = _look(clf, source, 2 if saved is None else 1, tables)
    if out is not None:
        found.write_csv(out)
    if report is not None:
        from prolip.report import check_page

        write_text(report, check_page(found, title=f"Check of {source.resolve().name}", source=str(source)))
    if OUTPUT.get().json:
        print_json(_as_json(found, {"report": report, "out": out}))
        return
    _show(found)
    for what, path in (("List", out), ("Page", report)):
        if path is not None:
            console().print(f"{what}: [bold]{escape(str(path))}[/]")


def _look(clf: FewShotClassifier, source: Path, min_classes: int, tables: options.Tables) -> Check:
    """Check the training images of a folder, and test images if it has both."""
    from prolip.data import read_images
    from prolip.data.folders import MissingSplitError

    test = None
    train = read_images(source, split="train", min_classes=min_classes, **vars(tables))
    if train.split == "train":
        with suppress(MissingSplitError):
            test = read_images(source, split="test", min_classes=1, **vars(tables))
    return clf.check(train, test=None if test is None or test.images == train.images else test)


def _as_json(found: Check, written: dict[str, Path | None]) -> dict[str, Any]:
    return {
        "images": len(found.images),
        "classes": found.classes,
        "counts": found.counts,
        "accuracy": found.accuracy,
        "findings": found.rows(),
        "small_classes": [name for name, _ in found.small],
        **{name: str(path) for name, path in written.items() if path is not None},
    }


def _show(found: Check) -> None:
    from prolip.api.check import KINDS

    rows = found.rows()
    table(None, ["problem", "images"], [[kind, str(len(found.of_kind(kind)))] for kind in KINDS])
    for kind in KINDS:
        own = [row for row in rows if row["kind"] == kind]
        if not own:
            continue
        console().print()
        header = [{"label-error": "probably", "unreadable": "why"}.get(kind, "same as")]
        cells = [[str(r["suggestion"] or r["reason"] or r["other"])] for r in own]
        if kind == "two-classes":
            header, cells = ["same as", "label"], [[str(r["other"]), str(r["other_label"])] for r in own]
        if kind == "none-of-these":
            header, cells = ["nearest class"], [[f"cosine {r['score']:.2f}"] for r in own]
        images = [[str(r["path"]), str(r["label"]), *cell] for r, cell in zip(own, cells, strict=True)]
        table(kind, ["image", "label", *header], images[:SHOWN], right=9)
        if len(own) > SHOWN:
            console().print(f"... and {len(own) - SHOWN} more")
    console().print()
    if found.small:
        names = ", ".join(f"{name} ({n})" for name, n in found.small[:SHOWN])
        console().print(escape(f"too small: {names}"))
