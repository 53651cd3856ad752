"""Full disks, folders without permission, files that vanish, and very many files."""

import os
import random
import time
from pathlib import Path

from robustness.commands import contents, copy, read_rows, work
from robustness.kills import Kills, Tally
from robustness.process import NOBODY, PATIENCE, Child, Ran


def full_disk_trials(kills: Kills, count: int, seed: int, jobs: list[str] | None = None) -> list[Tally]:
    """Limit the size of files, as a full disk does; then lift the limit and run the command again."""
    generator, tallies = random.Random(seed), []
    for job, tally in kills.chosen("full disk", jobs):
        for _ in range(count):
            copy(kills.start, kills.trial)
            tally.trials += 1
            limit = int(10 ** generator.uniform(1, 6.5))
            child = Child(work(kills.trial, job.arguments), limit=limit)
            tally.judge(child.wait(), (0, 1, 2))
            for problem in job.check(kills.trial, False):
                tally.add("silent change", f"{job.name}, {limit} bytes: {problem}")
            tally.judge(Child(work(kills.trial, job.arguments)).wait(), job.again)
            for problem in job.check(kills.trial, True):
                tally.add("lost or doubled", f"{job.name}, {limit} bytes, then run again: {problem}")
        tallies.append(tally)
    return tallies


def permission_trials(kills: Kills) -> list[Tally]:
    """Run every job as an ordinary user in folders of another user; only root can do that."""
    tally = Tally("an ordinary user without permissions")
    if os.geteuid():
        return []
    for job in kills.checks.jobs():
        copy(kills.start, kills.trial)
        before = contents(kills.trial)
        _let_through(kills.trial)
        tally.trials += 1
        ran = _as_nobody(kills, job.arguments)
        tally.judge(ran, (1, 2))
        if "cannot" not in ran.output:
            tally.add("failure", f"{job.name}: {ran.output[-300:]}")
        if contents(kills.trial) != before:
            tally.add("silent change", job.name)
    predicts = Tally("predict without a cache that can be written")
    predicts.trials += 1
    predicts.judge(_as_nobody(kills, ("predict", "model", "photos", "--json")), (0,))
    return [tally, predicts]


def _as_nobody(kills: Kills, arguments: tuple[str, ...]) -> Ran:
    """Run a command as another user, after one run as root that imports what the user may not read."""
    first = kills.trial.with_name("first")
    copy(kills.start, first)
    return Child(work(kills.trial, arguments), user=NOBODY, before=work(first, arguments)).wait(2 * PATIENCE)


def _let_through(folder: Path) -> None:
    """Let others reach and read the folder, as with the usual umask."""
    for place in (*folder.parents, folder):
        mode = place.stat().st_mode
        if place.stat().st_uid == os.geteuid() and mode | 0o055 != mode:
            place.chmod(mode | 0o055)


def vanishing_trials(kills: Kills, count: int, seed: int) -> list[Tally]:
    """Delete images while a command reads them."""
    generator, tally = random.Random(seed), Tally("files that vanish")
    commands = (
        ("predict", "model", "photos", "--out", "vanished.csv", "--strict", "--top", "2"),
        ("predict", "model", "photos", "--out", "vanished.csv", "--top", "2"),
        ("fit", "photos", "-o", "new"),
        ("embed", "model", "photos", "-o", "index.npz"),
    )
    for _ in range(count):
        copy(kills.start, kills.trial)
        photos = sorted((kills.trial / "photos").rglob("*.png"))
        arguments = generator.choice(commands)
        tally.trials += 1
        child = Child(work(kills.trial, (*arguments, "--json")))
        Child.sleep_until(child.began + generator.uniform(0, 0.5))
        gone = generator.sample(photos, generator.randrange(1, len(photos) + 1))
        for path in gone:
            path.unlink()
            time.sleep(generator.uniform(0, 0.005))
        tally.judge(child.wait(), (0, 1, 2))
        images = [row[0] for row in read_rows(kills.trial / "vanished.csv")]
        if len(images) != len(set(images)):
            tally.add("lost or doubled", " ".join(arguments))
    return [tally]


def many_files_trial(kills: Kills, count: int) -> list[Tally]:
    """Predict a folder of very many images, most of them copies, in two parts: each has one row."""
    tally = Tally(f"{count:,} files in a folder")
    copy(kills.start, kills.trial)
    many = kills.trial / "many"
    many.mkdir()
    photos = sorted((kills.trial / "photos").rglob("*.png"))
    for i in range(count):
        os.link(photos[i % len(photos)], many / f"{i:06}.png")
    arguments = ("predict", "model", "many", "--out", "many.csv", "--top", "2")
    child = Child(work(kills.trial, arguments))
    Child.sleep_until(child.began + count / 20_000)
    child.kill()
    child.wait(3600)
    tally.trials += 2
    tally.judge(Child(work(kills.trial, arguments)).wait(3600), (0,))
    images = [row[0] for row in read_rows(kills.trial / "many.csv")]
    if len(images) != count or len(set(images)) != count:
        tally.add("lost or doubled", f"{len(images)} rows, {len(set(images))} images")
    return [tally]
