"""Logits of every method on ten small tasks, as they were computed when `frozen_logits.npz` was written.

    PYTHONPATH=src:tests python -m reference.frozen [CASE ...]      write all, or some, anew

A change of the code that is not meant to change a method leaves its logits as they are. Rewrite a method's
numbers only in the commit that changes its mathematics.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from prolip import methods
from prolip.core import Head, Task, Text
from prolip.core.arrays import Array, unit_rows

FILE = Path(__file__).with_name("frozen_logits.npz")
TEST_IMAGES = 8
WIDTH, DIM = 24, 16

# What is fitted: a name for the table, the method and its options.
CASES: dict[str, tuple[str, dict[str, object]]] = {
    "zero_shot": ("zero_shot", {}),
    "prolip, 1/N": ("prolip", {"lam": "1/N"}),
    "prolip, 1/N^2": ("prolip", {"lam": "1/N^2"}),
    "prolip, 0.1": ("prolip", {"lam": 0.1}),
    "prolip, adam": ("prolip", {"lam": "1/N", "solver": "adam"}),
    "prolip, validation": ("prolip", {"lam": "auto"}),
    "rla, 1/N": ("rla", {"lam": "1/N"}),
    "rla, adam": ("rla", {"lam": "1/N", "solver": "adam"}),
    "prolip_text, 10": ("prolip_text", {"lam": 10.0}),
    "prolip_text, whole mean": ("prolip_text", {"lam": "1/N", "per_template": False}),
    "prolip_text, adam": ("prolip_text", {"lam": "1/N", "solver": "adam"}),
    "linear_probe": ("linear_probe", {}),
    "linear_probe, C=1": ("linear_probe", {"C": 1.0}),
    "linear_probe, pre": ("linear_probe", {"features": "pre"}),
    "linear_probe, validation": ("linear_probe", {}),
    "lp_plus_plus": ("lp_plus_plus", {}),
    "lp_plus_plus, validation": ("lp_plus_plus", {}),
    "clap": ("clap", {}),
    "clap, sgd": ("clap", {"solver": "sgd"}),
    "cross_modal": ("cross_modal", {}),
    "cross_modal, 1/N": ("cross_modal", {"lam": "1/N"}),
    "cross_modal, validation": ("cross_modal", {}),
    "task_res": ("task_res", {}),
    "task_res, 1/N": ("task_res", {"lam": "1/N"}),
    "task_res, adam": ("task_res", {"solver": "adam"}),
    "task_res, sgd": ("task_res", {"solver": "sgd"}),
    "task_res, validation": ("task_res", {}),
    "clip_adapter": ("clip_adapter", {"epochs": 60}),
    "clip_adapter, sgd": ("clip_adapter", {"solver": "sgd", "epochs": 40}),
    "clip_adapter, validation": ("clip_adapter", {"epochs": 60}),
    "tip_adapter": ("tip_adapter", {}),
    "tip_adapter_f": ("tip_adapter_f", {}),
    "tip_adapter_f, validation": ("tip_adapter_f", {}),
    "tip_adapter_f_star": ("tip_adapter_f_star", {}),
    "tip_adapter_f_star, validation": ("tip_adapter_f_star", {}),
    "gda": ("gda", {}),
    "gda, 0.1": ("gda", {"alpha": 0.1}),
    "gda, validation": ("gda", {}),
    "tip_adapter_f_star, shared, validation": ("tip_adapter_f_star", {"shared_keys": True}),
    "clap_tip_adapter_f": ("clap_tip_adapter_f", {}),
    "clap_cross_modal": ("clap_cross_modal", {}),
    "prolip_bias": ("prolip_bias", {}),
    "prolip+rla": ("prolip+rla", {}),
    "prolip+rla, adam": ("prolip+rla", {"solver": "adam"}),
    "prolip+task_res": ("prolip+task_res", {}),
    "prolip+task_res, adam": ("prolip+task_res", {"solver": "adam"}),
    "prolip+tip_adapter_f": ("prolip+tip_adapter_f", {}),
    "prolip+tip_adapter_f, adam": ("prolip+tip_adapter_f", {"solver": "adam"}),
    "rla+clap": ("rla+clap", {}),
}

SCALES = {"prolip, 0.1": 30.0}  # where it is not that of the task
NEEDS_TEXT_FEATURES = ("prolip_text",)

# Largest difference allowed, as a share of the largest logit of a task. Where a solver stops at a tolerance,
# another rounding makes it stop elsewhere: those are some ten times what features moved by 1e-12 of their
# size change.
TOLERANCE = 1e-5
TOLERANCES = {
    **dict.fromkeys(["cross_modal", "task_res", "task_res, validation", "prolip+task_res"], 1e-2),
    **dict.fromkeys(["prolip, validation"], 2e-3),
    **dict.fromkeys(["linear_probe", "linear_probe, pre", "rla+clap", "task_res, 1/N", "clap"], 1e-3),
    **dict.fromkeys(["cross_modal, 1/N", "cross_modal, validation", "prolip_text, whole mean"], 1e-3),
}


# Searches on a few held-out images: where candidates are tied, another rounding may settle on another,
# so that one task of the ten may differ.
SEARCHED = (
    "cross_modal",
    "task_res",
    "prolip, validation",
    "task_res, validation",
    "cross_modal, validation",
)


def tasks() -> dict[str, tuple[Task, Task, Array]]:
    """A support set, a validation set and test images x [m, width] by name."""
    head = Head(_normal(0, WIDTH, DIM) / WIDTH**0.5)
    biased = Head(head.weight, 0.2 * _normal(1, DIM))
    residual = Head(head.weight, 0.1 * _normal(2, DIM), residual=True)
    return {
        "1 shot": _task(10, [1] * 5, head),
        "2 shots, 14 classes": _task(11, [2] * 14, head),
        "4 shots": _task(12, [4] * 5, head),
        "16 shots": _task(13, [16] * 5, head),
        "1 shot, 3 views": _task(14, [1] * 5, head, views=3),
        "4 shots, 3 views": _task(15, [4] * 5, head, views=3),
        "4 shots, residual head": _task(16, [4] * 5, residual),
        "4 shots, black box": _task(17, [4] * 5, None),
        "4 shots, bias": _task(18, [4] * 5, biased),
        "1 to 8 images, bias": _task(19, [1, 2, 3, 5, 8], biased),
    }


def frozen_logits(name: str, task: Task, validation: Task, x: Array) -> Array | None:
    """Logits [m, K] of a case on test images; None where the task lacks what the method needs."""
    method, options = CASES[name]
    if method in NEEDS_TEXT_FEATURES and task.text.features is None:
        return None
    held = validation if name.endswith("validation") else None
    task = task.with_scale(SCALES.get(name, task.scale))
    return methods.create(method, **options).fit(task, validation=held).logits(x)


def _task(seed: int, counts: list[int], head: Head | None, views: int = 1) -> tuple[Task, Task, Array]:
    """Images around a direction of their class, texts that are right about most of them; scale 25.

    Features are float64, in which every solver goes nearer to its minimum than from float32.
    """
    rng, classes = np.random.default_rng(seed), len(counts)
    width = DIM if head is None else len(head.weight)
    centres = rng.normal(size=(classes, width)) / width**0.5
    linear = Head.identity(DIM) if head is None else Head(head.weight)
    prompts = unit_rows(linear(_float32(centres)))[None] + 0.35 * rng.normal(size=(2, classes, DIM))
    rotation = np.linalg.qr(rng.normal(size=(DIM, DIM)))[0]
    names = [f"class {k}" for k in range(classes)]
    text = Text.from_features(_float32(8 * prompts @ rotation.T), Head(_float32(rotation)), names)

    def draw(each: list[int], noise: float) -> tuple[Array, Array]:
        y = np.repeat(np.arange(classes), each)
        x = centres[y] + noise * rng.normal(size=(len(y), width)) / width**0.5
        if head is not None and head.residual:
            x = np.concatenate([x, 0.5 * rng.normal(size=(len(y), DIM)) / DIM**0.5], axis=1)
        return _float32(x), y

    x, y = draw(counts, 1.2)
    x = np.stack([x, *(x + _float32(0.15 * rng.normal(size=x.shape)) for _ in range(views - 1))])
    text = text if head is not None else Text(text.rows)
    validation, test = draw([3] * classes, 1.2), draw([4] * classes, 1.2)[0][:: max(1, classes // 2)]
    support, held = (
        Task(images.astype(np.float64), labels, text, head, 25.0) for images, labels in ((x, y), validation)
    )
    return support, held, test[:TEST_IMAGES].astype(np.float64)


def compute(case: str) -> dict[str, Array]:
    """The logits of a case on each task that has what its method needs."""
    found = {name: frozen_logits(case, *problem) for name, problem in tasks().items()}
    return {name: logits for name, logits in found.items() if logits is not None}


def difference(case: str, stored: Array) -> float:
    """The largest difference from stored logits, as a share of a task's largest logit.

    Of a search, the task that differs most is left out.
    """
    computed = compute(case)
    ends = np.cumsum([logits.size for logits in computed.values()])
    assert ends[-1] == len(stored), "other tasks than those that were stored"
    parts = np.split(stored, ends[:-1])
    differences = sorted(
        float(np.abs(logits.ravel() - part).max() / np.abs(part).max())
        for logits, part in zip(computed.values(), parts, strict=True)
    )
    return differences[-2 if case in SEARCHED else -1]


def read() -> dict[str, Array]:
    """The stored logits by case: those of all its tasks, one after another."""
    with np.load(FILE, allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}


def write(names: list[str]) -> None:
    """Compute the logits of these cases, or of all, and write them beside those of the others."""
    stored = read() if names else {}
    for case in names or CASES:
        stored[case] = np.concatenate([logits.ravel() for logits in compute(case).values()])
    arrays = {name: stored[name].astype(np.float32) for name in CASES}
    np.savez_compressed(FILE, **arrays)  # type: ignore[arg-type]


def _normal(seed: int, *shape: int) -> Array:
    return _float32(np.random.default_rng(seed).normal(size=shape))


def _float32(x: Array) -> Array:
    return x.astype(np.float32)


if __name__ == "__main__":
    write(sys.argv[1:])
