"""`prolip compare`: which method for these images?"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from prolip.cli import common
from prolip.cli.console import bar, console, escape, print_json, say, table
from prolip.cli.fit_options import parse_templates

if TYPE_CHECKING:
    from prolip.evaluate.comparison import Candidate


def compare(
    source: Annotated[
        str, typer.Argument(metavar="DIR", help=f"Labelled images: {common.IMAGES}; of its part train.")
    ],
    report: Annotated[Path | None, typer.Option(help="Write a page with the plot, an .html.")] = None,
    model: common.Model = "offline",
    method: Annotated[
        list[str] | None,
        typer.Option(help="Hold this one against the default; may be repeated. All of them unless named."),
    ] = None,
    shots: common.Shots = None,
    seed: Annotated[int, typer.Option(min=0, max=common.MAX_SEED, help="Of sampling and folds.")] = 0,
    template: common.Template = None,
    descriptions: common.Descriptions = None,
    device: common.Device = "auto",
    store: common.Store = None,
    no_store: common.NoStore = False,
    skip_bad: common.SkipBad = False,
    absolute_paths: common.AbsolutePaths = False,
    json: common.Json = False,
) -> None:
    """Which method for these images? All that train no tower, zero-shot included, side by side.

    Every method is fitted on four fifths of the images and asked about the rest, five times over: the same
    images for all. It takes some seconds for a few dozen images, minutes for a thousand.

        prolip compare photos/

        prolip compare photos/ --method gda --method linear_probe --report compare.html
    """
    from prolip.api import FewShotClassifier
    from prolip.core import UsageError
    from prolip.core.writing import write_bytes
    from prolip.evaluate.comparison import Candidate
    from prolip.report.comparison_page import COLUMNS, comparison_page, table_row

    if report is not None and report.suffix.lower() != ".html":
        raise UsageError(f"{report}: a page is an .html file")
    candidates = None if method is None else [Candidate(name) for name in method]
    clf = FewShotClassifier(
        model, seed=seed, shots=shots, templates=parse_templates(template), descriptions=descriptions,
        device=device, store=False if no_store else store, skip_bad=skip_bad,
    )  # fmt: skip
    with bar("encoding", quiet=json) as progress:
        fitting = progress.beside("comparing", "methods")
        images = common.labelled(source, "train", absolute_paths)
        found = clf.compare(images, candidates=candidates, progress=progress, fitting=fitting)
    if report is not None:
        name = Path(source).resolve().name
        page = comparison_page(found, title=f"Which method for {name}?", source=source)
        write_bytes(report, page.encode("utf-8", "backslashreplace"))
    if json:
        print_json({**found.report(), "report": None if report is None else str(report)})
        return
    table(None, list(COLUMNS), [table_row(each) for each in found.judged])
    for name, why in found.left_out.items():
        say(f"not fitted: {name}: {why}")
    given: dict[str, Any] = {
        "model": model, "shots": shots, "seed": seed, "template": template, "descriptions": descriptions,
        "skip-bad": skip_bad, "absolute-paths": absolute_paths,
    }  # fmt: skip
    line = shlex.join(["prolip", "fit", source, "-o", "my-model", *_flags(found.chosen.candidate, given)])
    console().print(f"\nTake [bold]{escape(str(found.chosen.candidate))}[/]: {escape(found.why)}.")
    console().print(f"[bold]{escape(line)}[/]", soft_wrap=True)
    if report is not None:
        console().print(f"Page: [bold]{escape(str(report))}[/]")


def _flags(chosen: Candidate, given: dict[str, Any]) -> list[str]:
    """The options of a fit like the one that was chosen: its method's, and those given for the comparison."""
    flags = [] if chosen.method == "prolip" and not chosen.options else ["--method", chosen.method]
    for name, value in chosen.options.items():
        flags += ["--lam", str(value)] if name == "lam" else ["-O", f"{name}={value}"]
    usual = {"model": "offline", "seed": 0, "skip-bad": False, "absolute-paths": False}
    for name, value in given.items():
        if value is True:
            flags.append(f"--{name}")
        elif value != usual.get(name):
            for each in value if isinstance(value, list) else [value]:
                flags += [f"--{name}", str(each)]
    return flags
