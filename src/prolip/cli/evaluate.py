"""`prolip eval`, `report` and `check`: a model on labelled images, and problems of the images themselves."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prolip.cli import options
from prolip.cli.console import (
    class_table,
    console,
    escape,
    interval,
    percent,
    print_as_json,
    report_skipped,
    show_written,
    table,
)
from prolip.cli.options import CSV, HTML, PATH, argument, command, option
from prolip.io.progress import counted

if TYPE_CHECKING:
    from prolip import FewShotClassifier
    from prolip.api.check import Check
    from prolip.api.evaluate import Report
    from prolip.evaluate.metrics import Figures

SHOWN = 10  # images of a kind, and classes


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
    options.require_new_file(out)
    clf, images = saved.load(), tables.labelled(source, "test")
    evaluation = clf.report(images, held_out=False)
    if out is not None:
        evaluation.write_csv(out)
    report_skipped(evaluation.skipped)
    figures = evaluation.figures
    if print_as_json(figures.to_json() | ({} if out is None else {"out": str(out)})):
        return
    columns = figures.classes or (), figures.counts or (), figures.per_class or ()
    class_table(row for row in zip(*columns, strict=True) if row[1])
    console().print(f"\n{_accuracy(figures)}, mean over classes {percent(figures.balanced_accuracy)} %")
    error, chance = percent(figures.calibration_error), percent(figures.calibration_error_floor)
    console().print(f"calibration error {error} points; so many images would have {chance} by chance alone")
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
    out = out or Path("report.html")
    _require_own_page(out)
    clf = saved.load()
    evaluation = clf.report(None if source is None else tables.labelled(source, "test"))
    write_page(out, clf, evaluation, saved.path.resolve().name, source or "its training images")
    figures = evaluation.figures
    report_skipped(evaluation.skipped)
    if print_as_json({**figures.to_json(), "held_out": int(evaluation.held_out.sum()), "out": str(out)}):
        return
    console().print(_accuracy(figures))
    show_written(page=out)


def _require_own_page(page: Path | None) -> None:
    """Refuse to replace a file that is not a page of ours."""
    from prolip.core import UsageError

    if page is not None and page.exists() and b"Made by prolip" not in page.read_bytes():
        raise UsageError(f"{page} is not a page of this program: name another file")


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

    options.require_new_file(out)
    _require_own_page(report)
    clf, test = options.new_classifier(settings), None
    train = tables.labelled(str(source), "train")
    if isinstance(train, str):
        train = read_images(source, "train")
    if getattr(train, "split", None) is not None:
        with suppress(MissingSplitError):
            test = read_images(source, "test", min_classes=1, **vars(tables))
    result = clf.check(train, test=test)
    if out is not None:
        result.write_csv(out)
    if report is not None:
        from prolip.report import check_page

        write_text(report, check_page(result, title=f"Check of {source.resolve().name}", source=str(source)))
    written = {name: str(path) for name, path in (("report", report), ("out", out)) if path is not None}
    if not print_as_json({
        "images": len(result.images), "classes": result.classes, "counts": result.counts,
        "accuracy": result.accuracy, "findings": result.rows(),
        "small_classes": [name for name, _ in result.small], **written,
    }):  # fmt: skip
        _show_findings(result)
        show_written(list=out, page=report)


def _show_findings(result: Check) -> None:
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
