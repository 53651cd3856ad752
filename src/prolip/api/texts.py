"""Class texts: templates, and descriptions where there are any, weighted by the images.

The prompts p of a class are each template with its name, and its descriptions. Its row is

    t_k = normalize( sum_p w_p e_p ),     w_p = (1 - r) / P  +  r softmax_p( s g_p ),     r = n / (n + n0)

e_p is the unit embedding of a prompt, and g_p its mean cosine with the n support images of the class minus
that with the images of all classes; n0 is PRIOR_IMAGES, s the scale of the model. So all prompts have the
same weight if a class has no image, and only what distinguishes it from the others changes the weights.

Measured on birds60 with `benchmarks/accuracy.py`, offline: if all classes are described (16 of them, three
sentences each) zero-shot goes from 20.0 to 27.8 % with equal weights, to 30.0, 30.5 and 31.2 with 1, 4 and 16
images per class. Without the term of all images it was 22 to 26; n0 = 1 and 3 or 10 times s were slightly
worse. The default, fitted, changes by +0.3, +0.2 and 0.0. If only some classes are described, those compete
with the others by prompts of another kind: zero-shot on all 60 falls from 4.9 to 3.2; fitted it is the same
to 0.3.

Held-out figures are slightly optimistic about the texts: the weights have seen all images.
"""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from prolip.api.model import Recipe
from prolip.core import Text, UsageError
from prolip.core.arrays import Array, softmax, unit_rows
from prolip.data.descriptions import descriptions_of
from prolip.encoders import Encoder

PRIOR_IMAGES = 4  # images at which they determine half of a weight


def check_descriptions(recipe: Recipe, names: Sequence[str]) -> None:
    """Refuse descriptions of other classes, before any image is read."""
    if not recipe.descriptions:
        return
    without = [name for name in names if not descriptions_of(recipe.descriptions, name)]
    if len(without) == len(names):
        raise UsageError(
            f"no class is described: classes are {_some(names)}, descriptions are of "
            f"{_some(list(recipe.descriptions))}"
        )
    if without:
        warnings.warn(
            f"{len(without)} of {len(names)} classes have no description ({_some(without)}): describe all or "
            "none, texts of two kinds compare badly",
            stacklevel=5,
        )


def class_texts(
    encoder: Encoder, recipe: Recipe, names: Sequence[str], x: Array | None = None, y: Any = ()
) -> Text:
    """Return the text rows of classes, by their names in the prompts.

    Features x [n, width] of images and their labels y [n] weight the descriptions.
    """
    if not recipe.descriptions:
        return encoder.text(list(names), recipe.templates)
    prompts = [
        [*(t.format(name) for t in recipe.templates), *descriptions_of(recipe.descriptions, name)]
        for name in names
    ]
    features = encoder.encode_text([prompt for own in prompts for prompt in own])
    ends = np.cumsum([len(own) for own in prompts])[:-1]
    embeddings = np.split(unit_rows(encoder.text_head(features)), ends)
    images = np.zeros((0, encoder.head.dim)) if x is None else unit_rows(encoder.head(x))
    return Text(weighted_rows(embeddings, images, np.asarray(y, int), encoder.scale), tuple(names))


def weighted_rows(prompts: Sequence[Array], images: Array, y: Array, scale: float) -> Array:
    """Return unit rows [K, D] of prompts [P, D] per class, by embeddings [n, D] of images and labels [n].

    Examples
    --------
    >>> prompts = [np.eye(3)[:2], np.eye(3)[2:]]
    >>> weighted_rows(prompts, np.zeros((0, 3)), np.zeros(0, int), 10.0).round(2).tolist()
    [[0.71, 0.71, 0.0], [0.0, 0.0, 1.0]]
    """
    rows = []
    for k, own in enumerate(prompts):
        n, weights = int((y == k).sum()), np.full(len(own), 1 / len(own))
        if n:
            gain = own @ (images[y == k].mean(axis=0) - images.mean(axis=0))
            share = n / (n + PRIOR_IMAGES)
            weights = (1 - share) * weights + share * softmax(scale * gain[None])[0]
        rows.append(weights @ own)
    return unit_rows(np.array(rows))


def _some(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:3])) + (", ..." if len(names) > 3 else "")
