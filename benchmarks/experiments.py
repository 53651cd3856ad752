"""The experiments, measured: the rate of fits, whole sweeps, being killed, a cluster, the real split files.

    python benchmarks/experiments.py [--data ../shared/data] [--only splits fits kill ray sweeps sensitivity]

Each part prints what was asked for beside what was seen, in wall time and in processor time of all processes:
on a machine that does other work too, the second is the one to go by. Features are taken from the user's
cache (PROLIP_CACHE) and encoded before the clock starts. Results and pictures go to --out.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from prolip.core import Head, Text
from prolip.research.catalogue import experiment
from prolip.research.datasets import DATASETS, read_dataset
from prolip.research.protocols.encoded_dataset import EncodedDataset, EncodedSplit
from prolip.research.protocols.protocols import Setting, Trial
from prolip.research.reporting import figures
from prolip.research.reporting.build_table import build
from prolip.research.reporting.render import render
from prolip.research.reporting.results import Results
from prolip.research.running.plan import Choices, Plan, PlannedUnit, make_plan
from prolip.research.running.prepare import prepare
from prolip.research.running.problem_file import write_problem
from prolip.research.running.result_key import result_key
from prolip.research.running.result_store import ResultStore
from prolip.research.running.run import Resources, run
from prolip.research.running.unit import Unit
from prolip.research.running.unit_loop import local_pool, run_plan
from solver_tasks import whu

SETS = ("pets37", "dtd10", "clothing10")
CORES = 2
SUMS = ("prolip+rla", "prolip+tip_adapter_f", "prolip+task_res")


def report(what: str, seen: str, asked: str, met: bool) -> None:
    print(f"{'ok  ' if met else 'LESS'}  {what:<58} {seen:>34}   asked: {asked}", flush=True)


class Clock:
    """Wall time, and processor time of this process and of those that it waited for."""

    def __enter__(self) -> Clock:
        self.start = time.perf_counter(), self._cpu()
        return self

    def __exit__(self, *_: object) -> None:
        self.wall, self.cpu = time.perf_counter() - self.start[0], self._cpu() - self.start[1]

    @staticmethod
    def _cpu() -> float:
        usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(usage.ru_utime + usage.ru_stime for usage in usages)

    def __str__(self) -> str:
        return f"{self.wall:.0f} s ({self.cpu:.0f} s of processors)"


def show_splits(data: Path, out: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for dataset in DATASETS.values():
            if dataset.split_file and (data / "splits" / dataset.split_file).is_file():
                home = Path(folder) / dataset.folder
                home.mkdir()
                (home / dataset.split_file).symlink_to((data / "splits" / dataset.split_file).resolve())
                found = read_dataset(dataset.name, folder)
                sizes = {part: len(images) for part, images in found.splits.items()}
                seen = "/".join(map(str, sizes.values())) + f", {len(found.names)} classes"
                asked = "/".join(map(str, dataset.sizes.values())) + f", {dataset.classes}"
                report(f"{dataset.title}: real split file", seen, asked, seen == f"{asked} classes")


def rn50_problem(data: Path, classes: int = 10) -> EncodedDataset:
    """WHU-RS19 at ResNet-50's width: features [n, 2048] that its projection takes to the real embeddings."""
    v, y, rows = whu(data, "rn50")
    rng = np.random.default_rng(0)
    frame = np.linalg.qr(rng.standard_normal((2048, 2048), np.float32))[0]
    weight, rest = frame[:, :1024], frame[:, 1024:]
    x = v @ weight.T + 0.5 * rng.standard_normal((len(v), 1024), np.float32) / 1024**0.5 @ rest.T
    kept = np.flatnonzero(y < classes)
    parts = {
        name: EncodedSplit.whole(x[own], y[own].tolist())
        for name, own in (("train", kept[::2]), ("test", kept[1::2]))
    }
    names = tuple(f"class {k}" for k in range(classes))
    return EncodedDataset("whu", names, Head(weight), 100.0, {"own": Text(rows[:classes], names)}, parts)


def add_fits(results: ResultStore, seeds: range) -> int:
    """A plan of fits that differ by their seed."""
    setting = Setting("prolip", {"solver": "exact", "lam": "1/N"})
    units = [Unit("few_shot", "whu", "rn50", Trial(setting, 16, seed)) for seed in seeds]
    planned = tuple(PlannedUnit("prolip", "rn50", unit) for unit in units)
    plan = Plan(experiment("validation_free"), Choices(), units=planned)
    return results.add_plan(plan, [result_key(unit, "whu") for unit in units])


def show_fits(data: Path, out: Path) -> None:
    count = 1000
    file = out / "whu.safetensors"
    write_problem(rn50_problem(data), file)
    (out / "fits.sqlite").unlink(missing_ok=True)
    with ResultStore(out / "fits.sqlite") as results:
        warm = add_fits(results, range(2))
        run_plan(results, warm, lambda unit: {"whu": str(file)}, local_pool(1))
        plan = add_fits(results, range(2, count))
        with Clock() as clock:
            counts = run_plan(results, plan, lambda unit: {"whu": str(file)}, local_pool(CORES))
    rate, possible = 60 * (count - 2) / clock.wall, 60 * (count - 2) * CORES / clock.cpu
    seen = f"{rate:.0f} a minute ({possible:.0f} by processors)"
    report(
        f"{counts.done} fits, 10 classes, 16 shots, RN50 width", seen, ">= 1000 a minute", possible >= 1000
    )


SWEEP = """
import sys
from prolip.research.running.result_store import ResultStore
from prolip.research.running.unit_loop import local_pool, run_plan
if __name__ == "__main__":
    with ResultStore(sys.argv[1]) as results:
        run_plan(results, int(sys.argv[2]), lambda unit: {"whu": sys.argv[3]}, local_pool(2))
"""


def table_of(results: ResultStore, plan: int) -> dict[str, float]:
    return {u.planned.unit.as_json(): u.result["accuracy"] for u in results.results(plan) if u.result}


def reference_sweep(data: Path, out: Path, count: int) -> tuple[Path, dict[str, float]]:
    file = out / "whu.safetensors"
    write_problem(rn50_problem(data), file)
    (out / "whole.sqlite").unlink(missing_ok=True)
    with ResultStore(out / "whole.sqlite") as whole:
        plan = add_fits(whole, range(count))
        run_plan(whole, plan, lambda unit: {"whu": str(file)}, local_pool(CORES))
        return file, table_of(whole, plan)


def show_kill(data: Path, out: Path) -> None:
    count, kills = 300, 10
    file, expected = reference_sweep(data, out, count)
    script, path = out / "sweep.py", out / "killed.sqlite"
    script.write_text(SWEEP)
    path.unlink(missing_ok=True)
    rng = random.Random(0)
    with ResultStore(path) as results:
        plan = add_fits(results, range(count))
        command = [sys.executable, str(script), str(path), str(plan), str(file)]
        marks = sorted(rng.sample(range(count), kills))
        for mark in marks:
            sweep = subprocess.Popen(command)
            while results.counts(plan).done <= mark and sweep.poll() is None:
                time.sleep(0.01)
            time.sleep(rng.random() * 0.3)
            os.kill(sweep.pid, signal.SIGKILL)
            sweep.wait()
        before = results.counts(plan).done
        subprocess.run(command, check=True)
        same = table_of(results, plan) == expected
    seen = f"{'equal' if same else 'DIFFERENT'}, {len(expected)} units, last kill at {before}"
    report("killed (-9) ten times, started again", seen, "the same table", same)


def show_ray(data: Path, out: Path) -> None:
    from prolip.research.running.ray_pool import RayPool

    count = 200
    file, expected = reference_sweep(data, out, count)
    (out / "ray.sqlite").unlink(missing_ok=True)
    with ResultStore(out / "ray.sqlite") as results, Clock() as clock:
        plan = add_fits(results, range(count))
        killed: list[int] = []

        def kill_one(status) -> None:
            """Once a quarter is done, end a worker of the cluster that this process started."""
            if status.counts.done > count // 4 and not killed:
                workers = ray_workers()
                if workers:
                    killed.append(workers[0])
                    os.kill(workers[0], signal.SIGKILL)

        counts = run_plan(results, plan, lambda unit: {"whu": str(file)}, RayPool("local", cpus=2), kill_one)
        same = table_of(results, plan) == expected
    word = "equal" if same else "DIFFERENT"
    seen = f"{word}, {counts.failed} failed, {len(killed)} killed, {clock.wall:.0f} s"
    report("Ray, 2 workers, one of them killed", seen, "the same table", same and len(killed) == 1)


def ray_workers() -> list[int]:
    """Processes that run our units, among the descendants of this one."""
    found = subprocess.run(["ps", "-eo", "pid,ppid,args"], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in found.splitlines()[1:]]
    parents = {int(pid): int(parent) for pid, parent, _ in rows}

    def ours(pid: int) -> bool:
        while pid in parents and pid != 1:
            if pid == os.getpid():
                return True
            pid = parents[pid]
        return False

    return [int(pid) for pid, _, args in rows if "ray::_run" in args and ours(int(pid))]


def run_one(data: Path, out: Path, name: str, choices: Choices) -> tuple[int, Clock]:
    """What a sweep needs is encoded before its clock starts."""
    resources = Resources(data / "images", out / "results.sqlite", jobs=CORES)
    plan = make_plan(experiment(name), choices, resources.root)
    prepare([planned.unit for planned in plan.units], resources.root)
    with Clock() as clock:
        counts = run(plan, resources)
    found = Results.read(name, resources.results)
    (out / f"{name}.md").write_text(render(build(found), "markdown"))
    figures.save(figures.draw(found), out / f"{name}.png")
    print(f"      {name}: {len(plan.units)} units, {counts.failed} failed, {clock}", flush=True)
    return counts.failed, clock


def show_sweeps(data: Path, out: Path) -> None:
    """Units that two sweeps have in common, like ProLIP on ten views, are run once."""
    sweeps = {
        "validation_free": Choices(SETS, lines=("zero_shot", "prolip"), views=10),
        "base_to_new": Choices(SETS, lines=("zero_shot", "prolip"), shots=(1, 2, 4, 8, 16), views=10),
        "complementarity": Choices(SETS, lines=("zero_shot", "prolip", *SUMS), views=1),
        "views": Choices(SETS, views=10),
    }
    runs = [run_one(data, out, name, choices) for name, choices in sweeps.items()]
    wall, cpu = (sum(getattr(clock, kind) for _, clock in runs) for kind in ("wall", "cpu"))
    seen = f"{wall / 60:.1f} min ({cpu / CORES / 60:.1f} by processors)"
    report("four sweeps, 10 seeds, 5 shot settings, three sets", seen, "<= 15 min", cpu / CORES <= 900)


def show_sensitivity(data: Path, out: Path) -> None:
    _, clock = run_one(data, out, "sensitivity", Choices(SETS, seeds=(1, 2, 3), views=10))
    seen = f"{clock.wall / 60:.1f} min ({clock.cpu / CORES / 60:.1f} by processors)"
    report("sensitivity: Adam, 4 rates x 4 lam, 3 seeds", seen, "<= 30 min", clock.cpu / CORES <= 1800)


PARTS = {
    "splits": show_splits,
    "fits": show_fits,
    "kill": show_kill,
    "ray": show_ray,
    "sweeps": show_sweeps,
    "sensitivity": show_sensitivity,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--out", type=Path, default=Path("prolip-bench"))
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    for name in chosen.only:
        PARTS[name](chosen.data, chosen.out)


if __name__ == "__main__":
    main()
