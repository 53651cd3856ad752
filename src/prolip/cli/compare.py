"""`prolip compare`: which method, and which model, for these images?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prolip.cli import options
from prolip.cli.console import console, escape, percent, print_as_json, say, table, typed
from prolip.cli.parameters import argument, command, flag, option

if TYPE_CHECKING:
    from prolip.evaluate.comparison import Comparison

COLUMNS = ["model", "method", "accuracy %", "95 % interval", "difference", "fit s", "open-class"]


@command("compare")
@argument("source", "DIR", options.TRAINING)
@option(
    "--model",
    "models",
    multiple=True,
    show_default="offline",
    help="A model, as `fit` takes it; the first is the one to beat.",
)
@options.fit_options("shots", "seed", "templates", "skip_bad", "download", "device", "store")
@option("--method", multiple=True, show_default="five", help="Compare this method with the default one.")
@flag("--all", "every", help="Compare every method that trains no encoder.")
@options.tables
def compare(
    source: str,
    models: tuple[str, ...],
    method: tuple[str, ...],
    every: bool,
    settings: dict[str, Any],
    tables: options.Tables,
) -> None:
    """Compare methods, and models, on your images, and suggest one.

    Five methods (anchored, prolip, gda, linear_probe and zero_shot), those of --method, or all are fitted on
    four fifths of the images and evaluated on the rest, five times, on the same images. It takes some seconds
    for a few dozen images; all methods take minutes for a thousand. Several models are compared on the same
    images.

    $ prolip compare photos/
    $ prolip compare photos/ --model offline --model clip --model siglip2-b16
    $ prolip compare photos/ --method gda --method linear_probe
    """
    from prolip.core import UsageError
    from prolip.evaluate.comparison import USUAL, Candidate

    if every and method:
        raise UsageError("--all and --method exclude each other")
    candidates = None if every else [Candidate(name) for name in method] or USUAL
    names = list(dict.fromkeys(models)) or ["offline"]
    for name in names:
        options.ensure_downloaded(name, settings["download"])
    clf = options.new_classifier({"model": names[0], **settings})
    comparison = clf.compare(tables.labelled(source, "train"), candidates=candidates, models=names)
    if print_as_json(comparison.report()):
        return
    _show(comparison)
    if comparison.decided:
        score = comparison.chosen
        flags = ["--model", score.model, "--method", score.candidate.method]
        for name, value in score.candidate.options.items():
            flags += ["-O", f"{name}={value}"]
        console().print(typed("fit", source, "-o", "my-model", *flags), soft_wrap=True)


def _show(comparison: Comparison) -> None:
    """Print the figures of all candidates, and which of them is recommended."""
    first = 0 if len({score.model for score in comparison.scores}) > 1 else 1  # the column of the model
    rows = [
        [
            score.model,
            str(score.candidate),
            percent(score.accuracy),
            f"{percent(score.low)} to {percent(score.high)}",
            f"{100 * score.gap:+.1f} ± {100 * score.error:.1f}",
            f"{score.seconds:.2f}",
            "yes" if score.open_class else "no",
        ]
        for score in comparison.scores
    ]
    table(None, COLUMNS[first:], [row[first:] for row in rows], right=2 - first)
    for name, why in comparison.left_out.items():
        say(f"not fitted: {name}: {why}")
    if comparison.decided:
        chosen = escape(comparison.chosen)
        console().print(f"\nRecommended: [bold]{chosen}[/]: {escape(comparison.why)}.")
    else:
        console().print(f"\n[bold]Cannot tell[/]: {escape(comparison.why)}. Add images, and compare again.")
