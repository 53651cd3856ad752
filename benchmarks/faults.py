"""Trying to break it: kills, several processes, full disks, permissions, vanishing files.

    python benchmarks/faults.py [--kills 1000] [--at-once 5] [--files 100000] [--seed 1]
                                [--only library kills once disk user vanish many] [--folder DIR]
                                [--towers]
    python benchmarks/faults.py --quick

Prints a table: trials, tracebacks, hangs over 20 s, lost or doubled rows, silent changes, other failures. All
but the first should be 0; the exit code is 1 otherwise. The commands are the real ones; they run in children
of one process, which has loaded the offline encoder. `--quick` is a little of each, for the tests.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from fault_kills import Kills, Tally, at_once_trials, kill_trials
from fault_library import library_kills
from fault_places import full_disk_trials, many_files_trial, permission_trials, vanishing_trials
from fault_process import share_encoder

ALL = ("library", "kills", "once", "disk", "user", "vanish", "many")
QUICK = ["overwrite", "predict csv", "export over"]
MEMORY = Path("/dev/shm")  # where trials are made, unless a folder is named: copies are quick there
KINDS = ("traceback", "hang", "lost or doubled", "silent change", "failure")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--at-once", type=int, default=5)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="+", choices=ALL, default=ALL)
    parser.add_argument("--folder", type=Path, default=MEMORY if MEMORY.is_dir() else None)
    parser.add_argument("--towers", action="store_true", help="exports to hf and open_clip too; needs torch")
    parser.add_argument("--quick", action="store_true", help="a little of each")
    given = parser.parse_args()
    quick = QUICK if given.quick else None
    if given.quick:
        given.kills, given.at_once, given.files = 8, 1, 500
    folder = Path(tempfile.mkdtemp(prefix="prolip-faults-", dir=given.folder))
    os.environ["PROLIP_CACHE"] = str(folder / "cache")
    os.environ["TQDM_DISABLE"] = "1"
    tallies: list[Tally] = []
    try:
        kills = Kills(share_encoder(), folder / "kills", towers=given.towers)
        kinds: dict[str, Callable[[], list[Tally]]] = {
            "library": lambda: library_kills(folder / "library"),
            "kills": lambda: kill_trials(kills, given.kills, given.seed, not quick, quick),
            "once": lambda: at_once_trials(kills, given.at_once, 4, quick and ["predict csv"]),
            "disk": lambda: full_disk_trials(kills, 1 + given.kills // 50, given.seed, quick),
            "user": lambda: [] if quick else permission_trials(kills),
            "vanish": lambda: vanishing_trials(kills, 1 + given.kills // 20, given.seed),
            "many": lambda: many_files_trial(kills, given.files),
        }
        for kind in given.only:
            if kind in kinds:
                tallies += told(kinds[kind])
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    total = Tally("all")
    for tally in tallies:
        total.trials += tally.trials
        total.found.update(tally.found)
    show(total)
    for tally in tallies:
        for example in tally.examples:
            print(f"\n{tally.name}\n{example}")
    sys.exit(bool(total.found))


def told(trials: Callable[[], list[Tally]]) -> list[Tally]:
    """Run trials, and print a line for each kind."""
    began = time.monotonic()
    tallies = trials()
    for tally in tallies:
        show(tally)
    print(f"      {time.monotonic() - began:.0f} s", flush=True)
    return tallies


def show(tally: Tally) -> None:
    counts = "  ".join(f"{kind} {tally.found[kind]}" for kind in KINDS)
    print(
        f"{'LESS' if tally.found else 'ok  '}  {tally.name:<42} {tally.trials:>7,} trials  {counts}",
        flush=True,
    )


if __name__ == "__main__":
    main()
