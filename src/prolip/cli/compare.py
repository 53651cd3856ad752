"""`prolip compare`: which method for these images?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from prolip.cli.common import (
    Descriptions,
    Device,
    Json,
    Model,
    NoStore,
    SkipBad,
    Store,
    Template,
    as_given,
)
from prolip.cli.console import bar, console, escape, print_json, say, table


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("compare")(compare)


def compare(
    source: Annotated[
        Path, typer.Argument(metavar="DIR", help="A folder per class; or one with train/ inside.")
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Write a page with a plot, .html; or the plot alone, .svg."),
    ] = None,
    model: Model = "offline",
    method: Annotated[
        list[str] | None,
        typer.Option(help="Hold this one against the default; may be repeated. All of them unless named."),
    ] = None,
    shots: Annotated[int | None, typer.Option(help="Images per class to use; all unless named.")] = None,
    views: Annotated[int, typer.Option(help="Views of each image: the centre, and augmented ones.")] = 1,
    seed: Annotated[int, typer.Option(help="Of sampling and folds.")] = 0,
    template: Template = None,
    descriptions: Descriptions = None,
    device: Device = "auto",
    store: Store = None,
    no_store: NoStore = False,
    skip_bad: SkipBad = False,
    json: Json = False,
) -> None:
    """Which method for these images? All that train no tower, zero-shot included, side by side.

    Every method is fitted on four fifths of the images and asked about the rest, five times over: the same
    images for all. It takes some seconds for a few dozen images, minutes for a thousand.

        prolip compare photos/

        prolip compare photos/ --method gda --method linear_probe -o compare.html
    """
    from prolip.api import FewShotClassifier
    from prolip.core.files import write_bytes
    from prolip.evaluate.comparison import Candidate
    from prolip.evaluate.comparison_page import COLUMNS, draw_page, draw_plot, page_format, table_row

    style = "" if out is None else page_format(out)
    candidates = None if method is None else [Candidate(name) for name in method]
    clf = FewShotClassifier(
        model, views=views, seed=seed, shots=shots, templates=as_given(template), descriptions=descriptions,
        device=device, store=False if no_store else store, skip_bad=skip_bad,
    )  # fmt: skip
    with bar("encoding", quiet=json) as progress:
        fitting = progress.beside("comparing", "methods")
        found = clf.compare(str(source), candidates=candidates, progress=progress, fitting=fitting)
    if out is not None:
        drawn = draw_page(found, source.name) if style == "html" else draw_plot(found)
        write_bytes(out, drawn.encode())
    if json:
        print_json({**found.report(), "out": None if out is None else str(out)})
        return
    table(None, list(COLUMNS), [table_row(each) for each in found.judged])
    for name, why in found.left_out.items():
        say(f"not fitted: {name}: {why}")
    chosen = found.chosen.candidate
    flags = "" if chosen.method == "prolip" and not chosen.options else f" --method {chosen.method}"
    flags += "".join(
        f" --lam {value}" if name == "lam" else f" -O {name}={value}"
        for name, value in chosen.options.items()
    )
    console().print(
        f"\nTake [bold]{escape(str(chosen))}[/]: {escape(found.why)}.\n"
        f"[bold]prolip fit {escape(str(source))} -o my-model{escape(flags)}[/]"
        + (f"\nDrawn to [bold]{escape(str(out))}[/]" if out is not None else "")
    )
