"""Tasks for `solver.py`, from real features at the sizes asked for.

The stored CLIP features are post-projection: what a black box gives. Where a head is needed they are lifted,
exactly, to a wider pre-projection space with a known W0 [Do, D], Gaussian with variance 1 / Do:

    x = v W0^+ + e N'        so that x W0 = v: zero-shot is the real one

N spans what W0 does not see, and e holds fixed random nonlinear features of v, as long as the rest of x.
Where D is wider than the features, v is rotated into D dimensions and gets a fifth of its length in new
ones, again from nonlinear features; so neither reduction gains from the lift. More images per class than
are stored are made from pairs of the same class. Accuracies on lifted tasks mean nothing and are not shown.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from prolip import Head, Task
from prolip.data import as_templates, read_images
from prolip.encoders import load
from prolip.features import FeatureStore, extract

TEMPLATES = {"pets37": "oxford_pets", "dtd10": "dtd"}
unit = torch.nn.functional.normalize


def whu(data: Path, backbone: str) -> tuple[Tensor, Tensor, Tensor]:
    """Unit embeddings, labels, and class rows (the mean of all prompts) of WHU-RS19."""
    with np.load(data / "features" / f"whurs19_clip_{backbone}.npz") as stored:
        x, y = torch.tensor(stored["images"]).float(), torch.tensor(stored["labels"]).long()
        rows = unit(torch.tensor(stored["texts"]).float(), dim=-1).mean(dim=0)
    return unit(x, dim=1), y, unit(rows, dim=1)


def imagenet(data: Path) -> tuple[Tensor, Tensor, Tensor]:
    """Unit embeddings of seven training images per class, labels, class rows; ViT-B/32."""
    with np.load(data / "features" / "imagenet_fewshot_clip_vit_b_32.npz") as stored:
        x = torch.cat([torch.tensor(stored[f"train{k}_x"]).float() for k in (4, 2, 1)])
        y = torch.cat([torch.tensor(stored[f"train{k}_y"]).long() for k in (4, 2, 1)])
        rows = torch.tensor(stored["text"]).float()
    return unit(x, dim=1), y, unit(rows, dim=1)


@cache
def photos(data: Path, name: str) -> tuple[Task, Tensor, Tensor]:
    """All training photos of a set with the offline encoder, and its test features and labels."""
    encoder = load("offline")
    features, labels = {}, {}
    for split in ("train", "test"):
        images = read_images(data / "images" / name, split=split)
        features[split] = extract(encoder, images.paths, store=FeatureStore()).features[0]
        labels[split] = torch.tensor(images.labels)
    text = encoder.text(images.names, as_templates(TEMPLATES.get(name)))
    task = Task(features["train"], labels["train"], text, encoder.head, encoder.scale)
    return task, features["test"], labels["test"]


def few_shot(y: Tensor, shots: int, seed: int) -> Tensor:
    """Indices of `shots` random images of each class."""
    g = torch.Generator().manual_seed(seed)
    picked = []
    for label in torch.unique(y):
        images = (y == label).nonzero()[:, 0]
        picked.append(images[torch.randperm(len(images), generator=g)[:shots]])
    return torch.cat(picked)


def lifted_whu(data: Path, shots: int, width: int) -> Task:
    """WHU-RS19 RN50, 19 classes, lifted to `width` (the embedding stays at 1,024)."""
    x, y, rows = whu(data, "rn50")
    picked = few_shot(y, shots, seed=0)
    return lift(x[picked], y[picked], rows, width, x.shape[1])


def lifted_imagenet(data: Path, classes: int, shots: int, width: int, dim: int) -> Task:
    """ImageNet ViT-B/32, so many classes and images of each, lifted to `width` and `dim`."""
    x, y, rows = imagenet(data)
    g = torch.Generator().manual_seed(0)
    chosen = torch.randperm(len(rows), generator=g)[:classes]
    parts = [_fill(x[y == label][:shots], shots, g) for label in chosen]
    return lift(torch.cat(parts), torch.arange(classes).repeat_interleave(shots), rows[chosen], width, dim)


def lift(v: Tensor, y: Tensor, rows: Tensor, width: int, dim: int) -> Task:
    """Features x [n, width] and a head W0 [width, dim] with x W0 = v."""
    g = torch.Generator().manual_seed(1)
    if dim > v.shape[1]:
        rotation = torch.linalg.qr(torch.randn(dim, v.shape[1], generator=g))[0].T
        extra = torch.tanh(2 * v @ torch.randn(v.shape[1], dim, generator=g))
        extra -= extra @ rotation.T @ rotation
        v, rows = v @ rotation + 0.2 * unit(extra, dim=1), rows @ rotation
    w0 = torch.randn(width, dim, generator=g) / width**0.5
    x = v @ torch.linalg.pinv(w0)
    if width > dim:
        random = torch.randn(width, width - dim, generator=g)
        unseen = torch.linalg.qr(torch.cat([w0, random], dim=1))[0][:, dim:]
        hidden = torch.tanh(2 * v @ torch.randn(dim, width - dim, generator=g))
        x = x + unit(hidden, dim=1) * x.norm(dim=1, keepdim=True) @ unseen.T
    return Task(x, y, rows, Head(w0), 100.0)


def _fill(images: Tensor, shots: int, g: torch.Generator) -> Tensor:
    missing = shots - len(images)
    if missing <= 0:
        return images
    a, b = images[torch.randint(len(images), (2, missing), generator=g)]
    share = 0.2 + 0.6 * torch.rand(missing, 1, generator=g)
    noise = 0.02 * torch.randn(missing, images.shape[1], generator=g)
    return torch.cat([images, unit(share * a + (1 - share) * b + noise, dim=1)])
