"""`prolip demo` and `fit`."""

from __future__ import annotations

from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prolip.api.recipe import COMMON, OPTIONS
from prolip.api.recipe import OUTPUT as OUTPUT_GROUP
from prolip.cli import options
from prolip.cli.console import (
    OUTPUT,
    class_table,
    console,
    escape,
    hint,
    interval,
    percent,
    print_as_json,
    report_skipped,
    table,
    typed,
)
from prolip.cli.evaluate import write_page
from prolip.cli.options import PATH, argument, command, flag, option
from prolip.io.progress import counted

if TYPE_CHECKING:
    from prolip import FewShotClassifier
    from prolip.evaluate.metrics import Figures

    Counts = list[tuple[Any, int]]  # class, training images

CLASSES_SHOWN = 20
ENOUGH = 10  # images of each class
SUSPICIOUS = 0.02  # of the labels: more should be looked at
WEAK = 0.75  # of the accuracy: a class below that should be looked at
TRAIN, TEST = 16, 10  # images of each class of the demo


@command("demo")
@option("--out", "-o", type=PATH, default="prolip-demo", help="Folder to write.")
def demo(out: Path) -> None:
    """Show what this does, without data or network, in a minute.

    Draws textures of ten kinds, fits the offline encoder on 16 images of each, and writes the images, the
    model and a report on other images of the same kinds.
    """
    from prolip import FewShotClassifier
    from prolip.data import draw_textures

    photos, saved, page = out / "photos", out / "textures-model", out / "report.html"
    for split, count in (("train", TRAIN), ("test", TEST)):
        drawn = draw_textures(count, split=split)
        for i, (image, label) in enumerate(zip(drawn.images, drawn.labels, strict=True)):
            folder = photos / split / drawn.classes[label]
            folder.mkdir(parents=True, exist_ok=True)
            image.save(folder / f"{i % count}.jpg", quality=95)
    clf = FewShotClassifier(progress=options.progress()).fit(photos / "train")
    clf.save(saved, force=True)
    evaluation = clf.report(photos / "test", held_out=False)
    write_page(page, clf, evaluation, saved.name, str(photos / "test"))
    figures, classes, seconds = evaluation.figures, len(clf.classes_), clf.info_["seconds"]
    if print_as_json({
        "accuracy": figures.accuracy, "zero_shot_accuracy": figures.zero_shot_accuracy,
        "classes": classes, "shots": TRAIN, "images": figures.images, "seconds": seconds, "out": str(out),
    }):  # fmt: skip
        return
    console().print(
        f"{TRAIN} images of each of {classes} textures, learned in {seconds:.1f} s: "
        f"[bold]{percent(figures.accuracy)} %[/] of {figures.images} new ones are right, "
        f"{percent(figures.zero_shot_accuracy)} % before.\n\n"
        f"Report: [bold]{escape(page)}[/]\n"
        f"Next:   {typed('predict', saved, photos / 'test')}\n"
        f"        {typed('fit', photos, '-o', 'my-model')}   (or your own: a folder per class)",
        soft_wrap=True,
    )


@command("fit")
@argument("source", "[DIR]", options.TRAINING, required=False)
@option("--out", "-o", type=PATH, required=True, help="Folder to save the adapted model in.", group=COMMON)
@options.fit_options(*OPTIONS)
@option(
    "--classes",
    metavar="NAMES",
    help='Names, like "cat, dog", in place of DIR: a zero-shot model that can grow.',
    group=COMMON,
)
@option(
    "--unlabelled", type=PATH, metavar="DIR", group=COMMON,
    help="Images without labels, used if they help held-out labelled ones; may include other classes.",
)  # fmt: skip
@flag("--force", help="Replace a model in OUT.", group=COMMON)
@flag("--no-support", help="Do not store features in the model; it cannot grow later.", group=OUTPUT_GROUP)
@options.tables
def fit(
    source: str | None,
    out: Path,
    classes: str | None,
    unlabelled: Path | None,
    force: bool,
    no_support: bool,
    settings: dict[str, Any],
    tables: options.Tables,
) -> None:
    """Learn the classes of a folder of images, and save the model.

    The images go through the frozen encoder once; the fit itself takes seconds. Their features are stored, so
    that a second fit on the same images starts at once.

    $ prolip fit photos/ -o my-model
    $ prolip fit photos/ -o my-model --shots 16 --model open_clip:ViT-B-32/openai
    $ prolip fit photos/ -o my-model --unlabelled more-photos/
    $ prolip fit --classes "cat, dog" -o my-model --model clip
    """
    from prolip.core import UsageError

    if (source is None) == (classes is None):
        raise UsageError("name labelled images, or --classes without images")
    options.check_new(out, force, "pass --force to replace it, or ")
    clf = options.new_classifier(settings)
    if source is None:
        if unlabelled is not None:
            raise UsageError("--unlabelled needs labelled images: --classes has none")
        clf.fit(classes=[name.strip() for name in (classes or "").split(",")])
    else:
        pool = None if unlabelled is None else str(unlabelled)
        clf.fit(tables.labelled(source, "train"), unlabelled=pool)
    clf.save(out, support=not no_support, force=True)
    report_skipped(clf.skipped_)
    names = clf.model_.classes
    counts = list(zip(names, clf.model_.counts or [0] * len(names), strict=True))
    if print_as_json(
        {
            **clf.info_,
            "counts": [n for _, n in counts],
            "class_names": list(clf.model_.classes),
            "held_out": clf.confidence_.report,
            "skipped": len(clf.skipped_),
            "out": str(out),
        }
    ):
        return
    _show(clf, counts, out)
    if source is None:
        hint(
            "\nThe model is zero-shot: it compares images with the class names. It learns from labelled "
            f"images: {typed('add', out, 'DIR')}"
        )
    else:
        hint(f"\nNext: {_next_step(clf, counts, source, out)}", soft_wrap=True)
    hint(f"Use:  {typed('predict', out, 'IMAGE...')}", soft_wrap=True)


def _show(clf: FewShotClassifier, counts: Counts, out: Path) -> None:
    """Print what was fitted and how accurate it is."""
    info, figures = clf.info_, clf.confidence_.figures
    rows = [
        ["classes", str(len(counts)) if info["images"] else ", ".join(str(name) for name, _ in counts)],
        ["images", _images(counts)],
    ]
    if info.get("negatives"):
        rows.append(["", f"and {info['negatives']} of none of these"])
    if grouped := info.get("near_copies", 0):
        count = info["independent"] - (info["images"] - grouped)
        advice = "photos of other moments and places teach the model more"
        rows.append(["", f"{grouped} are near-copies (or of one group) and count as {count}: {advice}"])
    if OUTPUT.get().verbose:
        lam = "" if info.get("lam") is None else f", lam {info['lam']:.3g}"
        parameters = f", {info['parameters']:,} parameters" if info.get("parameters") else ""
        rows.append(["method", f"{info['method']}{lam}{parameters}, fitted in {info['seconds']:.2f} s"])
    if pool := info.get("unlabelled"):
        used = "used" if pool["used"] else "not used"
        rows.append(["unlabelled", f"{counted(pool['images'])} {used}: {pool['why']}"])
    table(None, ["", ""], [*rows, ["accuracy", _accuracy(figures)], ["saved", str(out)]], right=9)
    if figures.accuracy is None or figures.too_few:
        return
    low, high = figures.accuracy_interval or (0.0, 1.0)
    words = f"Of 100 new images like these, it should classify {100 * low:.0f} to {100 * high:.0f} correctly."
    if figures.learned_little:
        words += " That may be guessing: the model has learned little. Check the labels, or add images."
    hint(f"\n{words}\n")
    per_class = zip(counts, figures.per_class or (), strict=True)
    known = [(name, n, accuracy) for (name, n), accuracy in per_class if accuracy is not None]
    worst = sorted(known, key=itemgetter(2))[:CLASSES_SHOWN]
    class_table(worst, "held-out accuracy per class, the lowest first")


def _images(counts: Counts) -> str:
    (small, least), (large, most) = min(counts, key=itemgetter(1)), max(counts, key=itemgetter(1))
    total = sum(n for _, n in counts)
    if least == most:
        return f"{total}, {most} of each class"
    return f"{total}, from {least} ({small}) to {most} ({large}) of a class"


def _accuracy(figures: Figures) -> str:
    bounds = interval(figures.accuracy_interval)
    if figures.accuracy is None:
        return "unknown: no image was held out"
    if figures.too_few:
        return f"unknown: {figures.images} held-out images are too few ({bounds})"
    return f"{percent(figures.accuracy)} % ({bounds}), zero-shot {percent(figures.zero_shot_accuracy)} %"


def _next_step(clf: FewShotClassifier, counts: Counts, source: str, out: Path) -> str:
    """Return what would improve this model most: more images, correct labels, or a look at a weak class."""
    figures, model = clf.confidence_.figures, clf.info_["model"]
    if figures.too_few or (clf.calibrate and not figures.images):
        short = sum(max(0, ENOUGH - n) for _, n in counts)
        return f"{typed('add', out, 'DIR')} with {counted(short)} more, for {ENOUGH} of each class"
    errors = [] if clf.confidence_.held_out is None else clf.report().label_errors()
    if len(errors) > SUSPICIOUS * figures.images:
        check = typed("check", source, "--model", model, "--report", "check.html")
        return f"{check} ({counted(len(errors), 'label')} may be wrong)"
    per_class = zip(figures.per_class or (), counts, strict=False)
    known = [(accuracy, str(name)) for accuracy, (name, _) in per_class if accuracy is not None]
    worst, name = min(known, default=(1.0, ""))
    if worst < WEAK * (figures.accuracy or 0.0):
        return f"{typed('report', out, source)} (the weakest class, {escape(name)}, has {percent(worst)} %)"
    return f"{typed('eval', out, 'DIR')} with other labelled images"
