"""`prolip add`, `classes`, `curve` and `suggest`: a model that grows."""

from pathlib import Path

from prolip.cli import options
from prolip.cli.console import class_table, console, percent, print_as_json, report_skipped, say, table
from prolip.cli.options import POSITIVE, argument, command, option


@command("add")
@options.saved_model(*options.ENCODING)
@argument(
    "source", "[DIR]", f"Labelled images of new classes or known ones: {options.LABELLED}.", required=False
)
@option("--name-only", multiple=True, help="Add a class by its name, without an image.")
@options.replaced_model
@options.tables
def add(
    saved: options.SavedModel,
    source: str | None,
    name_only: tuple[str, ...],
    out: Path | None,
    tables: options.Tables,
) -> None:
    """Add classes or images to a saved model.

    The images that it was fitted on are not needed.

    $ prolip add my-model more-photos/
    $ prolip add my-model --name-only "red panda"
    """
    target = saved.target(out)
    clf = saved.load()
    labelled = None if source is None else tables.labelled(source, "train")
    report = clf.add(labelled, names=name_only).added_
    saved.save(clf, target)
    report_skipped(clf.skipped_)
    if print_as_json({**report, "out": str(target)}):
        return
    names = ", ".join(map(str, report["added_classes"])) or "none"
    before, now, new = report["old_accuracy_before"], report["old_accuracy"], report["new_accuracy"]
    rows = [
        ["new classes", names if new is None else f"{names}: held-out accuracy {percent(new)} %"],
        *(
            []
            if before is None
            else [["old classes", f"held-out accuracy {percent(now)} %, {percent(before)} % before"]]
        ),
        ["new images", f"{report['added_images']} ({report['duplicates']} more are in the model already)"],
        ["saved", str(target)],
    ]
    table(None, ["", ""], rows, right=9)


@command("classes")
@options.saved_model("device")
@option("--rename", multiple=True, metavar="OLD=NEW", help="Another name for a class.")
@options.replaced_model
def classes(saved: options.SavedModel, rename: tuple[str, ...], out: Path | None) -> None:
    """List or rename the classes of a model.

    No images are needed. A new name changes no prediction: the prompts of the model keep the old one.

    $ prolip classes my-model
    $ prolip classes my-model --rename "tabby=tabby cat"
    """
    from prolip.core import UsageError

    if out is not None and not rename:
        raise UsageError("nothing is changed: --out goes with --rename")
    target = saved.target(out) if rename else None
    names = dict(map(_parse_pair, rename))
    clf = saved.load()
    if target is not None:
        saved.save(clf.rename(names), target)
    model = clf.model_
    unknown = [None] * len(model.classes)
    counts = model.counts or unknown
    found = {"classes": list(model.classes), "counts": counts, "held_out": model.confidence.report}
    if print_as_json(found if target is None else {**found, "out": str(target)}):
        return
    accuracy = model.confidence.figures.per_class or unknown
    class_table(zip(model.classes, counts, accuracy, strict=True), "held-out accuracy per class")
    if target is not None:
        say(f"saved to {target}; the prompts keep the old names, and no prediction changes")


def _parse_pair(pair: str) -> tuple[str, str]:
    from prolip.core import UsageError

    old, _, new = (part.strip() for part in pair.rpartition("="))
    if not old or not new:
        raise UsageError(f"--rename takes OLD=NEW, got {pair!r}")
    return old, new


@command("curve")
@options.saved_model("device")
def learning_curve(saved: options.SavedModel) -> None:
    """Estimate the accuracy with more images per class.

    Measures the accuracy with fewer images per class, inside those of the model, and extrapolates. The page
    of `prolip report` draws it.

    $ prolip curve my-model
    """
    curve = saved.load().learning_curve()
    if print_as_json(curve.report()):
        return
    rows = [
        [str(r["shots"]), percent(r["accuracy"]), f"{percent(r['low'])} to {percent(r['high'])}", r["kind"]]
        for r in curve.rows()
    ]
    table(None, ["images per class", "accuracy %", "95 % interval", ""], rows)


@command("suggest")
@options.saved_model(*options.ENCODING, tolerance=options.SKIP_ALL)
@argument("source", "DIR", "Images without labels: a folder, a table or an archive.")
@option("--count", "-n", type=POSITIVE, default=10, help="Number of images to suggest.")
@options.unlabelled_tables
def suggest(saved: options.SavedModel, source: str, count: int, tables: options.Tables) -> None:
    """Suggest which images to label next.

    Those that represent most of what is unlike the labelled images come first: an image represents those that
    resemble it more than any labelled image does. It is uncertain if its two most probable classes are close.

    $ prolip suggest my-model unsorted/ -n 20
    """
    clf, paths = saved.load(), tables.listed(source)
    suggestions = clf.suggest(paths, count)
    if print_as_json(
        [{"image": str(paths[s.index]), "gain": s.gain, "unsure": s.unsure} for s in suggestions]
    ):
        return
    if not suggestions:
        console().print("Nothing to suggest: the model was fitted on all of these images.")
        return
    rows = [[str(paths[s.index]), percent(s.gain), percent(s.unsure)] for s in suggestions]
    table(None, ["image", "represents %", "uncertain %"], rows)
