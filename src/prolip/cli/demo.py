"""`prolip demo`: the demonstration, its progress and its table."""

from pathlib import Path
from typing import Annotated, Any

import typer

from prolip.cli.common import Json, Store
from prolip.cli.console import bar, console, escape, percent, print_json, say, table


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the report.")] = Path("prolip-demo"),
    store: Store = None,
    json: Json = False,
) -> None:
    """Show what this does, with no data and no network: about a minute the first time.

    Fits the offline encoder on built-in pictures with 1, 4 and 16 images a class, prints zero-shot against
    adapted accuracy, and writes a report.
    """
    say("loading the offline encoder ...", quiet=json)
    from prolip import demo as demonstration

    bars: dict[str, Any] = {}
    with bar("encoding", quiet=json) as first:

        def progress(label: str, done: int, total: int) -> None:
            unit = "fits" if label.startswith("fitting") else "pictures"
            bars.setdefault(label, first.beside(label, unit))(done, total)

        summary = demonstration.run(out, store, progress)
    if json:
        print_json(summary)
        return
    shots = demonstration.SHOTS
    rows = [
        [s["set"], percent(s["zero_shot_accuracy"]), *(percent(s["accuracy"][str(n)]) for n in shots)]
        for s in summary["sets"]
    ]
    table("accuracy in %, on unseen pictures", ["set", "zero-shot", *(f"{n}-shot" for n in shots)], rows)
    fits = [seconds for s in summary["sets"] for seconds in s["seconds"].values()]
    report, model, pictures = (escape(str(out / n)) for n in ("report.html", "textures-model", "pictures"))
    console().print(
        f"\nA fit took {min(fits):.2f} to {max(fits):.2f} s; all of this {summary['seconds']:.0f} s.\n"
        f"Report: [bold]{report}[/]   results beside it\n"
        f"Next:   [bold]prolip predict {model} {pictures} --top 3[/]\n"
        f"        [bold]prolip fit YOUR_PHOTOS/ -o my-model[/]   (a folder for each class)"
    )
