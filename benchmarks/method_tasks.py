"""Tasks for `accuracy.py`: the sets that are reported, and those that defaults are settled on.

Reported: WHU-RS19 under CLIP RN50 and ViT-B/32 (N images a class to fit, all others to test); ImageNet under
ViT-B/32 (one of its three few-shot sets to fit, the other two to test: these are training images, not
comparable with published figures); three folders of photos under the offline encoder.

Development: drawn textures and scikit-learn's digits under the offline encoder, random subsets of
ImageNet's classes, and the training photos of the three folders, a part of them to fit and the others to
test. Nothing is chosen by accuracy on test images of a reported set.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image

from prolip import Task
from prolip.core.arrays import Array
from prolip.data import ImageSet, draw_textures, sample_few_shot, templates_for
from prolip.encoders import load
from prolip.features import FeatureStore, extract
from solver_tasks import imagenet, photos, training_photos, whu

BACKBONES = {"whu_rn50": "rn50", "whu_vit_b_32": "vit_b_32"}
PHOTOS = ("pets37", "dtd10", "clothing10")
REPORTED = (*BACKBONES, "imagenet", *PHOTOS)
TRAINING = {f"{name}_train": name for name in PHOTOS}
DEVELOPMENT = ("digits", "textures", *TRAINING, "imagenet20", "imagenet60", "imagenet200")
SEEDS = 5
DEFAULT = "anchored"  # the method of `prolip fit` without options

Trial = tuple[Task, Array, Array]  # a task, test features, test labels


def has(name: str, shots: int, seed: int) -> bool:
    """Whether a set has such a task. ImageNet's few-shot sets are fixed: one seed."""
    if name in TRAINING:
        return shots in (4, 12) and seed <= 4
    if name.startswith("imagenet"):
        return shots in (1, 2, 4) and (seed == 1 or name != "imagenet")
    return shots != 12


def trial(data: Path, name: str, shots: int, seed: int) -> Trial:
    """The task of a set."""
    if name in DEVELOPMENT:
        return _development(data, name, shots)[seed - 1]
    if name == "imagenet":
        x, y, text = imagenet(data)
        fit = np.repeat((4, 2, 1), (4000, 2000, 1000)) == shots
        return Task(x[fit], y[fit], text), x[~fit], y[~fit]
    if name in BACKBONES:
        x, y, text = whu(data, BACKBONES[name])
        chosen = sample_few_shot(y, shots, seed)
        rest = np.setdiff1d(np.arange(len(y)), chosen)
        return Task(x[chosen], y[chosen], text), x[rest], y[rest]
    task, x, y = photos(data, name)
    return task.subset(np.array(sample_few_shot(task.y, shots, seed))), x, y


@cache
def _development(data: Path, name: str, shots: int) -> list[Trial]:
    if name in TRAINING:
        return list(photo_trials(data, TRAINING[name], shots, 1))
    if name.startswith("imagenet"):
        return list(imagenet_trials(data, int(name.removeprefix("imagenet")), shots, SEEDS))
    return list(drawn_trials(name, shots, SEEDS))


def drawn(name: str, per_class: int, split: str) -> tuple[ImageSet, Sequence[str]]:
    """Drawn textures, or scikit-learn's 8 x 8 digits enlarged, and their prompts."""
    if name == "textures":
        return draw_textures(per_class, seed=5, split=split), templates_for("dtd")
    from sklearn.datasets import load_digits

    digits, images = load_digits(), []
    for digit in range(10):
        pool = np.flatnonzero(digits.target == digit)
        pool = pool[-74:] if split == "test" else pool[:-74]
        images += [digits.images[i] for i in np.random.default_rng([5, digit]).permutation(pool)[:per_class]]
    words = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
    labels, classes = np.repeat(range(10), per_class).tolist(), [f"digit {word}" for word in words]
    return ImageSet(list(map(enlarge, images)), labels, classes), ("a photo of a handwritten {}.",)


def enlarge(digit: Array) -> Image.Image:
    """Enlarge 8 x 8 values in 0 .. 16 to a smooth image with a margin, white on black."""
    small = Image.fromarray(np.pad(digit * (255 / 16), 1).round().astype(np.uint8))
    return small.resize((112, 112), Image.Resampling.BICUBIC).convert("RGB")


def drawn_trials(name: str, shots: int, seeds: int) -> Iterator[Trial]:
    encoder = load("offline")
    (train, templates), (test, _) = drawn(name, 64, "train"), drawn(name, 60, "test")
    x = extract(encoder, [*train.images, *test.images], store=FeatureStore()).features[0]
    text = encoder.text(train.classes, templates)
    for seed in range(1, seeds + 1):
        chosen = sample_few_shot(train.labels, shots, seed)
        y = [train.labels[i] for i in chosen]
        task = Task(x[chosen], y, text, encoder.head, encoder.scale)
        yield task, x[len(train) :], np.array(test.labels)


def imagenet_trials(data: Path, classes: int, shots: int, seeds: int) -> Iterator[Trial]:
    with np.load(data / "features" / "imagenet_fewshot_clip_vit_b_32.npz") as stored:
        held_out = 2 if shots == 4 else 4
        x, y = stored[f"train{shots}_x"].astype(np.float32), stored[f"train{shots}_y"]
        x_test, y_test = stored[f"train{held_out}_x"].astype(np.float32), stored[f"train{held_out}_y"]
        text = stored["text"]
    for seed in range(1, seeds + 1):
        chosen = np.sort(np.random.default_rng(seed).permutation(1000)[:classes])
        place = np.full(1000, -1)
        place[chosen] = np.arange(classes)
        mine, theirs = place[y] >= 0, place[y_test] >= 0
        yield Task(x[mine], place[y[mine]], text[chosen]), x_test[theirs], place[y_test[theirs]]


def photo_trials(data: Path, name: str, shots: int, seeds: int) -> Iterator[Trial]:
    """4, 8 or 12 of the 16 photos of a class to fit; every photo takes its turn, in `seeds` random orders."""
    task = training_photos(data, name)
    part = min(shots, 16 - shots)
    for seed in range(1, seeds + 1):
        turn = np.empty_like(task.y)
        for label in range(task.classes):
            images = np.flatnonzero(task.y == label)
            turn[np.random.default_rng([seed, label]).permutation(images)] = np.arange(len(images)) // part
        for k in range(16 // part):
            fitted = turn == k if shots == part else turn != k
            yield task.subset(np.flatnonzero(fitted)), task.x[0][~fitted], task.y[~fitted]
