"""Base classes of methods that train through a tower: their task, their fitted model and their method class.

Nothing here imports torch before a tower is opened, so that methods can be listed without it.
"""

from __future__ import annotations

import dataclasses
import random
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from prolip.core import Fitted, Head, InputError, ModelError, Projected, Task, Text, UsageError
from prolip.core.arrays import Array, as_features, to_torch
from prolip.encoders import Encoder
from prolip.io.environment import require
from prolip.methods.base import Method, Progress, Shape
from prolip.solvers.adam import Steps

if TYPE_CHECKING:
    from torch import Tensor, nn

    from prolip.encoders.trainable_towers import Towers
    from prolip.research.towers.prompt_tuning import Layout
    from prolip.research.towers.training import Batch, ValidationScore


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
        if self.scores is not None:
            return self.scores(as_features(x, "features"))
        return Projected(self.head, self.text, self.scale).logits(x)

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

    def train_on_images(
        self,
        task: TowerTask,
        towers: Towers,
        trained: dict[str, nn.Parameter],
        rows: Callable[[], Tensor],
        progress: Progress | None,
        penalty: Callable[[], Tensor] | None = None,
    ) -> dict[str, Any]:
        """Train parameters on random crops of the images (option `view_area`), and return figures of the run.

        `rows` computes the class rows [K, D] of a step; `penalty` is added to the cross-entropy.
        """
        from torch.nn.functional import cross_entropy, normalize

        labels, preprocess = to_torch(task.y, task.encoder.device), task.encoder.preprocess

        def loss(batch: Batch) -> Tensor:
            pixels = preprocess.normalise(to_torch(batch.pixels, task.encoder.device))
            embedded = normalize(towers.embed_image(pixels).float(), dim=1)
            value = cross_entropy(task.scale * embedded @ rows().T, labels[batch.images])
            return value if penalty is None else value + penalty()

        return self.train(task, trained, loss, progress)

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

        steps, device, crop = self.steps(task), task.encoder.device, None
        if self.view_area is not None:
            preprocess = dataclasses.replace(task.encoder.preprocess, view_area=self.view_area)

            def crop(index: int, epoch: int) -> Array:
                return preprocess.augment(task.images[index], random.Random(f"{self.seed} {index} {epoch}"))

        return train(trained, loss, task.n, steps, device, crop, progress, validation_score)

    def count(self, shape: Shape) -> int:
        """Return 0: the tower decides, and the report of a fit has what it trained."""
        return 0
