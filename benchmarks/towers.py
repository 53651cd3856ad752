"""Methods that train through a tower, and test-time adaptation, beside ProLIP: accuracy, seconds, memory.

    python benchmarks/towers.py [--data data] [--only methods test_time] [--sets dtd10]

Every measurement is a process of its own, on one thread, with the features of the frozen tower at hand;
seconds are those of the fit. On a laptop's processor the authors' epochs would take hours, so each method is
held to a budget: --prompts through the text tower, or --images through the image tower. The table says how
many epochs that was, of how many, and what the whole would have taken. The offline encoder is not CLIP:
compare methods on it, not with the paper.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from prolip import methods
from prolip.core.arrays import softmax
from prolip.data import read_images, sample_few_shot, templates_for
from prolip.encoders import load
from prolip.evaluate.metrics import accuracy
from prolip.features import FeatureStore, LazyImages, extract
from prolip.research.towers import test_time
from prolip.research.towers.prompt_tuning import epochs_for
from prolip.research.towers.tower_method import TowerTask

SETS = {"pets37": "oxford_pets", "dtd10": "dtd"}
SHOTS = (4, 16)
TEXT = {"coop": 1, "kgcoop": 1, "prograd": 1, "cocoop": 1, "plot": 4}  # prompts of a class in a step
IMAGE = ("norm_tuning", "last_layer", "full")
SEED = 1
FAR_OVER = 5  # times the budget: a method whose first epoch takes more is not run


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def load_set(data: Path, name: str, shots: int):
    """A task beside its encoder, and test paths and labels."""
    encoder = load("offline", "cpu")
    train, test = (read_images(data / "images" / name, split=split) for split in ("train", "test"))
    chosen = sample_few_shot(train.labels, shots, SEED)
    paths = [train.images[i] for i in chosen]
    templates = tuple(templates_for(SETS[name]))
    task = TowerTask(
        extract(encoder, paths, store=FeatureStore()).features,
        [train.labels[i] for i in chosen],
        encoder.text(train.names, templates),
        encoder.head,
        encoder.scale,
        encoder,
        templates,
        LazyImages(paths),
    )
    return task, list(test.images), np.array(test.labels)


def budget(method: str, task, prompts: int, images: int) -> tuple[int, int] | None:
    """Epochs that the budget allows, and the authors' epochs."""
    if method not in TEXT and method not in IMAGE:
        return None
    made: Any = methods.create(method)
    full = made.epochs if made.epochs is not None else epochs_for(task)
    if method in IMAGE:
        return min(full, max(1, images // task.n)), full
    steps = max(1, task.n // made.batch_size)
    per_epoch = task.classes * (task.n if method == "cocoop" else steps * TEXT[method])
    return 0 if per_epoch > FAR_OVER * prompts else min(full, max(1, prompts // per_epoch)), full


def measure_method(arguments: argparse.Namespace) -> dict:
    """One method on one set: run in a process of its own."""
    import torch

    torch.set_num_threads(arguments.threads)
    torch.set_flush_denormal(True)
    name, shots, method = arguments.one
    task, paths, y = load_set(arguments.data, name, int(shots))
    epochs = budget(method, task, arguments.prompts, arguments.images)
    if epochs and not epochs[0]:
        return {"skipped": f"not run: one of {epochs[1]} epochs is far over the budget"}
    made = methods.create(method, **({} if epochs is None else {"epochs": epochs[0]}))
    loaded, cpu, started = peak_megabytes(), cpu_seconds(), time.perf_counter()
    fitted = made.fit(task)
    seconds, cpu, peak = time.perf_counter() - started, cpu_seconds() - cpu, peak_megabytes()
    reader = fitted.encoder_for(task.encoder)
    x = extract(reader, paths, store=FeatureStore()).features[0]
    return {
        "accuracy": accuracy(fitted.logits(x), y),
        "seconds": seconds,
        "cpu": cpu,
        "peak": peak,
        "above": peak - loaded,
        "epochs": epochs,
        "parameters": fitted.report["parameters"],
        "loss": [fitted.report.get("start_loss"), fitted.report.get("loss")],
    }


def measure_test_time(arguments: argparse.Namespace) -> dict:
    """Test-time ProLIP and TPT on the same encoded views of the same images."""
    import torch

    torch.set_num_threads(arguments.threads)
    torch.set_flush_denormal(True)
    name, each, _ = arguments.one
    task, paths, y = load_set(arguments.data, name, 16)
    chosen = [i for k in range(task.classes) for i in np.flatnonzero(y == k)[: int(each)]]
    paths, y = [paths[i] for i in chosen], y[chosen]
    encoder = task.encoder
    encoder.preprocess = test_time.view_preprocess(encoder.preprocess)
    found = extract(encoder, paths, views=range(64))
    result = {"images": len(y), "classes": task.classes, "encode": 1000 * found.seconds / len(y)}
    photo = replace(task, text=encoder.text(task.text.classes, ("a photo of a {}.",)))
    for label, method, problem, way in (
        ("zero-shot", "zero_shot", task, "prolip"),
        ("zero-shot, 'a photo of a'", "zero_shot", photo, "tpt"),  # the words that TPT starts from
        ("16-shot ProLIP", "prolip", task, "prolip"),
    ):
        start = methods.create(method).fit(problem)
        adaptation = test_time.create(way)
        logits = np.stack([start.logits(view) for view in found.features], axis=1)  # [n, V, K]
        surest = np.take_along_axis(logits, adaptation.select(logits)[..., None], axis=1)
        adaptation.logits(found.features[:, :2], start, encoder)  # so that no first use is measured
        cpu, began = cpu_seconds(), time.perf_counter()
        adapted = adaptation.logits(found.features, start, encoder)
        result[label] = {
            "way": way,
            "centre": accuracy(logits[:, 0], y),
            "surest": accuracy(softmax(surest).mean(axis=1), y),
            "adapted": accuracy(adapted, y),
            "moved": int((adapted.argmax(axis=1) != logits[:, 0].argmax(axis=1)).sum()),
            "ms": 1000 * (time.perf_counter() - began) / len(y),
            "cpu": 1000 * (cpu_seconds() - cpu) / len(y),
        }
    return result


def run(arguments: argparse.Namespace, part: str, *one: str) -> dict:
    """A measurement in a new process; one that is in the results file already is not made again."""
    kept = arguments.results
    key = [part, *one, arguments.prompts, arguments.images, arguments.threads]
    if kept and kept.exists():
        for line in kept.read_text().splitlines():
            if (row := json.loads(line))["key"] == key:
                return row["found"]
    command = [
        sys.executable, __file__, "--data", str(arguments.data), "--part", part, "--one", *one,
        "--prompts", str(arguments.prompts), "--images", str(arguments.images),
        "--threads", str(arguments.threads),
    ]  # fmt: skip
    settings = {"OMP_WAIT_POLICY": "PASSIVE", "OPENBLAS_NUM_THREADS": str(arguments.threads)}
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **settings})
    if done.returncode:
        sys.exit(f"{' '.join(one)} failed:\n{done.stderr}")
    found = json.loads(done.stdout.splitlines()[-1])
    if kept:
        with kept.open("a") as stream:
            stream.write(json.dumps({"key": key, "found": found}) + "\n")
    return found


def show_methods(arguments: argparse.Namespace) -> None:
    print(
        f"\nReduced budgets: at most {arguments.prompts:,} prompts through the text tower, or "
        f"{arguments.images:,} images through the image tower, and at least one epoch; "
        f"threads: {arguments.threads}.\n"
        "Ratios are of processor time; 'whole' is scaled to the authors' epochs.\n"
    )
    columns = ("accuracy %", "CPU s", "s", "x ProLIP", "whole, x ProLIP", "epochs", "peak MB")
    for name in arguments.sets:
        for shots in SHOTS:
            print(f"| {name}, {shots} shots | {' | '.join(columns)} |")
            print(f"| --- {'| ---: ' * len(columns)}|")
            prolip = 0.0
            for method in ("zero_shot", "prolip", *(m for m in (*TEXT, *IMAGE) if m in arguments.methods)):
                found = run(arguments, "methods", name, str(shots), method)
                prolip = max(found["cpu"], 0.01) if method == "prolip" else prolip
                print(f"| {method} | {' | '.join(row(found, prolip))} |", flush=True)
            print()


def row(found: dict, prolip: float) -> list[str]:
    if "skipped" in found:
        return [found["skipped"], *[""] * 6]
    ratio = whole = epochs = ""
    if found["epochs"]:
        used, full = found["epochs"]
        epochs, ratio = f"{used} of {full}", f"{found['cpu'] / prolip:,.0f}"
        whole = f"{found['cpu'] / prolip * full / used:,.0f}"
    share, times = f"{100 * found['accuracy']:.1f}", (found["cpu"], found["seconds"])
    return [share, *(f"{t:.1f}" for t in times), ratio, whole, epochs, f"{found['peak']:.0f}"]


def show_test_time(arguments: argparse.Namespace) -> None:
    for name, each in (("dtd10", 20), ("pets37", 4)):
        if name not in arguments.sets:
            continue
        found = run(arguments, "test_time", name, str(each), "-")
        print(
            f"\n{name}: {found['images']} images, {found['classes']} classes, 64 views of each "
            f"({found['encode']:.0f} ms an image to make and encode them, once)\n"
        )
        print("| start | centre view | surest views | step | after it | moved | ms an image | CPU ms |")
        print("| --- | ---: | ---: | --- | ---: | ---: | ---: | ---: |")
        rows = {label: row for label, row in found.items() if isinstance(row, dict)}
        for label, row in rows.items():
            shares = [f"{100 * row[key]:.1f}" for key in ("centre", "surest", "adapted")]
            rest = [str(row["moved"]), f"{row['ms']:.1f}", f"{row['cpu']:.1f}"]
            print(f"| {label} | {' | '.join([*shares[:2], row['way'], shares[2], *rest])} |")
        prolip, tpt, _ = rows.values()
        print(f"\nTPT's step in steps of ProLIP: {tpt['cpu'] / prolip['cpu']:.0f}", flush=True)


PARTS = {"methods": show_methods, "test_time": show_test_time}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--methods", nargs="+", choices=[*TEXT, *IMAGE], default=[*TEXT, *IMAGE])
    parser.add_argument("--prompts", type=int, default=8000, help="Budget of methods that train prompts.")
    parser.add_argument("--images", type=int, default=800, help="Budget of methods that train image towers.")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--results", type=Path, help="A file of JSON lines; what it has is not measured again."
    )
    parser.add_argument("--part", choices=("methods", "test_time"), help=argparse.SUPPRESS)
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if not arguments.data.is_dir():
        parser.error(f"no folder {arguments.data}: give the one with images/ as --data")
    if arguments.one:
        measure = {"methods": measure_method, "test_time": measure_test_time}[arguments.part]
        print(json.dumps(measure(arguments)))
        return
    for part in arguments.only:
        PARTS[part](arguments)


if __name__ == "__main__":
    main()
