"""`prolip bench verify`: every method beside an independent computation."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from prolip.cli.bench_options import SeveralValues
from prolip.cli.console import OUTPUT, bar, print_json, say, table
from prolip.cli.parameters import PATH, command, option

if TYPE_CHECKING:
    from prolip.bench.verify.compare import Line


@command("verify", cls=SeveralValues)
@option("--data", type=PATH, help="A folder with features/whurs19_clip_*.npz, to compare on real features.")
@option("--only", multiple=True, metavar="NAME...", help='Methods (clap) or lines ("clap, exact").')
def verify(data: Path | None, only: tuple[str, ...]) -> None:
    """Compare every method with a formula, another optimizer, or its authors' steps: about a minute.

    The largest differences over 1, 4 and 16 shots, 1 and 10 views. Fails where one is beyond 0.01 of a logit
    or 0.3 points of accuracy.
    """
    from prolip.bench.verify.report import verify_all

    lines = []
    with bar("comparing", "methods") as drawn:
        for done, total, line in verify_all(data, only):
            lines.append(line)
            drawn(done, total)
            drawn.note(line.method)
    if OUTPUT.get().json:
        print_json([{**asdict(line), "agrees": line.agrees} for line in lines])
    else:
        shown = [[line.method, line.against, *_differences(line)] for line in lines]
        table(None, ["method", "compared with", "logits", "points", ""], shown, right=2)
        say(f"{sum(line.agrees for line in lines)} of {len(lines)} agree")
    if not all(line.agrees for line in lines):
        raise click.exceptions.Exit(1)


def _differences(line: Line) -> list[str]:
    """What a line of `verify` shows: differences, and whether one is too large."""
    known = [f"{line.apart[name]:.2g}" if name in line.apart else "" for name in ("logits", "points")]
    if "millions" in line.apart:
        known[0] = f"{line.apart['millions']:.2g} millions"
    return [*known, "" if line.agrees else f"too far in {' and '.join(line.beyond)}"]
