"""Every method on cached features, on real data: accuracy and seconds.

    python benchmarks/methods.py [--data ../shared/data] [--sets whu_rn50 pets37 ..] [--shots 1 4 16]
                                 [--seeds 1 2 3] [--methods prolip rla:lam=1/N ..] [--csv runs.csv]
                                 [--markdown table.md]

Sets: WHU-RS19 under CLIP RN50 and ViT-B/32 (N images a class to fit, all others to test), ImageNet under
ViT-B/32 (one of the three few-shot sets to fit, the other two to test: these are training images, not
comparable with published figures), and three folders of photos under the offline encoder, whose features are
kept in the user's store. A method may carry options: name:option=value:option=value. With --csv, runs are
written as they end, and runs that the file already has are not repeated.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch

from prolip import methods
from prolip.cli.console import bar, console
from prolip.core import Task
from prolip.data import DEFAULT, read_images, sample_few_shot
from prolip.encoders import load
from prolip.features import FeatureStore, extract

PHOTOS = ("pets37", "dtd10", "clothing10")
FEATURES = {"whu_rn50": "whurs19_clip_rn50", "whu_vit_b_32": "whurs19_clip_vit_b_32"}
SETS = (*FEATURES, "imagenet", *PHOTOS)
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
COLUMNS = ("set", "shots", "seed", "method", "accuracy", "seconds", "cpu", "chose")


def main() -> None:
    given = arguments()
    torch.set_num_threads(given.threads)
    done = read(given.csv)
    wanted = [
        (name, shots, seed, method)
        for name in given.sets
        for shots in given.shots
        for seed in (given.seeds if name != "imagenet" else [0])
        for method in given.methods
        if name != "imagenet" or shots in (1, 2, 4)
    ]
    todo = [run for run in wanted if run not in done]
    loaded: dict = {}
    with bar("fitting", "fits") as progress:
        for i, (name, shots, seed, method) in enumerate(todo):
            if (name, shots, seed) not in loaded:
                loaded = {(name, shots, seed): task_of(given.data, name, shots, seed)}
            done[name, shots, seed, method] = run(method, seed, *loaded[name, shots, seed])
            write(given.csv, (name, shots, seed, method), done[name, shots, seed, method])
            progress(i + 1, len(todo))
    report({key: done[key] for key in wanted}, given)


def run(spec: str, seed: int, task: Task, x: torch.Tensor, y: torch.Tensor) -> tuple:
    """Accuracy, seconds of the whole fit by the clock and of all cores together, and what was chosen.

    NaN where a task lacks what a method needs.
    """
    method = create(spec, seed)
    if "text features before the projection" in method.needs and task.text.features is None:
        return float("nan"), 0.0, 0.0, "needs text features"
    started, worked = time.perf_counter(), time.process_time()
    fitted = method.fit(task)
    seconds, cpu = time.perf_counter() - started, time.process_time() - worked
    accuracy = float((fitted.predict(x) == y).double().mean())
    return accuracy, seconds, cpu, str(fitted.info.get("chose") or fitted.info.get("chosen") or "")


def create(spec: str, seed: int) -> methods.Method:
    """A method from name:option=value:.."""
    name, *pairs = spec.split(":")
    options: dict = {}
    for pair in pairs:
        option, _, value = pair.partition("=")
        try:
            options[option] = float(value)
        except ValueError:
            options[option] = value
    if "seed" in methods.options(name):
        options.setdefault("seed", seed)
    return methods.create(name, **options)


def task_of(data: Path, name: str, shots: int, seed: int) -> tuple[Task, torch.Tensor, torch.Tensor]:
    """A task, and the features and labels to test on."""
    if name == "imagenet":
        arrays = np.load(data / "features/imagenet_fewshot_clip_vit_b_32.npz")
        sets = {n: (arrays[f"train{n}_x"].astype(np.float32), arrays[f"train{n}_y"]) for n in (1, 2, 4)}
        others = [n for n in sets if n != shots]
        x, y = (torch.from_numpy(np.concatenate([sets[n][i] for n in others])) for i in (0, 1))
        return Task(*sets[shots], arrays["text"]), x, y
    if name in FEATURES:
        arrays = np.load(data / f"features/{FEATURES[name]}.npz")
        x = torch.from_numpy(arrays["images"].astype(np.float32))
        y = torch.from_numpy(arrays["labels"])
        texts = torch.nn.functional.normalize(torch.from_numpy(arrays["texts"].astype(np.float32)), dim=2)
        chosen = torch.tensor(sample_few_shot(y.tolist(), shots, seed))
        rest = torch.ones(len(y), dtype=torch.bool)
        rest[chosen] = False
        return Task(x[chosen], y[chosen], texts.mean(dim=0)), x[rest], y[rest]
    encoder = offline()
    x, y, names = photos(data / "images" / name, "train")
    chosen = torch.tensor(sample_few_shot(y.tolist(), shots, seed))
    text = encoder.text(names, DEFAULT)
    test_x, test_y, _ = photos(data / "images" / name, "test")
    return Task(x[chosen], y[chosen], text, encoder.head, encoder.scale), test_x, test_y


_kept: dict = {}


def offline():
    if "encoder" not in _kept:
        _kept["encoder"] = load("offline")
    return _kept["encoder"]


def photos(folder: Path, split: str) -> tuple[torch.Tensor, torch.Tensor, list[str]]:
    """Features and labels of a folder of images, encoded once."""
    if (folder, split) not in _kept:
        images = read_images(folder, split=split)
        found = extract(offline(), images.paths, store=FeatureStore())
        _kept[folder, split] = found.features[0], torch.tensor(images.labels), list(images.names)
    return _kept[folder, split]


def report(done: dict, given: argparse.Namespace) -> None:
    """A table for each set, and one of the means over sets."""
    sets = [name for name in given.sets if any(key[0] == name for key in done)]
    tables = {name: cells(done, given, lambda key, name=name: key[0] == name) for name in sets}
    small = [name for name in sets if name != "imagenet"]
    if len(small) > 1:
        tables["mean over " + ", ".join(small)] = cells(done, given, lambda key: key[0] in small)
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
    for method in given.methods:
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
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS)
    parser.add_argument("--shots", nargs="+", type=int, default=[1, 2, 4, 8, 16])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3, 4, 5])
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--csv", type=Path, help="Runs are added here as they end, and not repeated.")
    parser.add_argument("--markdown", type=Path, help="The tables, for a document.")
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    if not given.data.is_dir():
        sys.exit(f"error: no data at {given.data}: name the folder with features/ and images/ by --data")
    for spec in given.methods:
        create(spec, 0)
    return given


if __name__ == "__main__":
    main()
