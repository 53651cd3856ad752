"""`prolip eval`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prolip.cli import options
from prolip.cli.console import OUTPUT, console, escape, percent, print_json, report_skipped, table
from prolip.cli.parameters import CSV, HTML, argument, command, flag, option
from prolip.io.progress import counted

if TYPE_CHECKING:
    from prolip.api.evaluate import Report
    from prolip.evaluate.figures import Figures


@command("eval")
@options.saved_model
@argument("source", "DIR", f"Labelled images: {options.LABELLED}; its test split, if there is one.")
@option("--report", type=HTML, help="Write a page with the confusion matrix and mistakes, an .html file.")
@option("--out", "-o", type=CSV, help="Write label, prediction and probability of each image to a .csv file.")
@flag("--per-image", help="With --json: label, prediction and probability of each image.")
@options.labelled_encoding
@options.tables
def evaluate(
    saved: options.SavedModel,
    source: str,
    report: Path | None,
    out: Path | None,
    per_image: bool,
    settings: dict[str, Any],
    tables: options.Tables,
) -> None:
    """Measure a saved model on labelled images.

    Prints accuracy, zero-shot accuracy, the accuracy of each class, and the calibration error.

    $ prolip eval my-model photos/
    $ prolip eval my-model photos/ --report report.html --out predictions.csv
    """
    from prolip.cli.report import write_page
    from prolip.core import UsageError

    if per_image and not OUTPUT.get().json:
        raise UsageError("--per-image is for --json: add that option")
    clf, images = saved.load(settings), tables.labelled(source, "test")
    evaluation = clf.report(images, held_out=False)
    if out is not None:
        evaluation.write_csv(out)
    if report is not None:  # the page shows predictions by fits that did not see the images
        page = clf.report(images) if evaluation.duplicates else evaluation
        write_page(report, clf, page, saved.path.resolve().name, source)
    report_skipped(evaluation.skipped)
    written = {name: str(path) for name, path in (("out", out), ("report", report)) if path is not None}
    if OUTPUT.get().json:
        each = {"predictions": _per_image(evaluation)} if per_image else {}
        print_json({**evaluation.figures.to_json(), **written, **each})
        return
    _show(evaluation.figures)
    for name, path in written.items():
        console().print(
            f"{'Predictions' if name == 'out' else 'Page'}: [bold]{escape(path)}[/]", soft_wrap=True
        )


def _show(figures: Figures) -> None:
    """Print the accuracy of each class, and of all images."""
    columns = figures.classes or (), figures.counts or (), figures.per_class or ()
    rows = [[str(name), str(n), percent(a)] for name, n, a in zip(*columns, strict=True) if n]
    table(None, ["class", "images", "accuracy %"], rows)
    console().print()
    low, high = figures.accuracy_interval or (None, None)
    console().print(
        f"accuracy [bold]{percent(figures.accuracy)} %[/] on {counted(figures.images)} "
        f"(95 % interval {percent(low)} to {percent(high)} %, "
        f"zero-shot {percent(figures.zero_shot_accuracy)} %), "
        f"balanced {percent(figures.balanced_accuracy)} %, "
        f"calibration error {percent(figures.calibration_error)} % "
        f"(at temperature 1: {percent(figures.calibration_error_before)} %, "
        f"by chance alone {percent(figures.calibration_error_floor)} %)"
    )
    if figures.negatives:
        console().print(
            f"of {counted(figures.negatives)} of none of the classes, "
            f"{percent(figures.negatives_rejected)} % are recognised as none of these"
        )


def _per_image(labelled: Report) -> list[dict[str, Any]]:
    """Return label, prediction and probability of every image that can be read."""
    names, classes = labelled.names, labelled.predictions.classes
    rows = replace(labelled.predictions, rejected=None).to_json()
    return [
        {"image": name, "label": classes[y], "class": row["class"], "probability": row["probability"]}
        for name, y, row in zip(names, labelled.y, rows, strict=True)
    ]
