"""Tasks of the benchmarks: from real features, and at given sizes for `solver.py`.

The stored CLIP features of WHU-RS19 and ImageNet are post-projection: what a black box gives. Where a head is
needed they are lifted, exactly, to a wider pre-projection space with a known W0 [Do, D], Gaussian with
variance 1 / Do:

    x = v W0^+ + e N'        so that x W0 = v: zero-shot is the real one

N spans what W0 does not see, and e holds fixed random nonlinear features of v, as long as the rest of x.
Where D is wider than the features, v is rotated into D dimensions and gets a fifth of its length in new
ones, again from nonlinear features; so neither reduction gains from the lift. More images per class than
are stored are made from pairs of the same class. Accuracies on lifted tasks mean nothing and are not shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from prolip import Head, Task
from prolip.core.arrays import Array, unit_rows
from prolip.data import as_templates, draw_textures, read_images, sample_few_shot
from prolip.data.templates import templates_for
from prolip.encoders import Encoder, load
from prolip.features import FeatureStore, extract

Trial = tuple[Task, Array, Array]  # a task, test features, test labels

DEFAULT = "anchored"  # the method of `prolip fit` without options
GROUPS = {
    "clip": ("dtd10_clip", "clothing10_clip", "pets37_clip"),
    "whu": ("whu_rn50", "whu_vit_b_32"),
    "photos": ("birds60", "pets37", "dtd10", "clothing10"),
    "imagenet": ("imagenet",),
    "drawn": ("textures",),
}
DEVELOPMENT = 777  # the draw of WHU-RS19's development part

TEMPLATES = {"pets37": "oxford_pets", "dtd10": "dtd"}


def whu(data: Path, backbone: str) -> tuple[Array, Array, Array]:
    """Unit embeddings, labels, and class rows (the mean of all prompts) of WHU-RS19."""
    with np.load(data / "features" / f"whurs19_clip_{backbone}.npz") as stored:
        x, y = stored["images"].astype(np.float32), stored["labels"].astype(np.int64)
        rows = unit_rows(stored["texts"].astype(np.float32)).mean(axis=0)
    return unit_rows(x), y, unit_rows(rows)


def imagenet(data: Path) -> tuple[Array, Array, Array]:
    """Unit embeddings of seven training images per class, labels, class rows; ViT-B/32."""
    with np.load(data / "features" / "imagenet_fewshot_clip_vit_b_32.npz") as stored:
        x = np.concatenate([stored[f"train{k}_x"].astype(np.float32) for k in (4, 2, 1)])
        y = np.concatenate([stored[f"train{k}_y"].astype(np.int64) for k in (4, 2, 1)])
        rows = stored["text"].astype(np.float32)
    return unit_rows(x), y, unit_rows(rows)


@cache
def source_photos(data: Path, name: str, split: str = "train") -> tuple[Encoder, Sequence[Any], Task]:
    """The offline encoder, the photos of a split, and their task."""
    encoder = load("offline")
    if name == "textures":
        images, templates = draw_textures(64 if split == "train" else 60, seed=5, split=split), "dtd"
    else:
        images, templates = read_images(data / "images" / name, split=split), TEMPLATES.get(name)
    prompts = templates_for("dtd") if name == "textures" else as_templates(templates)
    x = extract(encoder, images.images, store=FeatureStore()).features[0]
    text = encoder.text(images.names, prompts)
    return encoder, images.images, Task(x, images.labels, text, encoder.head, encoder.scale)


def training_photos(data: Path, name: str) -> Task:
    """All training photos of a set with the offline encoder."""
    return source_photos(data, name)[2]


def photos(data: Path, name: str) -> Trial:
    """All training photos of a set with the offline encoder, and its test features and labels."""
    test = source_photos(data, name, "test")[2]
    return training_photos(data, name), test.x[0], test.y


def all_photos(data: Path, name: str) -> Task:
    """Training and test photos as one: of 16 training photos of a class there is one way to take 16."""
    task, x, y = photos(data, name)
    return Task(np.concatenate([task.x[0], x]), np.concatenate([task.y, y]), task.text, task.head, task.scale)


def few_shot(y: Array, shots: int, seed: int) -> Array:
    """Indices of `shots` random images of each class, drawn as a fit draws them."""
    return np.array(sample_few_shot(y.tolist(), shots, seed))


def trial(data: Path, name: str, shots: int, draw: int, test: bool = False) -> Trial:
    """N images of each class of a set to fit, and the images to test."""
    if name.startswith("imagenet"):
        return imagenet_trial(data, int(name.removeprefix("imagenet") or 1000), shots, draw)
    if name == "textures" or (name in GROUPS["photos"] and (name == "birds60" or (test and shots < 16))):
        task, x, y = photos(data, name)
        return task.subset(few_shot(task.y, shots, draw)), x, y
    task = all_photos(data, name) if name in GROUPS["photos"] and test else whole_task(data, name)
    if name in GROUPS["whu"] and not test:
        task = task.subset(few_shot(task.y, 16, DEVELOPMENT))
    chosen = few_shot(task.y, shots, draw)
    rest = np.setdiff1d(np.arange(task.n), chosen)
    if len(rest) < task.classes:
        raise ValueError("no images are left to test: --test, or fewer shots")
    return task.subset(chosen), task.x[0, rest], task.y[rest]


def whole_task(data: Path, name: str) -> Task:
    """All images that a set fits on; of `clip` and `whu` all images."""
    if name in GROUPS["clip"]:
        return clip_task(data, name.removesuffix("_clip"))
    if name in GROUPS["whu"]:
        return Task(*whu(data, name.removeprefix("whu_")))
    return training_photos(data, name)


def imagenet_trial(data: Path, classes: int, shots: int, draw: int) -> Trial:
    """One few-shot set to fit, the two others to test, on all or on random classes."""
    if shots not in (1, 2, 4) or (classes == 1000 and draw > 1):
        raise ValueError("ImageNet has one set each of 1, 2 and 4 images: --draws 1")
    x, y, text = imagenet(data)
    fit = np.repeat((4, 2, 1), (4000, 2000, 1000)) == shots
    chosen = np.sort(np.random.default_rng(draw).permutation(1000)[:classes])
    place = np.full(1000, -1)
    place[chosen] = np.arange(classes)
    inside = place[y] >= 0
    task = Task(x[fit & inside], place[y[fit & inside]], text[chosen])
    return task, x[~fit & inside], place[y[~fit & inside]]


@cache
def clip_task(data: Path, name: str) -> Task:
    """All photos of the classes that have a text, before CLIP's projection."""
    with np.load(data / "features" / f"{name}_clip_vit_b_16.npz") as stored:
        x, labels, known = (stored[key] for key in ("x", "labels", "text_classes"))
        text, weight = (stored[key].astype(np.float32) for key in ("text", "weight"))
    place = np.full(labels.max() + 1, -1)
    place[known] = np.arange(len(known))
    y = place[labels]
    return Task(x[y >= 0].astype(np.float32), y[y >= 0], text, Head(weight), 100.0)


def lifted_whu(data: Path, shots: int, width: int) -> Task:
    """WHU-RS19 RN50, 19 classes, lifted to `width` (the embedding stays at 1,024)."""
    x, y, rows = whu(data, "rn50")
    picked = few_shot(y, shots, seed=0)
    return lift(x[picked], y[picked], rows, width, x.shape[1])


def lifted_imagenet(data: Path, classes: int, shots: int, width: int, dim: int) -> Task:
    """ImageNet ViT-B/32, so many classes and images of each, lifted to `width` and `dim`."""
    x, y, rows = imagenet(data)
    rng = np.random.default_rng(0)
    chosen = rng.permutation(len(rows))[:classes]
    parts = [_fill(x[y == label][:shots], shots, rng) for label in chosen]
    return lift(np.concatenate(parts), np.repeat(np.arange(classes), shots), rows[chosen], width, dim)


def lift(v: Array, y: Array, rows: Array, width: int, dim: int) -> Task:
    """Features x [n, width] and a head W0 [width, dim] with x W0 = v."""
    rng = np.random.default_rng(1)

    def normal(*shape: int) -> Array:
        return rng.normal(size=shape).astype(np.float32)

    if dim > v.shape[1]:
        rotation = np.linalg.qr(normal(dim, v.shape[1]))[0].T
        extra = np.tanh(2 * v @ normal(v.shape[1], dim))
        extra -= extra @ rotation.T @ rotation
        v, rows = v @ rotation + 0.2 * unit_rows(extra), rows @ rotation
    w0 = normal(width, dim) / width**0.5
    x = v @ np.linalg.pinv(w0)
    if width > dim:
        unseen = np.linalg.qr(np.concatenate([w0, normal(width, width - dim)], axis=1))[0][:, dim:]
        hidden = np.tanh(2 * v @ normal(dim, width - dim))
        x = x + unit_rows(hidden) * np.linalg.norm(x, axis=1, keepdims=True) @ unseen.T
    return Task(x, y, rows, Head(w0), 100.0)


def _fill(images: Array, shots: int, rng: np.random.Generator) -> Array:
    missing = shots - len(images)
    if missing <= 0:
        return images
    a, b = images[rng.integers(len(images), size=(2, missing))]
    share = 0.2 + 0.6 * rng.random((missing, 1)).astype(np.float32)
    noise = 0.02 * rng.normal(size=(missing, images.shape[1])).astype(np.float32)
    return np.concatenate([images, unit_rows(share * a + (1 - share) * b + noise)])
