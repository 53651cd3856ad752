"""Drawn photos, for a first look at the page without photos of one's own."""

import hashlib
from functools import partial

import numpy as np

from prolip.app import edits
from prolip.app.project import Project
from prolip.data import textures
from prolip.features.images import to_jpeg

CLASSES, LABELLED, UNLABELLED, SIDE = 4, 6, 4, 320


def add_samples(project: Project) -> None:
    """Add classes with a few labelled images each, and a few images of them without a label."""
    for k, name in enumerate(list(textures.TEXTURES)[:CLASSES]):
        (key,) = project.commit(partial(edits.add_class, name=name)).classes
        for number in range(LABELLED + UNLABELLED):
            data = to_jpeg(textures.draw(name, np.random.default_rng([k, number])), SIDE, quality=90)
            label = key if number < LABELLED else None
            image = hashlib.sha256(data).hexdigest()
            group = f"sample {name}"
            project.add_image(image, data, data, name=f"{name} {number}.jpg", label=label, group=group)
