"""Tasks for `methods.py`: the sets that are reported, and those that defaults are settled on.

Reported: WHU-RS19 under CLIP RN50 and ViT-B/32 (N images a class to fit, all others to test); ImageNet under
ViT-B/32 (one of its three few-shot sets to fit, the other two to test: these are training images, not
comparable with published figures); three folders of photos under the offline encoder.

Development, as in `lam.py`: the built-in textures and digits under the offline encoder, random subsets of
ImageNet's classes, and the training photos of the three folders, a part of them to fit and the others to
test. Nothing is chosen by accuracy on test images of a reported set.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np

from lam import Trial, builtin_trials, imagenet_trials, photo_trials
from prolip import Task
from prolip.data import sample_few_shot
from solver_tasks import imagenet, photos, whu

BACKBONES = {"whu_rn50": "rn50", "whu_vit_b_32": "vit_b_32"}
PHOTOS = ("pets37", "dtd10", "clothing10")
REPORTED = (*BACKBONES, "imagenet", *PHOTOS)
TRAINING = {f"{name}_train": name for name in PHOTOS}
DEVELOPMENT = ("digits", "textures", *TRAINING, "imagenet20", "imagenet60", "imagenet200")
SEEDS = 5


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
    return list(builtin_trials(name, shots, SEEDS))
