"""Tasks of methods that train inside a tower: they need the encoder and the pictures themselves.

A fitted model says whose features it reads. Where training changed the image tower, the cached ones will not
do, and the test images go through the changed tower.
"""

import functools
from collections.abc import Sequence

from prolip import encoders
from prolip.core import Fitted, InputError, Task
from prolip.core.arrays import Array
from prolip.encoders import Encoder
from prolip.features import LazyImages, extract
from prolip.research.protocols.encoded_dataset import EncodedDataset
from prolip.research.towers.tower_method import TowerTask


def tower_task(
    task: Task, problem: EncodedDataset, chosen: Sequence[int], template: str, part: str = "train"
) -> TowerTask:
    """The task beside its encoder and pictures, which come from a part of the dataset."""
    if not problem.model:
        raise InputError(f"{problem.name} has features only, and the method trains through the model itself")
    rows = problem.splits[part].rows(chosen).tolist()
    pictures = LazyImages([problem.paths[part][row] for row in rows])
    encoder, templates = load_once(problem.model, problem.device), problem.templates[template]
    return TowerTask(task.x, task.y, task.text, task.head, task.scale, encoder, templates, pictures)


def encoded_test_split(fitted: Fitted, problem: EncodedDataset) -> tuple[Array, Array]:
    """Test features [n, width] as this model reads them, and labels [n]."""
    x, y = problem.splits["test"].all()
    if not problem.model or type(fitted).encoder_for is Fitted.encoder_for:
        return x, y
    base = load_once(problem.model, problem.device)
    reader = fitted.encoder_for(base)
    if reader is base:
        return x, y
    return extract(reader, problem.paths["test"]).features[0], y


@functools.lru_cache(maxsize=1)
def load_once(model: str, device: str) -> Encoder:
    """The encoder, kept: a worker runs many units on one."""
    return encoders.load(model, device)
