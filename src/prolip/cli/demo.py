"""`prolip demo`."""

import shlex
from pathlib import Path
from typing import Any

from prolip.cli import options
from prolip.cli.console import OUTPUT, bar, console, escape, percent, print_json, program, say, table
from prolip.cli.parameters import PATH, command, option


@command("demo")
@option("--out", "-o", type=PATH, default="prolip-demo", help="Folder for the report.")
@options.features_store
def demo(out: Path, store: Path | None) -> None:
    """Show what this does, without data or network, in a minute.

    Fits the offline encoder on built-in images with 1, 4 and 16 images per class, prints the accuracy before
    (zero-shot) and after, and writes a report, a saved model and photos to try other commands with.
    """
    say("loading the offline encoder ...")
    from prolip import demo as demonstration

    bars: dict[str, Any] = {}
    with bar("encoding") as first:

        def progress(label: str, done: int, total: int) -> None:
            unit = "fits" if label.startswith("fitting") else "images"
            bars.setdefault(label, first.beside(label, unit))(done, total)

        summary = demonstration.run(out, store, progress)
    if OUTPUT.get().json:
        print_json(summary)
        return
    shots = demonstration.SHOTS
    rows = [
        [s["set"], percent(s["zero_shot_accuracy"]), *(percent(s["accuracy"][str(n)]) for n in shots)]
        for s in summary["sets"]
    ]
    table("accuracy in %, on test images", ["set", "zero-shot", *(f"{n}-shot" for n in shots)], rows)
    fits = [seconds for s in summary["sets"] for seconds in s["seconds"].values()]
    report, model, photos = (
        escape(shlex.quote(str(out / name))) for name in ("report.html", "textures-model", "photos")
    )
    run = escape(program())
    console().print(
        f"\nA fit took {min(fits):.2f} to {max(fits):.2f} s; all of this {summary['seconds']:.0f} s.\n"
        f"Report: [bold]{report}[/]   results beside it\n"
        f"Next:   [bold]{run} predict {model} {photos}/test[/]\n"
        f"        [bold]{run} fit {photos} -o my-model[/]   (or photos of your own: a folder for each class)",
        soft_wrap=True,
    )
