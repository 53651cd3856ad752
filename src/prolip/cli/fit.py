"""`prolip fit`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prolip.api.recipe import COMMON, OPTIONS
from prolip.api.recipe import OUTPUT as OUTPUT_GROUP
from prolip.cli import options
from prolip.cli.console import (
    OUTPUT,
    console,
    escape,
    hint,
    percent,
    print_json,
    program,
    report_skipped,
    table,
    warn,
)
from prolip.cli.parameters import PATH, argument, command, flag, option
from prolip.io.progress import counted

if TYPE_CHECKING:
    from prolip import FewShotClassifier
    from prolip.evaluate.figures import Figures

CLASSES_SHOWN, WORST_SHOWN = 20, 10
ENOUGH = 10  # images of each class
SUSPICIOUS = 0.02  # of the labels: more should be looked at
WEAK = 0.75  # of the accuracy: a class below that should be looked at


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
@flag("--force", help="Replace a model in OUT without asking.", group=COMMON)
@flag("--no-support", help="Do not store features in the model; it cannot grow later.", group=OUTPUT_GROUP)
@flag("--card", help="Write a model card, README.md, too.", group=OUTPUT_GROUP)
@options.tables
def fit(
    source: str | None,
    out: Path,
    classes: str | None,
    unlabelled: Path | None,
    force: bool,
    no_support: bool,
    card: bool,
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
    from prolip.export.saved import check_target

    if (source is None) == (classes is None):
        raise UsageError("name labelled images, or --classes without images")
    if classes is not None and unlabelled is not None:
        raise UsageError("--unlabelled needs labelled images: --classes has none")
    check_target(out, card)
    if not force:
        options.confirm_replacing(out, "pass --force to replace it, or name another folder")
    clf = options.new_classifier(settings)
    if source is None:
        clf.fit(classes=[name.strip() for name in (classes or "").split(",")])
    else:
        pool = None if unlabelled is None else str(unlabelled)
        clf.fit(tables.labelled(source, "train"), unlabelled=pool)
    clf.save(out, support=not no_support, card=card, force=True)
    report_skipped(clf.skipped_)
    _report(clf, source, out)


def _held_out(figures: Figures) -> str:
    if figures.accuracy is None:
        return "unknown: no image was held out"
    low, high = figures.accuracy_interval or (0.0, 1.0)
    interval = f"95 % interval {percent(low)} to {percent(high)} %"
    if figures.too_few:
        images = figures.independent or figures.images
        correct = round((figures.held_out_accuracy or 0.0) * images)
        return f"unknown: {correct} of {images} held-out images are classified correctly ({interval})"
    return f"{percent(figures.accuracy)} % ({interval}), zero-shot {percent(figures.zero_shot_accuracy)} %"


def _in_words(figures: Figures) -> str:
    low, high = figures.accuracy_interval or (0.0, 1.0)
    span = f"{100 * low:.0f} to {100 * high:.0f}"
    if figures.too_few:
        return (
            f"So few images do not show how good the model is: of 100 new images it may classify "
            f"anything from {span} correctly. Ten images of each class are a good start."
        )
    words = (
        f"Of 100 new images like these, it should classify {span} correctly; without the training images, "
        f"about {100 * (figures.zero_shot_accuracy or 0):.0f}. Held out, each predicted by a fit on fewer "
        f"images, {percent(figures.held_out_accuracy)} % are correct."
    )
    if figures.learned_little:
        words += " That may be guessing: the model has learned little. Check the labels, or add images."
    return words


def _unlabelled(pool: dict[str, Any] | None) -> list[list[str]]:
    if pool is None:
        return []
    return [["unlabelled", f"{counted(pool['images'])} {'' if pool['used'] else 'not '}used: {pool['why']}"]]


def _counts(clf: FewShotClassifier) -> list[tuple[Any, int]]:
    import numpy as np

    task, classes = clf.model_.support.task, clf.model_.classes
    counts = [0] * len(classes) if task is None else np.bincount(task.y, minlength=len(classes)).tolist()
    return list(zip(classes, counts, strict=True))


def _images(counts: list[tuple[Any, int]]) -> str:
    counts = sorted(counts, key=lambda pair: pair[1])
    (small, least), (large, most) = counts[0], counts[-1]
    total = sum(n for _, n in counts)
    if not total:
        return "0"
    if least == most:
        return f"{total}, {most} of each class"
    return f"{total}, from {least} ({small}) to {most} ({large}) of a class"


def _near_copies(info: dict[str, Any]) -> list[list[str]]:
    """Say how many different images there are."""
    if not (grouped := info.get("near_copies", 0)):
        return []
    count = info["independent"] - (info["images"] - grouped)
    advice = "photos of other moments and places teach the model more"
    return [["", f"{grouped} are near-copies (or of one group) and count as {count}: {advice}"]]


def _per_class(counts: list[tuple[Any, int]], found: tuple[float | None, ...] | None) -> None:
    """Print the held-out accuracy of each class; of many classes, the worst."""
    if not found:
        return
    rows = [(a, [str(name), str(n), percent(a)]) for (name, n), a in zip(counts, found, strict=True)]
    title = "held-out accuracy per class"
    if len(rows) > CLASSES_SHOWN:
        rows = sorted((row for row in rows if row[0] is not None), key=lambda row: row[0] or 0.0)
        rows = rows[:WORST_SHOWN]
        title = f"held-out accuracy, the {WORST_SHOWN} worst of {len(found)} classes"
    console().print()
    table(title, ["class", "images", "accuracy %"], [row for _, row in rows])


def _report(clf: FewShotClassifier, source: str | None, out: Path) -> None:
    info, counts, held_out = clf.info_, _counts(clf), clf.confidence_
    if held_out.figures.too_few:
        warn(f"{counted(held_out.figures.independent or 0)} are too few to measure the accuracy")
    single = [str(name) for name, n in counts if n == 1]
    if single:
        warn(
            f"{len(single)} of {info['classes']} classes have a single image ({', '.join(single[:5])}"
            f"{', ...' if len(single) > 5 else ''}): they cannot be held out, and their accuracy is unknown"
        )
    if OUTPUT.get().json:
        classes = {"counts": [n for _, n in counts], "class_names": list(clf.model_.classes)}
        rest = {"held_out": held_out.report, "skipped": len(clf.skipped_), "out": str(out)}
        print_json({**info, **classes, **rest})
        return
    rows = [
        ["classes", ", ".join(map(str, clf.model_.classes)) if source is None else f"{info['classes']}"],
        ["images", _images(counts)],
        *_near_copies(info),
        *([["", f"and {info['negatives']} of none of these"]] if info.get("negatives") else []),
        *([["method", _describe(info)], ["fit", f"{info['seconds']:.2f} s"]] if OUTPUT.get().verbose else []),
        *_unlabelled(info.get("unlabelled")),
        ["accuracy", _held_out(held_out.figures)],
        ["saved", str(out)],
    ]
    table(None, ["", ""], rows, right=9)
    if held_out.figures.images:
        hint(f"\n{_in_words(held_out.figures)}")
    if not held_out.figures.too_few:
        _per_class(counts, held_out.figures.per_class)
    _say_next(clf, source, out)


def _say_next(clf: FewShotClassifier, source: str | None, out: Path) -> None:
    """Print the commands that make sense now."""
    from prolip.encoders.pretrained import is_here

    run, name = escape(program()), escape(shlex.quote(str(out)))
    if source is None:
        hint(
            "\nThe model is zero-shot: it compares images with the class names. It learns from labelled "
            f"images: [bold]{run} add {name} DIR[/]\n\nNow: [bold]{run} predict {name} IMAGE...[/]"
        )
        return
    hint(f"\nNext: {_next_step(clf, source, run, name)}", soft_wrap=True)
    hint(f"Use:  [bold]{run} predict {name} IMAGE...[/]", soft_wrap=True)
    if clf.info_["model"] == "offline" and is_here("clip"):
        again = escape(shlex.join(["fit", source, "-o", str(out), "--model", "clip"]))
        hint(f"clip is on this machine: [bold]{run} {again}[/]", soft_wrap=True)


def _next_step(clf: FewShotClassifier, source: str, run: str, name: str) -> str:
    """Return what would improve this model most: more images, a look at a weak class, or correct labels."""
    figures, place = clf.confidence_.figures, escape(shlex.quote(source))
    counts = _counts(clf)
    if figures.too_few or (clf.calibrate and not figures.images):
        short = sum(max(0, ENOUGH - n) for _, n in counts)
        return f"[bold]{run} add {name} DIR[/] with {counted(short)} more, for {ENOUGH} of each class"
    pairs = zip(figures.per_class or [None] * len(counts), counts, strict=True)
    known = [(accuracy, label) for accuracy, (label, _) in pairs if accuracy is not None]
    suspicious = [] if clf.confidence_.held_out is None else clf.report().label_errors()
    if len(suspicious) > SUSPICIOUS * figures.images:
        why = f"{counted(len(suspicious), 'label')} may be wrong"
        return f"[bold]{run} check {place} --report check.html[/] ({why})"
    worst, label = min(known, default=(1.0, None), key=lambda pair: pair[0])
    if worst < WEAK * (figures.accuracy or 0.0):
        why = f"the weakest class, {label}, has {percent(worst)} %"
        return f"[bold]{run} report {name} {place}[/] ({escape(why)})"
    return f"[bold]{run} eval {name} DIR[/] with other labelled images"


def _describe(info: dict[str, Any]) -> str:
    parts = [str(info["method"])]
    if info.get("lam") is not None:
        rule = info.get("lam_rule")
        parts.append(f"lam {info['lam']:.3g}" + (f" ({rule})" if isinstance(rule, str) else ""))
    if info.get("parameters"):
        parts.append(f"{info['parameters']:,} parameters")
    return ", ".join(parts)
