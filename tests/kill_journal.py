"""Kill a program that changes a project, at random moments: is all that it acknowledged there?

    python tests/kill_journal.py [--kills 1000] [--seed 0]

Each run is a child process that opens the project and commits changes whose lines have from 100 bytes to
10 MB, some of which make the journal be compacted. It writes a byte to a pipe after each. It gets SIGKILL
some time after it has opened the project, or while it does; in every third run the journal is then cut as a
kill inside a write would leave it. The project is opened again and compared with the same changes applied in
memory.
"""

import argparse
import contextlib
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

from prolip.app import history, journal
from prolip.app.project import Project
from prolip.app.state import Change, ClassRow, ImageRow, State

IDS = [f"{i:064x}" for i in range(20_000)]
NAME = "x" * 400
RUNS = 40  # kills of one project, before the next is begun


def change(number, seed):
    """The change that makes this revision: always the same one."""
    rng = random.Random(seed * 1_000_003 + number)
    rows = rng.choices([0, 1, rng.randrange(10, 300), rng.randrange(2000, len(IDS))], [4, 4, 3, 2])[0]
    images = {image: ImageRow(NAME, str(number % 999 + 1)) for image in rng.sample(IDS, rows)}
    return Change("", {str(number + 1): ClassRow(f"class {number}")}, images)


def after(state, changes):
    """The tables after some changes, computed once more."""
    classes, images, following = dict(state.classes), dict(state.images), state.next_class
    for each in changes:
        classes.update(each.classes)
        images.update(each.images)
        following = max([following, *(int(key) + 1 for key in each.classes)])
    left = ({key: row for key, row in table.items() if row is not None} for table in (classes, images))
    return State(*left, following)


def work(folder, seed, acknowledged):
    """Commit changes until the end comes."""
    with Project.open(folder) as project:
        os.write(acknowledged, b"open")
        while True:
            project.commit(lambda _: change(project.revision, seed))
            os.write(acknowledged, b".")


def kill_once(folder, seed, rng):
    """How many changes a killed run acknowledged."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        with contextlib.suppress(BaseException):
            work(folder, seed, writer)
        os._exit(1)
    os.close(writer)
    opening = rng.random() < 0.1
    found = 0 if opening else len(os.read(reader, 4)) - 4
    time.sleep(rng.choice([0.02, 0.2, 1.0]) * rng.random())
    os.kill(child, signal.SIGKILL)
    while block := os.read(reader, 1 << 16):
        found += block.count(b".")
    os.close(reader)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), "the program ended by itself"
    return found


def cut(folder, rng):
    """Leave a last line as a kill inside a write does: a part of it, of any length."""
    line = journal.to_json(change(rng.randrange(1000), rng.randrange(9)).as_json()) + b"\n"
    part = rng.choice([1, len(line) - 1, rng.randrange(1, len(line))])
    # A kill during compaction leaves two; the one that counts is that of the snapshot.
    revision = journal.read_snapshot(folder / journal.SNAPSHOT)[0].revision
    with (folder / f"journal-{revision}.jsonl").open("ab") as file:
        if file.tell() == 0 or whole(file.name):
            file.write(line[:part])
            return 1
    return 0


def whole(name):
    with Path(name).open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read() == b"\n"


def run(kills, seed, small=1 << 20, undo_rows=30_000):
    """Kill so many times; returns what was seen. An error is raised where something is missing."""
    seen = {"kills": 0, "acknowledged": 0, "unacknowledged": 0, "cut": 0, "torn": 0, "compacted": 0}
    journal.COMPACT_AT, history.UNDO_ROWS = small, undo_rows
    rng = random.Random(seed)
    while seen["kills"] < kills:
        with tempfile.TemporaryDirectory() as place:
            folder, state, revision = Path(place) / "p", State(), 0
            for _ in range(min(RUNS, kills - seen["kills"])):
                found = kill_once(folder, seed, rng)
                seen["kills"] += 1
                seen["acknowledged"] += found
                if not (folder / "project.json").exists():
                    continue
                journals = [path for path in folder.glob("journal-*") if path.stat().st_size]
                seen["torn"] += any(not whole(path) for path in journals)
                if seen["kills"] % 3 == 0:
                    seen["cut"] += cut(folder, rng)
                with Project.open(folder) as project:
                    there = project.revision
                    assert revision + found <= there <= revision + found + 1, (revision, found, there)
                    state = after(state, [change(number, seed) for number in range(revision, there)])
                    assert project.state == state
                    seen["unacknowledged"] += there - revision - found
                    revision = there
                assert len(list(folder.glob("journal-*"))) <= 1
                seen["compacted"] += (folder / journal.SNAPSHOT).exists()
    return seen


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print(run(options.kills, options.seed))
    sys.exit(0)
