"""Places that fail: full disks, folders without permission, files that vanish, very many files."""

from __future__ import annotations

import io
import os
import random
import sys
import time
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path

from fault_jobs import contents, copy, read_answers, work
from fault_kills import Kills, Tally
from fault_process import NOBODY, Child


def full_disk_trials(kills: Kills, count: int, seed: int, jobs: list[str] | None = None) -> list[Tally]:
    """A limit on the size of files stands in for a full disk; then there is room, and all is run again."""
    generator, tallies = random.Random(seed), []
    for job in kills.checks.jobs(onnx=False):
        if jobs is not None and job.name not in jobs:
            continue
        tally = Tally(f"full disk: {job.name}")
        if job.name not in kills.checks.whole:
            kills.measure(job, tally)
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
    """Every job as an ordinary user in folders of another; needs root, to become one."""
    tally = Tally("an ordinary user without permissions")
    if os.geteuid():
        return []
    _import_all(kills)
    for job in kills.checks.jobs(onnx=False):
        copy(kills.start, kills.trial)
        before = contents(kills.trial)
        _let_through(kills.trial)
        tally.trials += 1
        ran = Child(work(kills.trial, job.arguments), user=NOBODY).wait()
        tally.judge(ran, (1, 2))
        if "cannot" not in ran.said:
            tally.add("failure", f"{job.name}: {ran.said[-300:]}")
        if contents(kills.trial) != before:
            tally.add("silent change", job.name)
    predicts = Tally("predict without a cache that can be written")
    predicts.trials += 1
    predicts.judge(
        Child(work(kills.trial, ("predict", "model", "photos", "--json")), user=NOBODY).wait(),
        (0,),
    )
    return [tally, predicts]


def _import_all(kills: Kills) -> None:
    """Run every job here once: another user may not be allowed to read the modules that they import."""
    from prolip.cli import main

    copy(kills.start, kills.trial)
    before = Path.cwd(), sys.argv
    os.chdir(kills.trial)
    quiet = io.StringIO()
    for job in kills.checks.jobs(onnx=False):
        sys.argv = ["prolip", *job.arguments]
        with suppress(SystemExit), redirect_stdout(quiet), redirect_stderr(quiet):
            main()
    os.chdir(before[0])
    sys.argv = before[1]


def _let_through(folder: Path) -> None:
    """Others may read, as with the usual umask, and reach the folder."""
    for place in (*folder.parents, folder):
        if place.stat().st_uid == os.geteuid():
            place.chmod(place.stat().st_mode | 0o055)


def vanishing_trials(kills: Kills, count: int, seed: int) -> list[Tally]:
    """Pictures go while a command reads them."""
    generator, tally = random.Random(seed), Tally("files that vanish")
    commands = (
        ("predict", "model", "photos", "--out", "vanished.csv", "--skip-bad", "--top", "2"),
        ("predict", "model", "photos", "--out", "vanished.csv", "--top", "2"),
        ("fit", "photos", "-o", "new"),
        ("embed", "photos", "-o", "store", "--skip-bad"),
    )
    for _ in range(count):
        copy(kills.start, kills.trial)
        pictures = sorted((kills.trial / "photos").rglob("*.png"))
        arguments = generator.choice(commands)
        tally.trials += 1
        child = Child(work(kills.trial, (*arguments, "--json")))
        Child.sleep_until(child.began + generator.uniform(0, 0.5))
        gone = generator.sample(pictures, generator.randrange(1, len(pictures) + 1))
        for picture in gone:
            picture.unlink()
            time.sleep(generator.uniform(0, 0.005))
        tally.judge(child.wait(), (0, 1, 2))
        images = [row[0] for row in read_answers(kills.trial / "vanished.csv")]
        if len(images) != len(set(images)):
            tally.add("lost or doubled", " ".join(arguments))
    return [tally]


def many_files_trial(kills: Kills, count: int) -> list[Tally]:
    """A folder of very many pictures, most of them copies: each has its answer, once."""
    tally = Tally(f"{count:,} files in a folder")
    copy(kills.start, kills.trial)
    many = kills.trial / "many"
    many.mkdir()
    pictures = sorted((kills.trial / "photos").rglob("*.png"))
    for i in range(count):
        os.link(pictures[i % len(pictures)], many / f"{i:06}.png")
    arguments = ("predict", "model", "many", "--out", "many.csv", "--top", "2")
    child = Child(work(kills.trial, arguments))
    Child.sleep_until(child.began + count / 20_000)
    child.kill()
    child.wait(3600)
    tally.trials += 2
    tally.judge(Child(work(kills.trial, arguments)).wait(3600), (0,))
    images = [row[0] for row in read_answers(kills.trial / "many.csv")]
    if len(images) != count or len(set(images)) != count:
        tally.add("lost or doubled", f"{len(images)} rows, {len(set(images))} images")
    return [tally]
