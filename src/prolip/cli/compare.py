"""`prolip compare`: which method, and which model, for these images?"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from prolip.cli import options
from prolip.cli.console import OUTPUT, console, escape, print_json, program, say, table
from prolip.cli.parameters import argument, command, flag, option

if TYPE_CHECKING:
    from prolip.evaluate.comparison import CandidateScore, Comparison

COLUMNS = (
    "model",
    "method",
    "accuracy %",
    "95 % interval",
    "difference",
    "fit s",
    "open-class",
    "calibration error %",
)
BRIEF = 6  # columns without -v, which fit a terminal of 80 characters


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
    from prolip.cli.models import ensure_downloaded
    from prolip.core import UsageError
    from prolip.encoders import check_model
    from prolip.evaluate.comparison import USUAL, Candidate

    if every and method:
        raise UsageError("--all and --method exclude each other")
    candidates = None if every else [Candidate(name) for name in method] or USUAL
    names = list(dict.fromkeys(models)) or ["offline"]
    for name in names:
        check_model(name)
        ensure_downloaded(name, settings["download"])
    clf = options.new_classifier({"model": names[0], **settings})
    found = clf.compare(tables.labelled(source, "train"), candidates=candidates, models=names)
    if OUTPUT.get().json:
        print_json(found.report())
        return
    _show(found)
    if found.decided:
        line = shlex.join(["fit", source, "-o", "my-model", *_flags(found.chosen, settings, tables)])
        console().print(f"[bold]{escape(f'{program()} {line}')}[/]", soft_wrap=True)


def _show(found: Comparison) -> None:
    """Print the figures of all candidates, and which of them is recommended."""
    first = 0 if len({score.model for score in found.scores}) > 1 else 1  # the column of the model
    shown = slice(first, len(COLUMNS) if OUTPUT.get().verbose else first + BRIEF)
    table(None, list(COLUMNS[shown]), [_table_row(score)[shown] for score in found.scores], right=2 - first)
    for name, why in found.left_out.items():
        say(f"not fitted: {name}: {why}")
    if found.decided:
        console().print(f"\nRecommended: [bold]{escape(str(found.chosen))}[/]: {escape(found.why)}.")
    else:
        console().print(f"\n[bold]Cannot tell[/]: {escape(found.why)}. Add images, and compare again.")


def _table_row(score: CandidateScore) -> list[str]:
    """Format the figures of a candidate for the columns of a table."""
    return [
        score.model,
        str(score.candidate),
        f"{100 * score.accuracy:.1f}",
        f"{100 * score.low:.1f} to {100 * score.high:.1f}",
        f"{100 * score.gap:+.1f} ± {100 * score.error:.1f}",
        f"{score.seconds:.2f}",
        "yes" if score.open_class else "no",
        f"{100 * score.calibration_error:.1f}",
    ]


def _flags(score: CandidateScore, settings: dict[str, Any], tables: options.Tables) -> list[str]:
    """Return the options of a fit with the recommended method, on the same images."""
    chosen = score.candidate
    flags = [] if chosen.method == "anchored" and not chosen.options else ["--method", chosen.method]
    flags = flags if score.model == "offline" else ["--model", score.model, *flags]
    for name, value in chosen.options.items():
        flags += ["-O", f"{name}={value}"]
    given = {name: settings[name] for name in ("shots", "seed", "templates") if settings[name]} | vars(tables)
    for name, value in given.items():
        flag = "--template" if name == "templates" else f"--{name.replace('_', '-')}"
        for each in value if isinstance(value, tuple) else (value,):
            flags += [] if each is None else [flag, str(each)]
    return flags if settings["skip_bad"] else [*flags, "--strict"]
