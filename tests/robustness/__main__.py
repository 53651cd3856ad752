"""Try to break what writes files, and print a table of trials and faults.

    PYTHONPATH=tests python -m robustness [--kills 1000] [--at-once 5] [--files 100000] [--seed 1] [--towers]
                                          [--only library kills once disk user vanish many] [--folder DIR]

No fault (a traceback, a hang, a row that is lost or doubled, a silent change, another failure) may occur: the
exit code is 1 otherwise. The commands are the real ones, in children of one process that has
loaded the offline encoder. `--quick` runs a little of each.
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from robustness.kills import Kills, Tally, at_once_trials, kill_trials
from robustness.places import full_disk_trials, many_files_trial, permission_trials, vanishing_trials
from robustness.process import share_encoder
from robustness.writers import careless, killed, library_kills

KINDS = ("library", "kills", "once", "disk", "user", "vanish", "many")
QUICK = ["overwrite", "predict csv", "export over"]
MEMORY = Path("/dev/shm")  # where trials are made, if it exists: nothing waits for a disk
FAULTS = ("traceback", "hang", "lost or doubled", "silent change", "failure")


def main() -> None:
    """Run the trials that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--at-once", type=int, default=5)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="+", choices=(*KINDS, "careless"), default=KINDS)
    parser.add_argument("--folder", type=Path, default=MEMORY if MEMORY.is_dir() else None)
    parser.add_argument("--towers", action="store_true", help="exports to hf and open_clip too; needs torch")
    parser.add_argument("--quick", action="store_true", help="a little of each")
    options = parser.parse_args()
    quick = QUICK if options.quick else None
    if options.quick:
        options.kills, options.at_once, options.files = 8, 1, 500
    folder = Path(tempfile.mkdtemp(prefix="prolip-robustness-", dir=options.folder))
    os.environ["PROLIP_CACHE"] = str(folder / "cache")
    os.environ["TQDM_DISABLE"] = "1"
    tallies: list[Tally] = []
    try:
        encoder = share_encoder()
        alone = {"careless", "library"} >= set(options.only)
        kills = None if alone else Kills(encoder, folder / "kills", options.towers)
        trials: dict[str, Callable[[], list[Tally]]] = {
            "careless": lambda: [killed(careless(), folder / "careless")],
            "library": lambda: library_kills(folder / "library"),
            "kills": lambda: kill_trials(kills, options.kills, options.seed, quick),
            "once": lambda: at_once_trials(
                kills, options.at_once, 4, ["overwrite"] if quick else ["fit", "overwrite", "add"]
            ),
            "disk": lambda: full_disk_trials(kills, 1 + options.kills // 50, options.seed, quick),
            "user": lambda: [] if quick else permission_trials(kills),
            "vanish": lambda: vanishing_trials(kills, 1 + options.kills // 20, options.seed),
            "many": lambda: many_files_trial(kills, options.files),
        }
        for kind in options.only:
            tallies += run(trials[kind])
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    total = Tally("all", trials=sum(tally.trials for tally in tallies))
    for tally in tallies:
        total.found.update(tally.found)
    show(total)
    for tally in tallies:
        for example in tally.examples:
            print(f"\n{tally.name}\n{example}")
    sys.exit(bool(total.found))


def run(trials: Callable[[], list[Tally]]) -> list[Tally]:
    """Run trials, and print a line for each kind."""
    began = time.monotonic()
    tallies = trials()
    for tally in tallies:
        show(tally)
    print(f"      {time.monotonic() - began:.0f} s", flush=True)
    return tallies


def show(tally: Tally) -> None:
    counts = "  ".join(f"{kind} {tally.found[kind]}" for kind in FAULTS)
    mark = "FAIL" if tally.found else "ok  "
    print(f"{mark}  {tally.name:<42} {tally.trials:>7,} trials  {counts}", flush=True)


if __name__ == "__main__":
    main()
