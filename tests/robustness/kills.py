"""Commands killed at every change of a file and at random moments, several on one output, and full disks."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from robustness.commands import Checks, Job, copy, prepare, require, work
from robustness.process import Child, Ran
from tally import Faults


@dataclass
class Tally(Faults):
    """Counts of trials of one kind and of what went wrong in them."""

    trials: int = 0

    def judge(self, ran: Ran, allowed: tuple[int, ...]) -> None:
        """Count a hang, a traceback, or an exit code that is not allowed."""
        if ran.hung:
            self.add("hang", ran.output[-500:])
        elif ran.crashed:
            self.add("traceback", ran.output[-1500:])
        elif ran.code not in allowed:
            self.add("failure", f"exit {ran.code}: {ran.output[-500:]}")


class Kills:
    """The folder that trials start from, and single trials."""

    def __init__(self, encoder: object, folder: Path) -> None:
        self.start, self.trial = folder / "start", folder / "trial"
        self.start.mkdir(parents=True)
        prepare(self.start)
        require(self.start, ("add", "model", "more", "-o", "grown"))
        self.checks = Checks(encoder, self.start)

    def chosen(self, kind: str, jobs: list[str] | None) -> Iterator[tuple[Job, Tally]]:
        """Yield the jobs of these names (None: all) with a tally each, once an undisturbed run is known."""
        for job in self.checks.jobs():
            if jobs is None or job.name in jobs:
                tally = Tally(f"{kind}: {job.name}")
                if job.name not in self.checks.whole:
                    self.measure(job, tally)
                yield job, tally

    def measure(self, job: Job, tally: Tally) -> Ran:
        """Run a job undisturbed: how many changes it makes, and what it leaves."""
        copy(self.start, self.trial)
        ran = Child(work(self.trial, job.arguments)).wait(120)
        tally.judge(ran, (0,))
        for problem in self.checks.first_run(job, self.trial):
            tally.add("silent change", f"{job.name}, not killed: {problem}")
        return ran

    def kill(self, job: Job, tally: Tally, at: int | None, after: float | None = None) -> None:
        """Kill a job once, run it again, and check the folder after each."""
        copy(self.start, self.trial)
        tally.trials += 1
        child = Child(work(self.trial, job.arguments), at)
        if after is not None:
            Child.sleep_until(child.began + after)
            child.kill()
        ran = child.wait()
        moment = f"{job.name}, killed at change {at}" if after is None else f"{job.name}, after {after:.3f} s"
        tally.judge(ran, (0, -9))
        for problem in job.check(self.trial, False):
            tally.add("silent change", f"{moment}: {problem}")
        ran = Child(work(self.trial, job.arguments)).wait()
        tally.judge(ran, job.again)
        for problem in job.check(self.trial, True):
            tally.add("lost or doubled", f"{moment}, then run again: {problem}")

    def at_once(self, job: Job, tally: Tally, processes: int) -> None:
        """Run several on one output: each succeeds, waits or is refused; one more run completes it."""
        copy(self.start, self.trial)
        tally.trials += 1
        children = [Child(work(self.trial, job.arguments)) for _ in range(processes)]
        rans = [child.wait(90) for child in children]
        for ran in rans:
            refused = any(text in ran.output for text in ("being written by", "changed by another"))
            tally.judge(ran, (0, 2) if refused or ran.code in job.again else (0,))
        if not any(ran.code == 0 for ran in rans):
            tally.add("failure", f"{job.name}: none of {processes} processes succeeded")
        tally.judge(Child(work(self.trial, job.arguments)).wait(90), (*job.again, 0))
        for problem in job.check(self.trial, True):
            tally.add("lost or doubled", f"{job.name}, {processes} at once: {problem}")


def kill_trials(kills: Kills, count: int, seed: int, jobs: list[str] | None = None) -> list[Tally]:
    """Kill each job at its changes and at random moments, about `count` times in all."""
    generator, tallies = random.Random(seed), []
    chosen = [job for job in kills.checks.jobs() if jobs is None or job.name in jobs]
    for job in chosen:
        tally = Tally(f"kills: {job.name}")
        ran = kills.measure(job, tally)
        share = max(1, count // len(chosen))
        at = list(range(1, ran.changes + 1))
        if len(at) > share * 2 // 3:
            at = sorted(generator.sample(at, max(1, share * 2 // 3)))
        for change in at:
            kills.kill(job, tally, change)
        for _ in range(share - len(at)):
            kills.kill(job, tally, None, generator.uniform(0, ran.seconds))
        tallies.append(tally)
    return tallies


def at_once_trials(
    kills: Kills, count: int, processes: int = 4, jobs: list[str] | None = None
) -> list[Tally]:
    """Run each job in several processes at once, `count` times."""
    tallies = []
    for job, tally in kills.chosen(f"{processes} at once", jobs):
        for _ in range(count):
            kills.at_once(job, tally, processes)
        tallies.append(tally)
    return tallies


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
