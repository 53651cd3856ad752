"""`prolip fit` and `eval`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from prolip.cli import common
from prolip.cli.console import bar, console, escape, hint, percent, print_json, printable, table, warn
from prolip.cli.fit_options import parse_lam, parse_options, parse_templates

if TYPE_CHECKING:
    from prolip.api import FewShotClassifier
    from prolip.api.reading import Labelled

CLASSES_SHOWN, WORST_SHOWN = 20, 10
MAX_VIEWS = 10_000  # the paper has 300


def fit(
    source: Annotated[
        str, typer.Argument(metavar="DIR", help=f"Labelled images: {common.IMAGES}; of its part train.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to save the adapted model in.")],
    model: common.Model = "offline",
    method: Annotated[str, typer.Option(help="See `prolip methods`.")] = "prolip",
    lam: Annotated[
        str | None,
        typer.Option(
            help="Pull to the pretrained matrix: auto, 1/N, 1/N^2 or a number; the method's own unless named."
        ),
    ] = None,
    unlabelled: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Images without labels, used where they help held-out labelled ones; some may be foreign.",
        ),
    ] = None,
    shots: common.Shots = None,
    views: Annotated[
        int, typer.Option(min=1, max=MAX_VIEWS, help="Views of each image: the centre, and augmented ones.")
    ] = 1,
    seed: Annotated[int, typer.Option(min=0, max=common.MAX_SEED, help="Of sampling, views and folds.")] = 0,
    template: common.Template = None,
    descriptions: common.Descriptions = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option", "-O", metavar="NAME=VALUE", help="Of the method, like epochs=20; may be repeated."
        ),
    ] = None,
    device: common.Device = "auto",
    store: common.Store = None,
    no_store: common.NoStore = False,
    skip_bad: common.SkipBad = False,
    exact_decode: common.ExactDecode = False,
    no_calibration: Annotated[
        bool, typer.Option("--no-calibration", help="Do not cross-validate; probabilities stay as they come.")
    ] = False,
    no_support: Annotated[
        bool, typer.Option("--no-support", help="Do not keep features in the model; it cannot grow later.")
    ] = False,
    card: Annotated[bool, typer.Option("--card", help="Write a model card, README.md, too.")] = False,
    absolute_paths: common.AbsolutePaths = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a model that OUT holds, unasked.")] = False,
    json: common.Json = False,
) -> None:
    """Learn the classes of a folder of images and save the adapted model.

    The images go through the frozen model once; the fit itself takes seconds, and a second fit on the same
    images starts at once, as their features are kept.

        prolip fit photos/ -o my-model

        prolip fit photos/ -o my-model --shots 16 --model open_clip:ViT-B-32/openai

        prolip fit photos/ -o my-model --unlabelled more-photos/
    """
    from prolip.api import FewShotClassifier
    from prolip.export.saved import check_target

    check_target(out, card)
    _confirm(out, force)
    clf = FewShotClassifier(
        model,
        method,
        parse_lam(lam),
        views,
        seed,
        shots=shots,
        templates=parse_templates(template),
        descriptions=descriptions,
        device=device,
        store=False if no_store else store,
        skip_bad=skip_bad,
        exact_decode=exact_decode,
        options=parse_options(option),
        calibrate=not no_calibration,
    )
    with bar("encoding", quiet=json) as progress:
        images = common.labelled(source, "train", absolute_paths)
        pool = None if unlabelled is None else str(unlabelled)
        clf.fit(images, unlabelled=pool, progress=progress, training=progress.beside("training", "steps"))
    clf.save(out, support=not no_support, card=card)
    common.report_skipped(clf.skipped_, json)
    _report(clf, out, json)


def evaluate(
    saved: common.Saved,
    source: Annotated[
        str, typer.Argument(metavar="DIR", help=f"Labelled images: {common.IMAGES}; of its part test.")
    ],
    base: common.Base = None,
    trust_base: common.TrustBase = False,
    device: common.Device = "auto",
    store: common.Store = None,
    no_store: common.NoStore = False,
    skip_bad: common.SkipBad = False,
    exact_decode: common.ExactDecode = False,
    report: Annotated[
        Path | None, typer.Option(help="Write a page too: confusions, mistakes as pictures, and more.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="A .csv with path, truth, answer and probability of each image."),
    ] = None,
    groups: common.Groups = None,
    absolute_paths: common.AbsolutePaths = False,
    per_image: Annotated[
        bool, typer.Option("--per-image", help="With --json: truth, answer and probability of every image.")
    ] = False,
    json: common.Json = False,
) -> None:
    """Measure a saved model: accuracy, zero-shot accuracy, each class, calibration.

    prolip eval my-model photos/

    prolip eval my-model photos/ --report report.html --out answers.csv
    """
    from prolip.api.groups import read_groups
    from prolip.api.measure import answer_labelled, figures, write_answers
    from prolip.api.reading import read_labelled
    from prolip.cli.report import write_page
    from prolip.core import UsageError

    if per_image and not json:
        raise UsageError("--per-image is for --json: add that option")
    clf = common.load(saved, device, False if no_store else store, skip_bad, base, trust_base, exact_decode)
    model = clf.model_
    by_group = None if groups is None else read_groups(groups, model.classes)
    images = common.labelled(source, "test", absolute_paths)
    tested = read_labelled(model.encoder, images, None, "test", model.classes)
    with bar("encoding", quiet=json) as progress:
        answers = answer_labelled(model, tested, clf.reading, progress)
    result = figures(model, answers, by_group)
    if out is not None:
        write_answers(out, model, answers, by_group)
    if report is not None:
        if result["duplicates"]:  # the page has answers of fits that did not see them
            answers = answer_labelled(model, tested, clf.reading, honest=True)
        write_page(report, model, answers, saved.resolve().name, str(source), quiet=json)
    common.warn_of_copies(result["duplicates"])
    common.report_skipped(answers.skipped, json)
    written = {name: str(path) for name, path in (("out", out), ("report", report)) if path is not None}
    if json:
        each = {"answers": _answers(clf, tested, source)} if per_image else {}
        print_json({**result, **written, **each})
        return
    _show(result)
    for name, path in written.items():
        console().print(f"{'Answers' if name == 'out' else 'Page'}: [bold]{escape(path)}[/]", soft_wrap=True)


def _show(result: dict[str, Any]) -> None:
    """Figures of an evaluation: each class, each group, all images."""
    tables = [("class", result["classes"], result["counts"], result["per_class"])]
    if by_group := result.get("groups"):
        tables.append(("group", by_group["names"], by_group["counts"], by_group["per_group"]))
    for kind, *columns in tables:
        rows = [[str(name), str(n), percent(a)] for name, n, a in zip(*columns, strict=True) if n]
        table(None, [kind, "images", "accuracy %"], rows)
        console().print()
    if by_group:
        console().print(f"accuracy by group [bold]{percent(by_group['accuracy'])} %[/]")
    low, high = result["accuracy_interval"]
    console().print(
        f"accuracy [bold]{percent(result['accuracy'])} %[/] on {result['images']} images "
        f"(95 % interval {percent(low)} to {percent(high)} %, "
        f"zero-shot {percent(result['zero_shot_accuracy'])} %), "
        f"balanced {percent(result['balanced_accuracy'])} %, "
        f"calibration error {percent(result['calibration_error'])} % "
        f"(uncalibrated {percent(result['calibration_error_before'])} %, "
        f"by chance alone {percent(result['calibration_error_floor'])} %)"
    )


def _answers(clf: FewShotClassifier, asked: Labelled, source: str) -> list[dict[str, Any]]:
    """Truth, answer and probability of every image that can be read."""
    from prolip.core.files import readable

    found = clf.features(asked.images)
    probabilities, truths = clf.model_.probabilities(found.features[0]), asked.names()
    pictures = clf.model_.encoder.takes_pictures
    answers = []
    for i, row in zip(found.kept, probabilities, strict=True):
        best = int(row.argmax())
        name = str(asked.images[i]) if pictures else f"{source}:{i}"
        answer = {"image": readable(name), "truth": truths[i], "class": clf.model_.classes[best]}
        answers.append({**answer, "probability": round(float(row[best]), 6)})
    return answers


def _confirm(out: Path, force: bool) -> None:
    """Ask before a model is replaced, where there is someone to ask."""
    import sys

    from prolip.core import UsageError
    from prolip.export.saved import CONFIG

    if force or not (out / CONFIG).is_file():
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(f"{out} holds a model: pass --force to replace it, or name another folder")
    if not typer.confirm(printable(f"{out} holds a model: replace it?"), err=True):
        raise UsageError(f"{out} stays as it is: name another folder")


def _held_out(report: dict[str, Any]) -> list[list[str]]:
    """How the model did on support images that it was not fitted on."""
    if not report.get("images"):
        return []
    known = [own for own in report["per_class"] if own is not None]
    told = f"{percent(report['accuracy'])} %, balanced {percent(sum(known) / len(known))} %, "
    told += f"zero-shot {percent(report['zero_shot_accuracy'])} %"
    return [["held out", f"accuracy {told} (cross-validation inside these images)"]]


def _unlabelled(told: dict[str, Any] | None) -> list[list[str]]:
    """Whether a pool was used, and why."""
    if told is None:
        return []
    return [["unlabelled", f"{told['images']} images {'' if told['used'] else 'not '}used: {told['why']}"]]


def _counts(clf: FewShotClassifier) -> list[tuple[Any, int]]:
    """The images of each class that the model was fitted on."""
    import numpy as np

    task = clf.model_.support.require_task()
    counts = np.bincount(task.y, minlength=task.classes).tolist()
    return list(zip(clf.classes_, counts, strict=True))


def _images(clf: FewShotClassifier) -> str:
    """How many images, and how they are spread over the classes."""
    counts = sorted(_counts(clf), key=lambda pair: pair[1])
    (small, least), (large, most) = counts[0], counts[-1]
    total = sum(n for _, n in counts)
    if least == most:
        return f"{total}, {most} of each class"
    return f"{total}, from {least} ({small}) to {most} ({large}) of a class"


def _per_class(clf: FewShotClassifier) -> None:
    """Held-out accuracy of each class; of many classes, the worst."""
    found = clf.confidence_.report.get("per_class")
    if not found:
        return
    rows = [(a, [str(name), str(n), percent(a)]) for (name, n), a in zip(_counts(clf), found, strict=True)]
    title = "held out, each class"
    if len(rows) > CLASSES_SHOWN:
        rows = sorted((row for row in rows if row[0] is not None), key=lambda row: row[0])[:WORST_SHOWN]
        title = f"held out, the {WORST_SHOWN} worst of {len(found)} classes"
    console().print()
    table(title, ["class", "images", "accuracy %"], [row for _, row in rows])


def _report(clf: FewShotClassifier, out: Path, json: bool) -> None:
    """What was fitted, and how well it does."""
    info = clf.info_
    if info.get("solver") == "exact" and not info["converged"]:
        warn(f"no minimum was reached with lam {info['lam']:.3g}; a larger one, or auto, may well do better")
    lonely = [str(name) for name, n in _counts(clf) if n == 1]
    if lonely:
        warn(
            f"{len(lonely)} of {info['classes']} classes have a single image ({', '.join(lonely[:5])}"
            f"{', ...' if len(lonely) > 5 else ''}): they cannot be held out, so that nothing tells how well "
            "they do"
        )
    if json:
        held_out = clf.confidence_.report
        counts = {"counts": [n for _, n in _counts(clf)], "class_names": clf.classes_}
        print_json({**info, **counts, "held_out": held_out, "skipped": len(clf.skipped_), "out": str(out)})
        return
    rows = [
        ["classes", f"{info['classes']}"],
        ["images", _images(clf)],
        ["method", _describe(info)],
        ["fit", f"{info['seconds']:.2f} s"],
        *_unlabelled(info.get("unlabelled")),
        *_held_out(clf.confidence_.report),
        ["saved", str(out)],
    ]
    table(None, ["", ""], rows, right=9)
    _per_class(clf)
    name = escape(str(out))
    hint(f"\nNow: [bold]prolip predict {name} IMAGE...[/] or [bold]prolip eval {name} DIR[/]")


def _describe(info: dict[str, Any]) -> str:
    parts = [str(info["method"])]
    if info.get("chose"):
        parts = [f"{parts[0]}: {info['chose']} ({info['why']})"]
    if info.get("lam") is not None:
        rule = info.get("lam_rule")
        parts.append(f"lam {info['lam']:.3g}" + (f" ({rule})" if isinstance(rule, str) else ""))
    if info.get("parameters"):
        parts.append(f"{info['parameters']:,} parameters")
    return ", ".join(parts)
