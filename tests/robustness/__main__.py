"""Try to break what writes files, and print a table of trials and faults.

    PYTHONPATH=tests python -m robustness [--kills 1000] [--at-once 5] [--seed 1] [--only kills once disk]

No fault (a traceback, a hang, a row that is lost or doubled, a silent change, another failure) may occur: the
exit code is 1 otherwise. The commands are the real ones, in children of one process that has
loaded the offline encoder. `--quick` runs a little of each.
"""

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from robustness.kills import Kills, Tally, at_once_trials, full_disk_trials, kill_trials
from robustness.process import share_encoder

KINDS = ("kills", "once", "disk")
QUICK = ["overwrite", "predict", "export over"]
MEMORY = Path("/dev/shm")  # where trials are made, if it exists: nothing waits for a disk
FAULTS = ("traceback", "hang", "lost or doubled", "silent change", "failure")


def main() -> None:
    """Run the trials that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--at-once", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--quick", action="store_true", help="a little of each")
    options = parser.parse_args()
    quick = QUICK if options.quick else None
    if options.quick:
        options.kills, options.at_once = 8, 1
    once = ["overwrite"] if quick else ["fit", "overwrite", "add"]
    folder = Path(tempfile.mkdtemp(prefix="prolip-robustness-", dir=MEMORY if MEMORY.is_dir() else None))
    os.environ["PROLIP_CACHE"] = str(folder / "cache")
    os.environ["TQDM_DISABLE"] = "1"
    total = Tally("all")
    try:
        kills = Kills(share_encoder(), folder / "kills")
        trials: dict[str, Callable[[], list[Tally]]] = {
            "kills": lambda: kill_trials(kills, options.kills, options.seed, quick),
            "once": lambda: at_once_trials(kills, options.at_once, 4, once),
            "disk": lambda: full_disk_trials(kills, 1 + options.kills // 50, options.seed, quick),
        }
        for tally in (tally for kind in options.only for tally in trials[kind]()):
            total.trials += tally.trials
            total.found.update(tally.found)
            show(tally)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    show(total)
    sys.exit(bool(total.found))


def show(tally: Tally) -> None:
    counts = "  ".join(f"{kind} {tally.found[kind]}" for kind in FAULTS)
    mark = "FAIL" if tally.found else "ok  "
    print(f"{mark}  {tally.name:<42} {tally.trials:>7,} trials  {counts}", flush=True)
    for example in tally.examples:
        print(f"\n{tally.name}\n{example}")


if __name__ == "__main__":
    main()
