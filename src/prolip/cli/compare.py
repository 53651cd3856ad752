"""`prolip compare`: which method for these images?"""

from __future__ import annotations

import shlex
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prolip.cli import options
from prolip.cli.console import OUTPUT, bar, console, escape, print_json, program, say, table
from prolip.cli.parameters import HTML, argument, command, flag, option

if TYPE_CHECKING:
    from prolip.evaluate.comparison import Candidate

BRIEF = 6  # columns without -v, which fit a terminal of 80 characters


@command("compare")
@argument("source", "DIR", options.TRAINING)
@options.training_input
@option("--report", type=HTML, help="Write a page with the plot, an .html file.")
@option("--method", multiple=True, show_default="five", help="Compare this method with the default one.")
@flag("--all", "every", help="Compare every method that trains no encoder.")
@options.image_input
def compare(
    source: str,
    training: options.TrainingInput,
    report: Path | None,
    method: tuple[str, ...],
    every: bool,
    images: options.ImageInput,
) -> None:
    """Compare methods on your images, and suggest one.

    Five methods (anchored, prolip, gda, linear_probe and zero_shot), those of --method, or all are fitted on
    four fifths of the images and evaluated on the rest, five times, on the same images. It takes some seconds
    for a few dozen images; all methods take minutes for a thousand.

    $ prolip compare photos/
    $ prolip compare photos/ --method gda --method linear_probe --report compare.html
    """
    from prolip.core import UsageError
    from prolip.evaluate.comparison import USUAL, Candidate
    from prolip.io.writing import write_bytes
    from prolip.report.comparison_page import COLUMNS, comparison_page, table_row

    if every and method:
        raise UsageError("--all and --method exclude each other")
    candidates = None if every else [Candidate(name) for name in method] or USUAL
    clf = training.classifier(images)
    with bar("encoding") as progress:
        fitting = progress.beside("comparing", "methods")
        labelled = images.labelled(source, "train")
        found = clf.compare(labelled, candidates=candidates, progress=progress, fitting=fitting)
    if report is not None:
        name = Path(source).resolve().name
        page = comparison_page(found, title=f"Which method for {name}?", source=source)
        write_bytes(report, page.encode("utf-8", "backslashreplace"))
    if OUTPUT.get().json:
        print_json({**found.report(), "report": None if report is None else str(report)})
        return
    shown = len(COLUMNS) if OUTPUT.get().verbose else BRIEF
    table(None, list(COLUMNS[:shown]), [table_row(each)[:shown] for each in found.scores])
    for name, why in found.left_out.items():
        say(f"not fitted: {name}: {why}")
    if found.decided:
        flags = _flags(found.chosen.candidate, training, images)
        line = f"{program()} {shlex.join(['fit', source, '-o', 'my-model', *flags])}"
        console().print(
            f"\nRecommended: [bold]{escape(str(found.chosen.candidate))}[/]: {escape(found.why)}."
        )
        console().print(f"[bold]{escape(line)}[/]", soft_wrap=True)
    else:
        console().print(f"\n[bold]Cannot tell[/]: {escape(found.why)}. Add images, and compare again.")
    if report is not None:
        console().print(f"Page: [bold]{escape(str(report))}[/]")


def _flags(chosen: Candidate, training: options.TrainingInput, images: options.ImageInput) -> list[str]:
    """Return the options of a fit with the recommended method, on the same images."""
    flags = [] if chosen.method == "anchored" and not chosen.options else ["--method", chosen.method]
    for name, value in chosen.options.items():
        flags += ["--lam", str(value)] if name == "lam" else ["-O", f"{name}={value}"]
    for group in (training, images):
        for one in fields(group):
            value = getattr(group, one.name)
            if value != one.default:
                words = [[]] if value is True else [[str(each)] for each in _several(value)]
                flags += [word for each in words for word in (f"--{one.name.replace('_', '-')}", *each)]
    return flags


def _several(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)
