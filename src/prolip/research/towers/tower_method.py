"""Base classes of methods that train through a tower: their task, their method class, and their batches.

Nothing here imports torch before a tower is opened, so that methods can be listed without it.
"""

from __future__ import annotations

import dataclasses
import random
from abc import abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from prolip.core import Fitted, Head, InputError, ModelError, Projected, Task, Text, UsageError
from prolip.core.arrays import Array, as_features, to_numpy, to_torch
from prolip.encoders import Encoder, Preprocess
from prolip.io.environment import require
from prolip.methods.base import FitContext, Method, OptionError, Progress, Shape
from prolip.solvers.adam import Steps

if TYPE_CHECKING:
    from torch import Tensor, nn

    from prolip.encoders.trainable_towers import Towers
    from prolip.research.towers.prompt_tuning import Layout
    from prolip.research.towers.training import Batch, ValidationScore

_IMAGES_AT_ONCE = 32


@dataclass(frozen=True, eq=False)
class TowerTask(Task):
    """A task with the encoder that computed its features.

    Examples
    --------
    >>> task = TowerTask(x, y, text, encoder.head, encoder.scale, encoder=encoder)      # doctest: +SKIP
    >>> methods.create("coop", epochs=5).fit(task)                              # doctest: +SKIP
    """

    encoder: Encoder = dataclasses.field(kw_only=True)
    templates: tuple[str, ...] = ("a photo of a {}.",)  # of the text rows
    # The support images in RGB, in the order of the labels; a sequence may load them on access. Only methods
    # that run the image tower need them.
    images: Sequence[Any] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the classes."""
        return self.text.classes or ()


@dataclass(frozen=True, eq=False)
class TowerFitted(Fitted):
    """logits = s normalize(head(x)) T', the rows T of prompts; or other `scores` of an image.

    `for_text` makes the same for other classes, from their names.
    """

    head: Head
    text: Text
    scale: float
    for_text: Callable[[Text], TowerFitted]
    encoder: Encoder | None = None  # what computes the features, where it is not the base model
    scores: Callable[[Array], Array] | None = None  # logits [m, K] of features
    context: Array | None = None  # learned words [M, De], and where they stand
    layout: Layout | None = None

    def as_projected(self) -> Projected | None:
        """Return the head and the text rows, where these are all there is."""
        if self.scores is not None:
            return None
        return Projected(self.head, self.text, self.scale, settings=self.settings)

    def logits(self, x: Any) -> Array:
        """Compute scores [m, K]."""
        projected = self.as_projected()
        if projected is not None:
            return projected.logits(x)
        assert self.scores is not None
        return self.scores(as_features(x, "features"))

    def with_text(self, text: Any) -> TowerFitted:
        """Use other classes, by their names."""
        if not isinstance(text, Text) or text.classes is None:
            raise InputError(f"{self.method} builds prompts of the classes: give a Text with class names")
        return dataclasses.replace(self.for_text(text), settings=self.settings, report=self.report)

    def encoder_for(self, base: Any) -> Any:
        """Return the encoder that computes the features."""
        return self.encoder or base


class TowerMethod(Method):
    """A method whose gradients go through the text tower or the image tower."""

    trains_tower: ClassVar[bool] = True
    research: ClassVar[bool] = True

    # Options that every subclass has. `view_area` is the minimum share of an image that a random crop shows;
    # None: the method trains on the views of the task's features.
    seed: int
    view_area: float | None

    def prepare(self, task: Task, encoder: Any, templates: Sequence[str], images: Sequence[Any]) -> Task:
        """Return the task with the encoder and the images behind its features."""
        known = {field.name: getattr(task, field.name) for field in dataclasses.fields(task)}
        return TowerTask(**known, templates=tuple(templates), images=images, encoder=encoder)

    def open(self, task: Task, copy: bool = False) -> tuple[TowerTask, Towers]:
        """Return a task with its encoder, and the towers, or raise what is missing."""
        if not isinstance(task, TowerTask):
            raise UsageError(
                f"{self.name} trains through the model itself: it needs a TowerTask with its encoder, "
                "not features alone"
            )
        require("torch", "torch")
        towers = task.encoder.towers(copy)
        if missing := self.needs & ~towers.offers:
            raise ModelError(
                f"{self.name} needs {missing.describe()[0]}, and {task.encoder.name} does not offer that"
            )
        if not task.names:
            raise InputError(f"{self.name} needs the names of the classes: give a Text that has them")
        if (self.reads_images or self.view_area is not None) and len(task.images) != task.n:
            raise InputError(
                f"{self.name} trains on the images themselves: the task has {task.n} labels "
                f"but {len(task.images)} images"
            )
        return task, towers

    def uses_validation(self) -> bool:
        """Return True: a validation set chooses the best epoch."""
        return True

    def train_on_images(
        self,
        task: TowerTask,
        towers: Towers,
        trained: dict[str, nn.Parameter],
        rows: Callable[[], Tensor],
        context: FitContext,
        penalty: Callable[[], Tensor] | None = None,
    ) -> dict[str, Any]:
        """Train parameters on random crops of the images (option `view_area`), and return figures of the run.

        `rows` computes the class rows [K, D] of a step; `penalty` is added to the cross-entropy.
        """
        from torch.nn.functional import cross_entropy, normalize

        from prolip.research.towers.training import without_dropout

        if self.view_area is None:
            raise OptionError("view_area", "a number in (0, 1] where the image tower is trained", None)
        device, validation = task.encoder.device, context.validation
        labels = to_torch(task.y, device)
        preprocess = dataclasses.replace(task.encoder.preprocess, view_area=self.view_area)

        def logits(pixels: Array) -> Tensor:
            embedded = towers.embed_image(preprocess.normalise(to_torch(pixels, device)))
            return task.scale * normalize(embedded.float(), dim=1) @ rows().T

        def validation_accuracy() -> float:
            assert validation is not None
            with without_dropout(towers.model):
                parts = [to_numpy(logits(part)) for part in held_out]
            return accuracy(np.concatenate(parts), validation.y)

        held_out: list[Array] = []
        if validation is not None:
            pixels = [preprocess.centre(image) for image in self.held_out_images(validation)]
            starts = range(0, len(pixels), _IMAGES_AT_ONCE)
            held_out = [np.stack(pixels[start : start + _IMAGES_AT_ONCE]) for start in starts]
        with Batches(task.images, preprocess, self.seed) as batches:

            def loss(batch: Batch) -> Tensor:
                value = cross_entropy(logits(batches.of(batch)), labels[batch.images])
                return value if penalty is None else value + penalty()

            return self.train(
                task, trained, loss, context.progress, validation_accuracy if held_out else None
            )

    def held_out_images(self, validation: Task) -> Sequence[Any]:
        """Return the images of a validation set, for methods that run the image tower."""
        if not isinstance(validation, TowerTask) or len(validation.images) != validation.n:
            raise InputError(f"{self.name} runs the image tower: its validation set needs its images too")
        return validation.images

    @abstractmethod
    def steps(self, task: Task) -> Steps:
        """Return optimizer, steps and rates, for a support set of this size."""

    def train(
        self,
        task: TowerTask,
        trained: dict[str, nn.Parameter],
        loss: Callable[[Batch], Tensor],
        progress: Progress | None = None,
        validation_score: ValidationScore | None = None,
    ) -> dict[str, Any]:
        """Train parameters inside the towers, and return figures of the run."""
        from prolip.research.towers.training import train

        steps, device = self.steps(task), task.encoder.device
        return train(trained, loss, task.n, steps, device, progress, validation_score)

    def count(self, shape: Shape) -> int:
        """Return 0: the tower decides, and the report of a fit has what it trained."""
        return 0


def accuracy(logits: Array, y: Array) -> float:
    """Compute the accuracy of logits [m, K]."""
    return float(np.mean(logits.argmax(axis=1) == y))


class Batches:
    """Pixels of PIL images, prepared by two threads while the tower works on the previous batch.

    The view of an image depends on seed, index and epoch alone; `preprocess` has the `view_area`.
    """

    def __init__(self, images: Sequence[Any], preprocess: Preprocess, seed: int) -> None:
        self.images, self.preprocess, self.seed = images, preprocess, seed
        self._ahead: dict[tuple[int | None, ...], Any] = {}
        self._pool = ThreadPoolExecutor(2, thread_name_prefix="prolip-views")

    def __enter__(self) -> Batches:
        return self

    def __exit__(self, *_: Any) -> None:
        self._pool.shutdown(cancel_futures=True)

    def view(self, index: int, epoch: int | None) -> Array:
        """Return pixels uint8 [S, S, 3]: a random view, or the centre if the epoch is None."""
        image = self.images[index]
        if epoch is None:
            return self.preprocess.centre(image)
        return self.preprocess.augment(image, random.Random(f"{self.seed} {index} {epoch}"))

    def prepare(self, indices: list[int], epoch: int | None) -> None:
        """Start to prepare a batch."""
        if indices and (epoch, *indices) not in self._ahead:
            self._ahead[(epoch, *indices)] = [self._pool.submit(self.view, index, epoch) for index in indices]

    def get(self, indices: list[int], epoch: int | None) -> Array:
        """Return pixels [B, S, S, 3] of a batch."""
        self.prepare(indices, epoch)
        return np.stack([view.result() for view in self._ahead.pop((epoch, *indices))])

    def of(self, batch: Batch) -> Array:
        """Return pixels [B, S, S, 3] of a step's batch, and start to prepare the next one."""
        pixels = self.get(batch.images.tolist(), batch.epoch)
        self.prepare(batch.next_images, batch.next_epoch)
        return pixels


class ImageViews:
    """Embeddings [B, ...] of the images of a step: cached views, one an epoch; or new crops in each epoch.

    `embed` turns features of the encoder into embeddings. Cached views are those of the task, or of its
    images where another encoder computes the features; with a `view_area` they are not used.
    """

    def __init__(
        self,
        task: TowerTask,
        encoder: Encoder,
        embed: Callable[[Array], Array],
        view_area: float | None,
        seed: int,
    ) -> None:
        self.task, self.encoder, self.embed, self.seed = task, encoder, embed, seed
        self._cached: Tensor | None = None
        self._crops: Batches | None = None
        if view_area is not None:
            preprocess = dataclasses.replace(encoder.preprocess, view_area=view_area)
            self._crops = Batches(task.images, preprocess, seed)

    def __enter__(self) -> ImageViews:
        return self

    def __exit__(self, *error: Any) -> None:
        if self._crops is not None:
            self._crops.__exit__(*error)

    def of(self, batch: Batch) -> Tensor:
        """Return the embeddings of a step's images."""
        device = self.encoder.device
        if self._crops is not None:
            return to_torch(self.embed(self.encoder.encode(self._crops.of(batch))), device)
        if self._cached is None:
            own = self.encoder is self.task.encoder
            views = self.embed(self.task.x) if own else self.encode(self.task.images, self.task.views)
            self._cached = to_torch(views, device)
        return self._cached[batch.epoch % len(self._cached), batch.images]

    def encode(self, images: Sequence[Any], views: int) -> Array:
        """Compute embeddings [V, n, ...] of images: the centre, then random views."""
        starts, parts = range(0, len(images), _IMAGES_AT_ONCE), []
        with Batches(images, self.encoder.preprocess, self.seed) as batches:
            for view in range(views):
                for start in starts:
                    chosen = list(range(len(images)))[start : start + _IMAGES_AT_ONCE]
                    parts.append(self.encoder.encode(batches.get(chosen, view or None)))
        return self.embed(np.concatenate(parts).reshape(views, len(images), -1))
