"""Kill a program that edits a project, at random moments: is all that it acknowledged there?

    python tests/app/kill_project.py [--kills 300] [--seed 0]

Each run is a child process that opens the project, and makes the edits of a session: classes, images, labels
of from 1 to 2,000 images, removals, undo. It writes a byte to a pipe after each. It gets SIGKILL some time
after it has opened the project, or while it does. The project is opened again and compared with the same
edits applied in memory, and the file of every image must be there.
"""

import argparse
import contextlib
import hashlib
import os
import random
import signal
import tempfile
import time
from pathlib import Path

from prolip.app import edits
from prolip.app.project import Project
from prolip.app.state import State

RUNS = 40  # kills of one project, before the next is begun


def content(number):
    """The bytes of an image, and its id."""
    data = number.to_bytes(4, "big") * 50
    return hashlib.sha256(data).hexdigest(), data


def edit_of(number, seed, state):
    """The edit at a revision of a project: always the same one. None: undo."""
    rng = random.Random(seed * 1_000_003 + number)
    classes, images = state.ordered_classes(), sorted(state.images)
    kind = rng.choices(["image", "class", "label", "remove", "remove class", "undo"], [12, 1, 4, 1, 0.3, 1])[
        0
    ]
    if kind == "undo" and number:
        return None
    if kind == "label" and images and classes:
        some, label = rng.sample(images, rng.randint(1, len(images))), rng.choice(classes)
        return lambda s: edits.label_images(s, some, label)
    if kind == "remove" and images:
        return lambda s: edits.remove_images(s, [images[0]])
    if kind == "remove class" and len(classes) > 2:
        return lambda s: edits.remove_class(s, classes[0])
    if kind == "class" or not classes:
        return lambda s: edits.add_class(s, f"class {number}")
    return number  # an image of this number


def step(project, seed):
    """Make the next edit; one that changes nothing is followed by a class, so that each has its revision."""
    number, revision = project.revision, project.revision
    edit = edit_of(number, seed, project.state)
    if edit is None:
        project.undo()
    elif isinstance(edit, int):
        image, data = content(edit)
        label = project.state.ordered_classes()[-1]
        project.add_image(image, data, b"small", name=f"{edit}.jpg", label=label)
    else:
        project.commit(edit)
    if project.revision == revision:
        project.commit(lambda s: edits.add_class(s, f"filling {number}"))


def states(count, seed):
    """Yield the state after each of the first edits of a session that nobody kills."""
    with tempfile.TemporaryDirectory() as place, Project.open(Path(place) / "p") as project:
        for _ in range(count):
            step(project, seed)
            yield project.state


def work(folder, seed, acknowledged):
    """Edit until the end comes."""
    with Project.open(folder) as project:
        os.write(acknowledged, b"open")
        while True:
            step(project, seed)
            os.write(acknowledged, b".")


def kill_once(folder, seed, rng):
    """Start a program and kill it; returns how many edits it acknowledged."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        with contextlib.suppress(BaseException):
            work(folder, seed, writer)
        os._exit(1)
    os.close(writer)
    opening = rng.random() < 0.1
    acknowledged = 0 if opening else len(os.read(reader, 4)) - 4
    time.sleep(rng.choice([0.05, 0.5, 2.0]) * rng.random())
    os.kill(child, signal.SIGKILL)
    while block := os.read(reader, 1 << 16):
        acknowledged += block.count(b".")
    os.close(reader)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), "the program ended by itself"
    return acknowledged


def run(kills, seed):
    """Kill so many times; returns what was seen. An error is raised where something is missing."""
    seen = {"kills": 0, "acknowledged": 0, "unacknowledged": 0}
    rng = random.Random(seed)
    while seen["kills"] < kills:
        with tempfile.TemporaryDirectory() as place:
            folder, revision, expected = Path(place) / "p", 0, State()
            session = states(1_000_000, seed)
            for _ in range(min(RUNS, kills - seen["kills"])):
                acknowledged = kill_once(folder, seed, rng)
                seen["kills"] += 1
                seen["acknowledged"] += acknowledged
                with Project.open(folder) as project:
                    there, state = project.revision, project.state
                    assert revision + acknowledged <= there <= revision + acknowledged + 1
                    for _ in range(there - revision):
                        expected = next(session)
                    assert state == expected
                    assert all(project.image(image).stat().st_size == 200 for image in state.images)
                    seen["unacknowledged"] += there - revision - acknowledged
                    revision = there
            session.close()
        seed += 1
    return seen


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print(run(options.kills, options.seed))
