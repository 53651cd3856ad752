"""`prolip report`: a page on a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from prolip.cli import options
from prolip.cli.console import OUTPUT, bar, console, escape, percent, print_json, report_skipped
from prolip.cli.parameters import HTML, argument, command, option
from prolip.io.progress import Bar, counted

if TYPE_CHECKING:
    from prolip.api import AdaptedModel
    from prolip.api.evaluate import LabelledPredictions
    from prolip.evaluate.curve import Curve

CURVE_WORK = 1500  # fits times images of a learning curve, about
MAX_CURVE_IMAGES = 4000  # with more, the learning curve takes too long for a page


@command("report")
@options.saved_model
@argument(
    "source", "[DIR]", "Labelled images, also those that the model was fitted on; by default, the page is "
    "about the features in the model.", required=False,
)  # fmt: skip
@option("--out", "-o", type=HTML, show_default="report.html", help="The page to write.")
@options.image_input
def report(
    saved: options.SavedModelInput,
    source: str | None,
    out: Path | None,
    images: options.ImageInput,
) -> None:
    """Write a page about a model: confusion matrix, mistakes.

    Images that the model was fitted on are classified by fits that did not see them, so that the accuracy is
    not too high; where that is not possible, there is a warning. The page is one file and loads nothing from
    the network.

    $ prolip report my-model photos/ -o report.html
    """
    from prolip.api.evaluate import figures, predict_held_out, predict_labelled
    from prolip.api.support import ImageSource
    from prolip.core import UsageError
    from prolip.io.reading import read_bytes

    if out is None:
        out = Path("report.html")
        if out.exists() and b"Made by prolip" not in read_bytes(out):
            raise UsageError(f"{out} is not a page of this program: name another file with -o")
    clf = saved.load(images)
    model = clf.model_
    if source is None:
        predicted = predict_held_out(model)
    else:
        labelled = images.labelled(source, "test")
        tested = ImageSource(model.encoder).labelled(labelled, None, "test", model.classes)
        with bar("encoding") as progress:
            predicted = predict_labelled(model, tested, clf.reading, progress, out_of_fold=True)
    name = source or "its training images"
    write_page(out, model, predicted, saved.path.resolve().name, name)
    report_skipped(predicted.skipped, int((predicted.in_support & ~predicted.held_out).sum()))
    found = figures(model, predicted)
    if OUTPUT.get().json:
        print_json({**found.to_json(), "held_out": int(predicted.held_out.sum()), "out": str(out)})
        return
    console().print(
        f"accuracy [bold]{percent(found.accuracy)} %[/] on {counted(found.images)} "
        f"(zero-shot {percent(found.zero_shot_accuracy)} %)\nPage: [bold]{escape(str(out))}[/]"
    )


def write_page(
    path: Path, model: AdaptedModel, predicted: LabelledPredictions, title: str, source: str
) -> None:
    """Write a page about a model and its predictions."""
    from prolip.io.writing import write_text
    from prolip.report import model_page

    with bar("fitting", "fits") as progress:
        curve = _curve(model, progress)
    write_text(path, model_page(model, predicted, title=title, source=source, curve=curve))


def _curve(model: AdaptedModel, progress: Bar) -> Curve | str:
    """Measure the learning curve, or return why there is none."""
    from prolip.api.grow import learning_curve
    from prolip.core import UsageError
    from prolip.evaluate.curve import REPEATS

    task = model.support.task
    if task is None:
        return "The model was saved without features, so that nothing can be fitted."
    if model.method().trains_tower:
        return f"{model.recipe.method} takes minutes to fit, and a learning curve takes many fits."
    if task.n > MAX_CURVE_IMAGES:
        return f"With {task.n:,} images this takes a while: `prolip curve` draws it."
    try:
        return learning_curve(model, progress, repeats=max(1, min(REPEATS, CURVE_WORK // task.n)))
    except UsageError as error:
        return f"Unknown: {error}."
