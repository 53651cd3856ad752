"""`prolip report`: a page on a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from prolip.cli import common
from prolip.cli.console import Bar, bar, console, escape, percent, print_json

if TYPE_CHECKING:
    from prolip.api import AdaptedModel
    from prolip.api.measure import LabelledAnswers
    from prolip.evaluate.curve import Curve

DRAWS = 1500  # images over which a learning curve's draws add up: many of few images, one of many
TOO_MANY = 4000  # images whose learning curve takes longer than a page should


def report(
    saved: common.Saved,
    source: Annotated[
        Path | None,
        typer.Argument(
            metavar="[DIR]",
            help="A folder per class to ask about, which may be the one that it was fitted on; "
            "the model's own features unless named.",
        ),
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write.")] = Path("report.html"),
    absolute_paths: common.AbsolutePaths = False,
    base: common.Base = None,
    trust_base: common.TrustBase = False,
    device: common.Device = "auto",
    store: common.Store = None,
    no_store: common.NoStore = False,
    skip_bad: common.SkipBad = False,
    exact_decode: common.ExactDecode = False,
    json: common.Json = False,
) -> None:
    """Show what a model does: a page with its confusions, its mistakes as pictures, and how good it is.

    Images that the model was fitted on are answered by fits that did not see them, so that the page does not
    flatter; where that cannot be, a warning says so. It is one file, and nothing in it is fetched from
    anywhere.

    prolip report my-model photos/ -o report.html
    """
    from prolip.api.measure import answer_held_out, answer_labelled, figures
    from prolip.api.reading import read_labelled

    clf = common.load(saved, device, False if no_store else store, skip_bad, base, trust_base, exact_decode)
    model = clf.model_
    if source is None:
        answers = answer_held_out(model)
    else:
        images = common.labelled(str(source), "test", absolute_paths)
        asked = read_labelled(model.encoder, images, None, "test", model.classes)
        with bar("encoding", quiet=json) as progress:
            answers = answer_labelled(model, asked, clf.reading, progress, honest=True)
    name = "its support set" if source is None else str(source)
    write_page(out, model, answers, saved.resolve().name, name, quiet=json)
    common.warn_of_copies(int((answers.in_support & ~answers.held_out).sum()))
    common.report_skipped(answers.skipped, json)
    told = figures(model, answers)
    if json:
        print_json({**told, "held_out": int(answers.held_out.sum()), "out": str(out)})
        return
    console().print(
        f"accuracy [bold]{percent(told['accuracy'])} %[/] on {told['images']} images "
        f"(zero-shot {percent(told['zero_shot_accuracy'])} %)\nPage: [bold]{escape(str(out))}[/]"
    )


def write_page(
    path: Path, model: AdaptedModel, answers: LabelledAnswers, title: str, source: str, *, quiet: bool
) -> None:
    """Write a page about a model and its answers."""
    from prolip.core.writing import write_bytes
    from prolip.report import model_page

    with bar("fitting", "fits", quiet=quiet) as progress:
        curve = _curve(model, progress)
    page = model_page(model, answers, title=title, source=source, curve=curve)
    write_bytes(path, page.encode("utf-8", "backslashreplace"))


def _curve(model: AdaptedModel, progress: Bar) -> Curve | str:
    """The learning curve, or why there is none."""
    from prolip.api.grow import learning_curve
    from prolip.core import UsageError
    from prolip.evaluate.curve import REPEATS
    from prolip.methods.common.tower_method import TowerMethod

    task = model.support.task
    if task is None:
        return "The model was saved without the features of its support set, so that nothing can be fitted."
    if isinstance(model.method(), TowerMethod):
        return f"{model.recipe.method} takes minutes to fit, and a learning curve takes many fits."
    if task.n > TOO_MANY:
        return f"With {task.n:,} images this takes a while: `prolip curve` draws it."
    try:
        return learning_curve(model, progress, repeats=max(1, min(REPEATS, DRAWS // task.n)))
    except UsageError as error:
        return f"Not known: {error}."
