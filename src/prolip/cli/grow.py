"""`prolip add`, `curve` and `suggest`: a model that grows."""

from pathlib import Path
from typing import Any

from prolip.cli import options
from prolip.cli.console import (
    OUTPUT,
    console,
    escape,
    hint,
    percent,
    print_json,
    report_skipped,
    say,
    table,
)
from prolip.cli.parameters import HTML, POSITIVE, argument, command, option


@command("add")
@options.saved_model
@argument(
    "source", "[DIR]", f"Labelled images of new classes or known ones: {options.LABELLED}.", required=False
)
@option("--name-only", multiple=True, help="Add a class by its name, without an image.")
@options.replaced_model
@options.labelled_encoding
@options.tables
def add(
    saved: options.SavedModel,
    source: str | None,
    name_only: tuple[str, ...],
    out: Path | None,
    settings: dict[str, Any],
    tables: options.Tables,
) -> None:
    """Add classes or images to a saved model.

    The images that it was fitted on are not needed.

    $ prolip add my-model more-photos/
    $ prolip add my-model --name-only "red panda"
    """
    target = saved.target(out)
    clf = saved.load(settings)
    labelled = None if source is None else tables.labelled(source, "train")
    report = clf.add(labelled, names=name_only).added_
    saved.save(clf, target)
    report_skipped(clf.skipped_)
    if OUTPUT.get().json:
        print_json({**report, "out": str(target)})
        return
    rows = [
        ["added", ", ".join(map(str, report["added_classes"])) or "no class"],
        ["new images", f"{report['added_images']} ({report['duplicates']} in the model already)"],
        ["saved", str(target)],
    ]
    before, now = report["old_accuracy_before"], report["old_accuracy"]
    if before is not None:
        rows.insert(2, ["old classes", f"{percent(before)} % before, {percent(now)} % now"])
    if report["new_accuracy"] is not None:
        rows.insert(-1, ["new classes", f"{percent(report['new_accuracy'])} %"])
    table(None, ["", ""], rows, right=9)
    if before is not None:
        say("(held-out accuracy on training images, by cross-validation)")


@command("curve")
@options.saved_model
@option("--out", "-o", type=HTML, help="Draw the curve, to an .html file.")
@options.fit_options("device")
def learning_curve(saved: options.SavedModel, out: Path | None, settings: dict[str, Any]) -> None:
    """Estimate the accuracy with more images per class.

    Measures the accuracy with fewer images per class, inside those of the model, and extrapolates.

    $ prolip curve my-model -o curve.html
    """
    from prolip.io.writing import write_text
    from prolip.report import curve_page

    curve = saved.load(settings).learning_curve()
    if out is not None:
        write_text(out, curve_page(curve, title=saved.path.resolve().name))
    if OUTPUT.get().json:
        print_json({**curve.report(), "out": None if out is None else str(out)})
        return
    rows = [[str(p.shots), percent(p.accuracy), "", ""] for p in curve.points[:-1]]
    for each in (curve.now, *curve.forecasts):
        span = f"{percent(each.low)} to {percent(each.high)}"
        gain = "" if each is curve.now else f"{100 * (each.accuracy - curve.now.accuracy):+.1f}"
        rows.append([f"{each.shots}{'' if gain else ' (now)'}", percent(each.accuracy), span, gain])
    table(None, ["images per class", "accuracy %", "90 % interval", "gain"], rows)
    if out is not None:
        console().print(f"\nDrawn to [bold]{escape(str(out))}[/]")


@command("suggest")
@options.saved_model
@argument("source", "DIR", "Images without labels: a folder, a table or an archive.")
@option("--count", "-n", type=POSITIVE, default=10, help="Number of images to suggest.")
@options.unlabelled_encoding
@options.unlabelled_tables
def suggest(
    saved: options.SavedModel, source: str, count: int, settings: dict[str, Any], tables: options.Tables
) -> None:
    """Suggest which images to label next.

    Those that represent most of what is unlike the labelled images come first.

    $ prolip suggest my-model unsorted/ -n 20
    """
    clf, paths = saved.load(settings), tables.listed(source)
    suggestions = clf.suggest(paths, count)
    if OUTPUT.get().json:
        print_json([{"image": str(paths[s.index]), "gain": s.gain, "unsure": s.unsure} for s in suggestions])
        return
    if not suggestions:
        console().print("Nothing to suggest: the model was fitted on all of these images.")
        return
    rows = [[str(paths[s.index]), percent(s.gain), percent(s.unsure)] for s in suggestions]
    table(None, ["image", "represents %", "uncertain %"], rows)
    hint(
        "\nAn image represents those that resemble it more than any labelled image does: in percent of all "
        "that is unlike the labelled ones. It is uncertain if its two most probable classes are close."
    )
