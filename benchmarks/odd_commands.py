"""A thousand odd command lines: tracebacks, hangs, exit codes that are none, files that should not be there.

    python benchmarks/odd_commands.py [--count 1000] [--seed 0]

Every option of every command with values that cannot be meant (tests/odd_lines.py), then lines with several
of them, words in the wrong place, options without a value, drawn from the seed. Asked: 0 of each.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from itertools import chain, islice
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from odd_lines import every_line, prepare, random_lines
from prolip.api import FewShotClassifier
from prolip.cli import main

HANG = 20  # seconds


def hang(*_):
    raise TimeoutError


def run(line):
    """Exit code (None: a traceback), output and errors of a line."""
    out, err, code = io.StringIO(), io.StringIO(), None
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        sys.argv = ["prolip", *line]
        signal.alarm(HANG)
        try:
            main()
        except SystemExit as stop:
            code = stop.code or 0
        except BaseException:
            traceback.print_exc()
        finally:
            signal.alarm(0)
    return code, out.getvalue(), err.getvalue()


def faults(line, root):
    """What is wrong with how a line ended."""
    before, began = sorted(os.walk(root)), time.perf_counter()
    code, _, err = run(line)
    told = [part for part in err.splitlines() if not part.startswith("warning:")]
    if time.perf_counter() - began >= HANG:
        yield "hang"
    if code is None:
        yield "traceback"
    elif code not in (0, 1, 2):
        yield "exit code"
    elif code:
        if len(told) != 1 or not told[0].startswith("error: "):
            yield "not one line"
        if sorted(os.walk(root)) != before:
            yield "written"
    if "\x1b" in err:
        yield "escape"


def measure(count, seed):
    found, tried = Counter(), 0
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        places = prepare(root)
        os.environ["PROLIP_CACHE"] = str(root / "cache")
        FewShotClassifier(lam=0.3).fit(places["source"]).save(places["path"])
        (root / "here").mkdir()
        os.chdir(root / "here")
        signal.signal(signal.SIGALRM, hang)
        lines = chain(every_line(places), random_lines(places, count, seed))
        for line in islice(lines, count):
            tried += 1
            for fault in faults(line, folder):
                found[fault] += 1
                print(f"{fault}: prolip {' '.join(word[:60] for word in line)!r}", flush=True)
        os.chdir("/")
    met = "LESS" if found else "ok  "
    print(f"{met}  {tried} odd command lines: {dict(found) or 'no fault'}   asked: 0")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    measure(asked.count, asked.seed)
