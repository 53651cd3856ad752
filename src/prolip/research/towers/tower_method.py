"""What the methods that train through a tower share: their task, and what they ask of an encoder.

Nothing here imports torch before a tower is opened, so that methods can be listed where it is not installed.
"""

from __future__ import annotations

import dataclasses
import random
from abc import abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from prolip.core import Fitted, InputError, ModelError, Projected, Settings, Task, UsageError
from prolip.core.arrays import Array, to_numpy
from prolip.encoders import Encoder, Preprocess
from prolip.io.environment import require
from prolip.io.files import sha256_tensors
from prolip.io.onnx_graph import Graph
from prolip.methods.common.method import Method, Progress, Shape

if TYPE_CHECKING:
    from torch import Tensor, nn

    from prolip.encoders.trainable_towers import Towers
    from prolip.research.towers.training import Batch, Gradient, Judge, Recipe


_AT_ONCE = 32  # validation images


@dataclass(frozen=True, eq=False)
class TowerTask(Task):
    """A task beside the encoder that its features came from.

    Examples
    --------
    >>> task = TowerTask(x, y, text, encoder.head, encoder.scale, encoder)      # doctest: +SKIP
    >>> methods.create("coop", epochs=5).fit(task)                              # doctest: +SKIP
    """

    encoder: Encoder | None = None
    templates: tuple[str, ...] = ("a photo of a {}.",)  # what the text rows were made with
    # The support images in RGB, in the order of the labels; a sequence that loads them when asked for them
    # will do. Only methods that run the image tower need them.
    pictures: Sequence[Any] = ()

    def subset(self, images: Array) -> TowerTask:
        """Only these images, all their views."""
        chosen = np.arange(self.n)[images]
        pictures = Chosen(self.pictures, chosen.tolist()) if len(self.pictures) else ()
        return dataclasses.replace(self, x=self.x[:, chosen], y=self.y[chosen], pictures=pictures)


@dataclass(frozen=True)
class Chosen(Sequence[Any]):
    """Some of a sequence, still loaded only when asked for."""

    whole: Sequence[Any]
    places: list[int]

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, index: Any) -> Any:
        return self.whole[self.places[index]]


class TowerMethod(Method):
    """A method whose gradients go through the text tower or the image tower."""

    trains_tower: ClassVar[bool] = True

    def prepare(self, task: Task, encoder: Any, templates: Sequence[str], pictures: Sequence[Any]) -> Task:
        """Return the task beside the encoder and the images that its features came from."""
        return TowerTask(
            task.x, task.y, task.text, task.head, task.scale, encoder, tuple(templates), pictures
        )

    def open(self, task: Task, copy: bool = False) -> tuple[TowerTask, Encoder, Towers]:
        """The encoder behind a task and its towers; or one sentence on what is missing."""
        if not isinstance(task, TowerTask) or task.encoder is None:
            raise UsageError(
                f"{self.name} trains through the model itself: it needs a TowerTask with its encoder, "
                "features alone are not enough"
            )
        require("torch", "torch")
        encoder = task.encoder
        towers = encoder.towers(copy)
        if missing := [need for need in self.needs if need not in towers.offers]:
            raise ModelError(f"{self.name} needs {missing[0]}, and {encoder.name} does not offer that")
        if task.text.classes is None:
            raise InputError(f"{self.name} needs the names of the classes: give a Text that has them")
        if self.reads_images and len(task.pictures) != task.n:
            raise InputError(
                f"{self.name} trains on the pictures themselves: the task has {task.n} images "
                f"but {len(task.pictures)} pictures"
            )
        return task, encoder, towers

    def chooses(self) -> bool:
        """What a validation set is used for: the best epoch."""
        return True

    def judge_pictures(
        self, validation: Task | None, preprocess: Preprocess, logits: Callable[[Array], Tensor]
    ) -> Judge | None:
        """The accuracy on a validation set by logits of pixels [B, S, S, 3]; None where there is none."""
        if validation is None:
            return None
        pixels = [preprocess.centre(picture) for picture in self.held_out_pictures(validation)]
        parts = [np.stack(pixels[k : k + _AT_ONCE]) for k in range(0, len(pixels), _AT_ONCE)]

        return lambda: accuracy([logits(part) for part in parts], validation.y)

    def held_out_pictures(self, validation: Task) -> Sequence[Any]:
        """The pictures of a validation set, for methods that run the image tower."""
        if not isinstance(validation, TowerTask) or len(validation.pictures) != validation.n:
            raise InputError(f"{self.name} runs the image tower: its validation set needs its pictures too")
        return validation.pictures

    def settle(self, **chosen: Any) -> Settings:
        """All but `checkpoint`: the folder of one run."""
        return super().settle(**{"checkpoint": None, **chosen})

    @abstractmethod
    def schedule(self, task: Task) -> dict[str, Any]:
        """What its recipe has beside the options of every such method, for a support set of this size."""

    def recipe(self, task: Task) -> Recipe:
        """Steps and rates, for a support set of this size."""
        from prolip.research.towers.training import Recipe

        names = ("lr", "epochs", "batch_size", "seed", "checkpoint")
        return Recipe(**{name: getattr(self, name) for name in names} | self.schedule(task))

    def train(
        self,
        task: TowerTask,
        towers: Towers,
        trained: dict[str, nn.Parameter],
        loss: Callable[[Batch], Tensor],
        progress: Progress | None = None,
        gradient: Gradient | None = None,
        judge: Judge | None = None,
    ) -> dict[str, Any]:
        """Train parameters inside the towers; with the option `recompute`, in less memory and more time."""
        from prolip.research.towers.training import train

        assert task.encoder is not None
        with towers.checkpointed() if getattr(self, "recompute", False) else nullcontext():
            recipe, device = self.recipe(task), task.encoder.device
            identity = f"{self._identity(task)}{' best epoch' * (judge is not None)}"
            return train(trained, loss, task.n, recipe, device, progress, identity, gradient, judge)

    def _identity(self, task: TowerTask) -> str:
        """What makes a run what it is: not where its state is kept, nor how much memory it takes."""
        assert task.encoder is not None
        left_out = ("checkpoint", "recompute")
        options = {name: getattr(self, name) for name in self.options() if name not in left_out}
        images = sha256_tensors([("x", task.x), ("y", task.y), ("text", task.text.rows)])
        return f"{self.name} {options} {task.encoder.fingerprint} {task.text.classes} {images}"

    def count(self, shape: Shape) -> int:
        """Refused: the sizes of the features do not tell."""
        raise UsageError(f"{self.name} trains inside a tower: ask parameters(task), with a TowerTask")


def accuracy(logits: Sequence[Tensor], y: Array) -> float:
    """The share of images that logits [B, K], batch by batch, put into their class."""
    found = np.concatenate([to_numpy(part.argmax(dim=1)) for part in logits])
    return float(np.mean(found == y))


class TowerFitted(Fitted):
    """What training ends in where it is still a head and text rows: logits = s normalize(head(x)) T'."""

    @abstractmethod
    def as_projected(self) -> Projected:
        """The head and the text rows as they are now."""

    def logits(self, x: Any) -> Array:
        """Scores [m, K] of the head and the text rows as they are now."""
        return self.as_projected().logits(x)

    def to_onnx(self, graph: Graph, x: str) -> str:
        """Add what `logits` computes to a graph."""
        return self.as_projected().to_onnx(graph, x)


class Batches:
    """Pixels of PIL images, made by a few threads while the tower works on those before.

    The view of a picture depends on seed, picture and epoch alone; `preprocess` has the `view_area`.
    """

    def __init__(self, pictures: Sequence[Any], preprocess: Preprocess, seed: int) -> None:
        self.pictures, self.preprocess, self.seed = pictures, preprocess, seed
        self._ahead: dict[tuple[int | None, ...], Any] = {}
        self._pool = ThreadPoolExecutor(2, thread_name_prefix="prolip-views")

    def __enter__(self) -> Batches:
        return self

    def __exit__(self, *_: Any) -> None:
        self._pool.shutdown(cancel_futures=True)

    def view(self, index: int, epoch: int | None) -> Array:
        """Pixels uint8 [S, S, 3]: a random view, or with None for the epoch the centre."""
        picture = self.pictures[index]
        if epoch is None:
            return self.preprocess.centre(picture)
        return self.preprocess.augment(picture, random.Random(f"{self.seed} {index} {epoch}"))

    def prepare(self, indices: list[int], epoch: int | None) -> None:
        """Start on a batch that will be asked for."""
        if indices and (epoch, *indices) not in self._ahead:
            self._ahead[(epoch, *indices)] = [self._pool.submit(self.view, index, epoch) for index in indices]

    def get(self, indices: list[int], epoch: int | None) -> Array:
        """Pixels [B, S, S, 3] of a batch."""
        self.prepare(indices, epoch)
        return np.stack([view.result() for view in self._ahead.pop((epoch, *indices))])

    def of(self, batch: Batch) -> Array:
        """Pixels [B, S, S, 3] of a step's batch, while those of the next are started on."""
        pixels = self.get(batch.images.tolist(), batch.epoch)
        self.prepare(batch.next_images, batch.next_epoch)
        return pixels
