"""`prolip fit` and `eval`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from prolip.cli.common import (
    Device,
    Json,
    NoStore,
    Saved,
    SkipBad,
    Store,
    load,
    report_skipped,
    warn_of_copies,
)
from prolip.cli.console import bar, console, escape, percent, print_json, table, warn

if TYPE_CHECKING:
    from prolip.api import FewShotClassifier


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("fit")(fit)
    app.command("eval")(evaluate)


def fit(
    source: Annotated[
        Path, typer.Argument(metavar="DIR", help="A folder per class; or one with train/ inside.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to save the adapted model in.")],
    model: Annotated[
        str,
        typer.Option(
            help="offline, open_clip:ARCH/TAG, open_clip:local-dir:PATH, hf:ID-or-PATH; "
            "arrays for an .npz of embeddings."
        ),
    ] = "offline",
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
    shots: Annotated[int | None, typer.Option(help="Images per class to use; all unless named.")] = None,
    views: Annotated[int, typer.Option(help="Views of each image: the centre, and augmented ones.")] = 1,
    seed: Annotated[int, typer.Option(help="Of sampling, views and folds.")] = 0,
    template: Annotated[
        list[str] | None,
        typer.Option(help="Prompt with {} for the class, or a dataset's name for its own; may be repeated."),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option", "-O", metavar="NAME=VALUE", help="Of the method, like epochs=20; may be repeated."
        ),
    ] = None,
    device: Device = "auto",
    store: Store = None,
    no_store: NoStore = False,
    skip_bad: SkipBad = False,
    no_calibration: Annotated[
        bool, typer.Option("--no-calibration", help="Do not cross-validate; probabilities stay as they come.")
    ] = False,
    no_support: Annotated[
        bool, typer.Option("--no-support", help="Do not keep features in the model; it cannot grow later.")
    ] = False,
    card: Annotated[bool, typer.Option("--card", help="Write a model card, README.md, too.")] = False,
    json: Json = False,
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

    check_target(out)
    clf = FewShotClassifier(
        model,
        method,
        _lam(lam),
        views,
        seed,
        shots=shots,
        templates=_templates(template),
        device=device,
        store=False if no_store else store,
        skip_bad=skip_bad,
        options=_options(option),
        calibrate=not no_calibration,
    )
    with bar("encoding", quiet=json) as progress:
        pool = None if unlabelled is None else str(unlabelled)
        training = progress.beside("training", "steps")
        clf.fit(str(source), unlabelled=pool, progress=progress, training=training)
    clf.save(out, support=not no_support, card=card)
    report_skipped(clf.skipped_, json)
    _report(clf, out, json)


def evaluate(
    saved: Saved,
    source: Annotated[
        Path, typer.Argument(metavar="DIR", help="A folder per class; or one with test/ inside.")
    ],
    device: Device = "auto",
    store: Store = None,
    no_store: NoStore = False,
    skip_bad: SkipBad = False,
    json: Json = False,
) -> None:
    """Measure a saved model: accuracy, zero-shot accuracy, each class, calibration.

    prolip eval my-model photos/
    """
    clf = load(saved, device, False if no_store else store, skip_bad)
    with bar("encoding", quiet=json) as progress:
        result = clf.evaluate(str(source), progress=progress)
    warn_of_copies(result["duplicates"])
    report_skipped([("", "")] * result["skipped"], json)
    if json:
        print_json(result)
        return
    per_class = zip(result["classes"], result["counts"], result["per_class"], strict=True)
    table(
        None, ["class", "images", "accuracy %"], [[str(c), str(n), percent(a)] for c, n, a in per_class if n]
    )
    console().print(
        f"\naccuracy [bold]{percent(result['accuracy'])} %[/] on {result['images']} images "
        f"(zero-shot {percent(result['zero_shot_accuracy'])} %), "
        f"calibration error {percent(result['calibration_error'])} % "
        f"(uncalibrated {percent(result['calibration_error_before'])} %, "
        f"by chance alone {percent(result['calibration_error_floor'])} %)"
    )


def _held_out(report: dict[str, Any]) -> list[list[str]]:
    """How the model did on support images that it was not fitted on."""
    if not report.get("images"):
        return []
    told = f"{percent(report['accuracy'])} %, zero-shot {percent(report['zero_shot_accuracy'])} %"
    return [["held out", f"accuracy {told} (cross-validation inside these images)"]]


def _unlabelled(told: dict[str, Any] | None) -> list[list[str]]:
    """Whether a pool was used, and why."""
    if told is None:
        return []
    return [["unlabelled", f"{told['images']} images {'' if told['used'] else 'not '}used: {told['why']}"]]


def _lam(lam: str | None) -> str | float | None:
    """A number where it is one; names stay names."""
    if lam is None:
        return None
    try:
        return float(lam)
    except ValueError:
        return lam


def _options(given: list[str] | None) -> dict[str, Any]:
    """NAME=VALUE pairs; numbers, true, false and none are what they look like, the rest are words."""
    import json

    from prolip.core import UsageError

    options: dict[str, Any] = {}
    for pair in given or ():
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise UsageError(f"--option takes NAME=VALUE, got {pair!r}")
        words = {"true": True, "false": False, "none": None}
        try:
            options[name] = words[value.lower()] if value.lower() in words else json.loads(value)
        except ValueError:
            options[name] = value
    return options


def _templates(given: list[str] | None) -> str | list[str] | None:
    """A single name without {} stands for a dataset's own templates."""
    if given and len(given) == 1 and "{}" not in given[0]:
        return given[0]
    return given or None


def _report(clf: FewShotClassifier, out: Path, json: bool) -> None:
    """What was fitted, and how well it does."""
    info = clf.info_
    if info.get("solver") == "exact" and not info["converged"]:
        warn(f"no minimum was reached with lam {info['lam']:.3g}; a larger one, or auto, may well do better")
    if json:
        held_out = clf.confidence_.report
        print_json({**info, "held_out": held_out, "skipped": len(clf.skipped_), "out": str(out)})
        return
    rows = [
        ["classes", f"{info['classes']}"],
        ["images", f"{info['images']} ({round(info['shots'], 1):g} a class)"],
        ["method", _describe(info)],
        ["fit", f"{info['seconds']:.2f} s"],
        *_unlabelled(info.get("unlabelled")),
        *_held_out(clf.confidence_.report),
        ["saved", str(out)],
    ]
    table(None, ["", ""], rows, right=9)
    name = escape(str(out))
    console().print(f"\nNow: [bold]prolip predict {name} IMAGE...[/] or [bold]prolip eval {name} DIR[/]")


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
