"""Every method on cached features, on real data: accuracy and seconds.

    python benchmarks/methods.py [--data ../shared/data] [--sets whu_rn50 pets37 ..] [--shots 1 4 16]
                                 [--seeds 1 2 3] [--methods prolip rla:lam=1/N ..] [--csv runs.csv]
                                 [--markdown table.md] [--rates]

What the sets are stands in `method_tasks.py`. A method may carry options: name:option=value:option=value.
With --csv, runs are written as they end, and runs that the file already has are not repeated.
With --rates, the methods that take Adam's steps at four learning rates, with and without a penalty.
What it showed, and where the order is not the paper's, stands in `docs/methods.md`.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import sys
import time
from collections import defaultdict
from pathlib import Path

import numpy as np

from method_tasks import DEVELOPMENT, REPORTED, has, trial
from prolip import methods
from prolip.cli.console import bar, console
from prolip.core import Task
from prolip.core.arrays import Array

METHODS = (
    "zero_shot",
    "linear_probe",
    "linear_probe:features=pre",
    "lp_plus_plus",
    "cross_modal",
    "clap",
    "task_res",
    "clip_adapter",
    "tip_adapter",
    "tip_adapter_f",
    "tip_adapter_f_star",
    "gda",
    "rla:lam=1/N",
    "rla",
    "prolip_text",
    "prolip:lam=1/N:scale=fixed",
    "prolip",
    "prolip+rla",
    "prolip+tip_adapter_f",
    "prolip+task_res",
    "ensemble",
    "auto",
)
RATES = tuple(
    f"{spec}:lr={lr}"
    for spec in (
        "prolip:solver=adam:scale=fixed:lam=0",
        "prolip:solver=adam:scale=fixed:lam=1/N",
        "clip_adapter:alpha=0.5",
        "tip_adapter_f",
    )
    for lr in ("1e-4", "1e-3", "1e-2", "1e-1")
)
BLACK_BOX = {  # the same without a head
    "linear_probe:features=pre": "linear_probe",
    "prolip:lam=1/N:scale=fixed": "rla:lam=1/N",
    "prolip": "rla",
}
COLUMNS = ("set", "shots", "seed", "method", "accuracy", "seconds", "cpu", "chose")


def main() -> None:
    given = arguments()
    done = read(given.csv)
    wanted = [
        (name, shots, seed, method)
        for name in given.sets
        for shots in given.shots
        for seed in given.seeds
        for method in given.methods
        if has(name, shots, seed)
    ]
    todo = [run for run in wanted if run not in done]
    loaded: dict = {}
    with bar("fitting", "fits") as progress:
        for i, (name, shots, seed, method) in enumerate(todo):
            if (name, shots, seed) not in loaded:
                loaded = {(name, shots, seed): trial(given.data, name, shots, seed)}
            task = loaded[name, shots, seed]
            same = (name, shots, seed, BLACK_BOX.get(method)) if task[0].black_box else None
            done[name, shots, seed, method] = done[same] if same in done else run(method, seed, *task)
            write(given.csv, (name, shots, seed, method), done[name, shots, seed, method])
            progress(i + 1, len(todo))
    report({key: done[key] for key in wanted}, given)


def run(spec: str, seed: int, task: Task, x: Array, y: Array) -> tuple:
    """Accuracy, seconds of the whole fit by the clock and of all cores together, and what was chosen.

    NaN where a task lacks what a method needs.
    """
    method = create(spec, seed)
    if "text features before the projection" in method.needs and task.text.features is None:
        return float("nan"), 0.0, 0.0, "needs text features"
    started, worked = time.perf_counter(), time.process_time()
    fitted = method.fit(task)
    seconds, cpu = time.perf_counter() - started, time.process_time() - worked
    accuracy = float(np.mean(fitted.predict(x) == y))
    return accuracy, seconds, cpu, str(fitted.report.get("chose") or fitted.settings.options)


def create(spec: str, seed: int) -> methods.Method:
    """A method from name:option=value:.."""
    name, *pairs = spec.split(":")
    options: dict = {}
    for pair in pairs:
        option, _, value = pair.partition("=")
        for kind in (int, float, str):
            with contextlib.suppress(ValueError):
                options[option] = kind(value)
                break
    if "seed" in methods.options(name):
        options.setdefault("seed", seed)
    return methods.create(name, **options)


def report(done: dict, given: argparse.Namespace) -> None:
    """A table for each set, and one of the means over sets."""
    sets = [name for name in given.sets if any(key[0] == name for key in done)]
    tables = {name: cells(done, given, lambda key, name=name: key[0] == name) for name in sets}
    whole = [name for name in sets if all(has(name, n, 1) for n in given.shots)]
    if len(whole) > 1:
        tables["mean over " + ", ".join(whole)] = cells(done, given, lambda key: key[0] in whole)
    lines = []
    for title, rows in tables.items():
        shots = [n for n in given.shots if any(n in row for row in rows.values())]
        header = [
            "method",
            *(f"{n} shot{'s' if n > 1 else ''}" for n in shots),
            "s, mean",
            "s, most",
            "cpu s, most",
        ]
        body = [
            [method, *(row.get(n, "-") for n in shots), row["mean"], row["most"], row["cpu"]]
            for method, row in rows.items()
        ]
        draw(title, header, body)
        lines += [
            f"### {title}",
            "",
            "| " + " | ".join(header) + " |",
            "| --- |" + " ---: |" * (len(header) - 1),
        ]
        lines += ["| " + " | ".join(row) + " |" for row in body] + [""]
    if given.markdown:
        given.markdown.write_text("\n".join(lines), encoding="utf-8")


def cells(done: dict, given: argparse.Namespace, belongs) -> dict:
    """Accuracy in percent, mean and deviation over seeds (over sets: of their means); seconds of a fit."""
    table = {}
    for method in dict.fromkeys(key[3] for key in done):
        keys = [key for key in done if key[3] == method and belongs(key)]
        row: dict = {}
        for n in given.shots:
            by_seed = defaultdict(list)
            for key in keys:
                if key[1] == n and done[key][0] == done[key][0]:
                    by_seed[key[2]].append(100 * done[key][0])
            if by_seed:
                means = [np.mean(values) for values in by_seed.values()]
                row[n] = f"{np.mean(means):.1f}" + (f" ± {np.std(means):.1f}" if len(means) > 1 else "")
        seconds, cpu = ([done[key][i] for key in keys] or [0.0] for i in (1, 2))
        table[method] = row | {
            "mean": f"{np.mean(seconds):.2f}",
            "most": f"{max(seconds):.2f}",
            "cpu": f"{max(cpu):.2f}",
        }
    return table


def draw(title: str, header: list[str], body: list[list[str]]) -> None:
    from rich.table import Table

    drawn = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for i, column in enumerate(header):
        drawn.add_column(column, justify="left" if i == 0 else "right")
    for row in body:
        drawn.add_row(*row)
    console().print(drawn)
    console().print()


def read(path: Path | None) -> dict:
    """Runs that a CSV file already has."""
    if path is None or not path.exists():
        return {}
    with path.open(newline="", encoding="utf-8") as stream:
        return {
            (row["set"], int(row["shots"]), int(row["seed"]), row["method"]): (
                float(row["accuracy"]),
                float(row["seconds"]),
                float(row["cpu"]),
                row["chose"],
            )
            for row in csv.DictReader(stream)
        }


def write(path: Path | None, key: tuple, result: tuple) -> None:
    """Add a run to the CSV file."""
    if path is None:
        return
    new = not path.exists()
    with path.open("a", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        if new:
            writer.writerow(COLUMNS)
        writer.writerow([*key, f"{result[0]:.6f}", f"{result[1]:.4f}", f"{result[2]:.4f}", result[3]])


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--sets", nargs="+", default=REPORTED, choices=(*REPORTED, *DEVELOPMENT))
    parser.add_argument("--shots", nargs="+", type=int, default=[1, 2, 4, 8, 16])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3, 4, 5])
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument(
        "--rates", dest="methods", action="store_const", const=RATES, help="Adam's step, varied."
    )
    parser.add_argument("--csv", type=Path, help="Runs are added here as they end, and not repeated.")
    parser.add_argument("--markdown", type=Path, help="The tables, for a document.")
    given = parser.parse_args()
    if not given.data.is_dir():
        sys.exit(f"error: no data at {given.data}: name the folder with features/ and images/ by --data")
    for spec in given.methods:
        create(spec, 0)
    return given


if __name__ == "__main__":
    main()
