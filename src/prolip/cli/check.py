"""`prolip check`: find problems in a folder of images."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from prolip.cli import options
from prolip.cli.console import OUTPUT, bar, console, escape, percent, print_json, table
from prolip.cli.parameters import CSV, HTML, PATH, SEED, argument, command, option

if TYPE_CHECKING:
    from prolip.api import FewShotClassifier
    from prolip.api.check import Check

SHOWN = 10


@command("check")
@argument("source", "DIR", "A folder per class; or a folder with train/ and test/.", type=PATH)
@options.base_model
@option("--saved", type=PATH, help="Use this saved model instead of fitting one on DIR.")
@options.base
@option("--report", type=HTML, help="Write a page with the images, an .html file.")
@option("--out", "-o", type=CSV, help="Write path, label and suggested label of each finding to a .csv file.")
@option("--seed", type=SEED, default=0, help="Random seed for the folds.")
@options.group("images", options.ImageInput, without=("strict",))
def check(
    source: Path,
    model: str,
    saved: Path | None,
    base: str | None,
    report: Path | None,
    out: Path | None,
    seed: int,
    images: options.ImageInput,
) -> None:
    """Find wrong labels, duplicates, images of no class.

    ReadError images are listed too. Nothing is changed: correct the folders by the list of --out, or the
    labels on the page of `prolip app`.

    $ prolip check photos/ --report check.html --out check.csv
    """
    from prolip.api import FewShotClassifier
    from prolip.core import UsageError
    from prolip.io.writing import write_text

    if saved is not None:
        for name in ("model", "seed"):
            if click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE:
                raise UsageError(f"--{name} is for a fit on the images, and --saved has a fitted model")
        clf = FewShotClassifier.load(saved, base=base, **images.settings())
    elif base is not None:
        raise UsageError("--base is for --saved: add that option")
    else:
        clf = FewShotClassifier(model, seed=seed, **images.settings())
    found = _look(clf, source, 2 if saved is None else 1, images)
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


def _look(clf: FewShotClassifier, source: Path, min_classes: int, images: options.ImageInput) -> Check:
    """Check the training images of a folder, and test images if it has both."""
    from prolip.data import read_images
    from prolip.data.folders import MissingSplitError

    tables, test = images.tables(labelled=True), None
    train = read_images(source, split="train", min_classes=min_classes, **tables)
    if train.split == "train":
        with suppress(MissingSplitError):
            test = read_images(source, split="test", min_classes=1, **tables)
    if test is not None and test.images == train.images:
        test = None
    with bar("encoding") as progress:
        return clf.check(train, test=test, progress=progress)


def _as_json(found: Check, written: dict[str, Path | None]) -> dict[str, Any]:
    return {
        "images": len(found.images),
        "classes": found.classes,
        "counts": found.counts,
        "accuracy": found.accuracy,
        "findings": found.rows(),
        "small_classes": [name for name, _ in found.small],
        "alike": [{"classes": [a, b], "mixed": share} for a, b, share in found.alike],
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
        header = [{"wrong-label": "probably", "unreadable": "why"}.get(kind, "same as")]
        cells = [[str(r["suggestion"] or r["other"])] for r in own]
        if kind == "no-class":
            header, cells = ["nearest class"], [[f"cosine {r['score']:.2f}"] for r in own]
        images = [[str(r["path"]), str(r["label"]), *cell] for r, cell in zip(own, cells, strict=True)]
        table(kind, ["image", "label", *header], images[:SHOWN], right=9)
        if len(own) > SHOWN:
            console().print(f"... and {len(own) - SHOWN} more")
    console().print()
    if found.small:
        names = ", ".join(f"{name} ({n})" for name, n in found.small[:SHOWN])
        console().print(escape(f"too small: {names}"))
    for a, b, share in found.alike[:SHOWN]:
        console().print(escape(f"often confused: {a} and {b}, {percent(share)} % of their images"))
