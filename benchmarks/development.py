"""What `auto` and `ensemble` consist of, and one-shot defaults: settled on development sets.

    python benchmarks/development.py [--data ../shared/data] [--sets digits imagenet20 ..] [--shots 1 2 4 12]
                                     [--seeds 3] [--csv runs.csv]

The sets are those of `method_tasks.py`: built-in digits and textures, subsets of ImageNet's classes, training
photos split among themselves. With one image a class: accuracy of linear_probe for each C and gda for each
alpha, of prolip, and of averages of logits. With more: of each member, of their ensemble, and of what `auto`
takes by held-out likelihood or accuracy, for several pools (P prolip, L linear_probe on the features before
the projection, G gda, Z zero_shot). Members are fitted once per task for all pools. With --csv, runs that the
file already has are not repeated.
"""

from __future__ import annotations

import argparse
import csv
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from statistics import mean

from method_tasks import DEVELOPMENT, Trial, has, trial
from prolip import methods
from prolip.core.arrays import Array
from prolip.evaluate import metrics
from prolip.methods.auto import RULES, rank
from prolip.methods.common import cross_validation
from prolip.methods.ensemble import fit_pool, stack, stacked, weighted

MEMBERS = {
    "P": ("prolip", {}),
    "L": ("linear_probe", {"features": "pre"}),
    "G": ("gda", {}),
    "Z": ("zero_shot", {}),
}
POOLS = ("PL", "PG", "LG", "PLG", "PLZ")
CS = (0.1, 1.0, 10.0, 100.0, 1000.0)
ALPHAS = (0.001, 0.01, 0.03, 0.1, 0.3, 1.0)


def one_shot(task: Trial) -> dict[str, float]:
    """Accuracy of each fixed default, and of averages."""
    support, x, y = task
    found = {f"linear_probe C={c:g}": ("linear_probe", {"C": c}) for c in CS}
    found |= {f"gda alpha={alpha:g}": ("gda", {"alpha": alpha}) for alpha in ALPHAS}
    accuracies = {
        name: accuracy(methods.create(method, **options).fit(support).logits(x), y)
        for name, (method, options) in found.items()
    }
    logits = {
        k: methods.create(name, **options).fit(support).logits(x) for k, (name, options) in MEMBERS.items()
    }
    averages = {names: sum(logits[k] for k in names) for names in POOLS}
    return accuracies | {name: accuracy(scores, y) for name, scores in (logits | averages).items()}


def more_shots(task: Trial, seed: int) -> dict[str, float]:
    """Accuracy of each member and, for each pool, of the ensemble and of what each rule takes."""
    support, x, y = task
    everyone = fit_pool([member(k, seed) for k in MEMBERS], support, seed)
    held = dict(zip(MEMBERS, everyone.logits, strict=True))
    test = {k: fitted.logits(x) for k, fitted in zip(MEMBERS, everyone.fitted, strict=True)}
    found = {k: accuracy(test[k], y) for k in MEMBERS}
    for names in POOLS:
        pool = replace(everyone, logits=tuple(held[k] for k in names))
        ensemble = accuracy(weighted(stack(pool.logits, pool.y), [test[k] for k in names]), y)
        scores = [cross_validation.score([own], [pool.y]) for own in (*pool.logits, stacked(pool))]
        candidates = [*(found[k] for k in names), ensemble]
        found[f"{names} ensemble"] = ensemble
        for rule in RULES:
            place = max(range(len(scores)), key=lambda i, rule=rule: rank(scores[i], rule))
            found[f"{names} auto by {rule}"] = candidates[place]
    return found


def member(k: str, seed: int) -> methods.Method:
    name, options = MEMBERS[k]
    seeded = {"seed": seed} if "seed" in methods.options(name) else {}
    return methods.create(name, **options, **seeded)


def accuracy(logits: Array, y: Array) -> float:
    return 100 * metrics.accuracy(logits, y)


def main() -> None:
    given = arguments()
    done = read(given.csv)
    for name in given.sets:
        for shots in given.shots:
            for seed in range(1, given.seeds + 1):
                if has(name, shots, seed) and (name, shots, seed) not in done:
                    task = trial(given.data, name, shots, seed)
                    done[name, shots, seed] = one_shot(task) if shots == 1 else more_shots(task, seed)
                    write(given.csv, (name, shots, seed), done[name, shots, seed])
    for title, few in (("one image a class", True), ("more", False)):
        report(title, {key: runs for key, runs in done.items() if (key[1] == 1) == few})


def report(title: str, done: dict) -> None:
    """Mean accuracies: a row for each rule, a column for each set and number of shots."""
    settings = sorted({key[:2] for key in done})
    rows: dict = defaultdict(dict)
    for setting in settings:
        runs = [run for key, run in done.items() if key[:2] == setting]
        for rule in runs[0]:
            rows[rule][setting] = mean(run[rule] for run in runs)
    print(
        f"{title:<26}" + "".join(f"{name}-{shots}".rjust(20) for name, shots in settings) + "          mean"
    )
    for rule, cells in rows.items():
        values = [cells[setting] for setting in settings]
        print(f"{rule:<26}" + "".join(f"{value:20.1f}" for value in [*values, mean(values)]))
    print()


def read(path: Path | None) -> dict:
    """Runs that a CSV file already has."""
    done: dict = defaultdict(dict)
    if path is not None and path.exists():
        for name, shots, seed, rule, value in csv.reader(path.open(newline="", encoding="utf-8")):
            done[name, int(shots), int(seed)][rule] = float(value)
    return dict(done)


def write(path: Path | None, key: tuple, run: dict[str, float]) -> None:
    """Add a run to the CSV file."""
    if path is not None:
        with path.open("a", newline="", encoding="utf-8") as stream:
            csv.writer(stream).writerows([*key, rule, f"{value:.4f}"] for rule, value in run.items())


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--sets", nargs="+", default=DEVELOPMENT, choices=DEVELOPMENT)
    parser.add_argument("--shots", nargs="+", type=int, default=[1, 2, 4, 12, 16])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--csv", type=Path, help="Runs are added here as they end, and not repeated.")
    return parser.parse_args()


if __name__ == "__main__":
    main()
