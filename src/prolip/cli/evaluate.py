"""`prolip eval` and `report`: figures, and a page, of a model on labelled images."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from prolip.cli import options
from prolip.cli.console import (
    console,
    interval,
    percent,
    print_as_json,
    report_skipped,
    show_written,
    table,
)
from prolip.cli.parameters import CSV, HTML, argument, command, option
from prolip.io.progress import counted

if TYPE_CHECKING:
    from prolip import FewShotClassifier
    from prolip.api.evaluate import Report
    from prolip.evaluate.metrics import Figures


@command("eval")
@options.saved_model(*options.ENCODING)
@argument("source", "DIR", f"Labelled images: {options.LABELLED}; its test split, if there is one.")
@option("--out", "-o", type=CSV, help="Write label, prediction and probability of each image to a .csv file.")
@options.tables
def evaluate(saved: options.SavedModel, source: str, out: Path | None, tables: options.Tables) -> None:
    """Measure a saved model on labelled images.

    Prints accuracy, zero-shot accuracy, the accuracy of each class, and how far probabilities can be trusted.

    $ prolip eval my-model photos/
    $ prolip eval my-model photos/ --out predictions.csv
    """
    clf, images = saved.load(), tables.labelled(source, "test")
    evaluation = clf.report(images, held_out=False)
    if out is not None:
        evaluation.write_csv(out)
    report_skipped(evaluation.skipped)
    figures = evaluation.figures
    if print_as_json(figures.to_json() | ({} if out is None else {"out": str(out)})):
        return
    columns = figures.classes or (), figures.counts or (), figures.per_class or ()
    rows = [[str(name), str(n), percent(a)] for name, n, a in zip(*columns, strict=True) if n]
    table(None, ["class", "images", "accuracy %"], rows)
    console().print(f"\n{_accuracy(figures)}, mean over classes {percent(figures.balanced_accuracy)} %")
    console().print(
        f"probabilities are {percent(figures.calibration_error)} points off on average (calibration error; "
        f"{percent(figures.calibration_error_floor)} by chance alone with so few images): of predictions "
        "with 80 %, about 80 % should be correct"
    )
    if figures.negatives:
        console().print(
            f"of {counted(figures.negatives)} of none of the classes, "
            f"{percent(figures.negatives_rejected)} % are recognised as none of these"
        )
    show_written(predictions=out)


@command("report")
@options.saved_model(*options.ENCODING)
@argument(
    "source", "[DIR]", "Labelled images, also those that the model was fitted on; by default, the page is "
    "about the features in the model.", required=False,
)  # fmt: skip
@option("--out", "-o", type=HTML, show_default="report.html", help="The page to write.")
@options.tables
def report(saved: options.SavedModel, source: str | None, out: Path | None, tables: options.Tables) -> None:
    """Write a page about a model: confusion matrix, mistakes.

    Images that the model was fitted on are classified by fits that did not see them, so that the accuracy is
    not too high; where that is not possible, there is a warning. The page is one file and loads nothing from
    the network.

    $ prolip report my-model photos/ -o report.html
    """
    from prolip.core import UsageError

    out = out or Path("report.html")
    if out.exists() and b"Made by prolip" not in out.read_bytes():
        raise UsageError(f"{out} is not a page of this program: name another file with -o")
    clf = saved.load()
    evaluation = clf.report(None if source is None else tables.labelled(source, "test"))
    write_page(out, clf, evaluation, saved.path.resolve().name, source or "its training images")
    figures = evaluation.figures
    report_skipped(evaluation.skipped)
    if print_as_json({**figures.to_json(), "held_out": int(evaluation.held_out.sum()), "out": str(out)}):
        return
    console().print(_accuracy(figures))
    show_written(page=out)


def _accuracy(figures: Figures) -> str:
    return (
        f"accuracy [bold]{percent(figures.accuracy)} %[/] on {counted(figures.images)} "
        f"({interval(figures.accuracy_interval)}, zero-shot {percent(figures.zero_shot_accuracy)} %)"
    )


def write_page(path: Path, clf: FewShotClassifier, evaluation: Report, title: str, source: str) -> None:
    """Write a page about a model and its predictions."""
    from prolip.api.classifier import progress_bars
    from prolip.api.grow import brief_curve
    from prolip.io.writing import write_text
    from prolip.report import model_page

    with progress_bars(clf.progress) as bar:
        curve = brief_curve(clf.model_, bar("fitting", "fits"))
    write_text(path, model_page(clf.model_, evaluation, title=title, source=source, curve=curve))
