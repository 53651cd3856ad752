"""A run: one method, fitted and tested once under one protocol."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from prolip import methods
from prolip.core import Task, Text
from prolip.data.sampling import sample_base_support, sample_support, sample_train_val
from prolip.research.protocols.encoded_dataset import EncodedDataset


@dataclass(frozen=True)
class Run:
    """Everything that decides a result, except for features and code: one unit of work of an experiment."""

    method: str  # from the registry
    # Where the method has the option "seed" and these do not set it, it is the run's seed.
    options: dict[str, Any] = field(default_factory=dict)
    shots: int | None = 16  # None is all the training data
    seed: int = 1  # of the support set
    views: int = 1  # of each support image
    view_area: float = 0.5  # smallest share of an image that its random views show
    # Prompts. "own": the dataset's; "photo": "a photo of a {}."; "coop": as CoOp's zero-shot, the dataset's,
    # and for ImageNet "a photo of a {}."; "clap": as CLAP's program, the dataset's, and for ImageNet that one
    # beside its seven, while class names keep their underscores.
    template: str = "own"
    scale: float = 1.0  # factor of the encoder's own scale
    grid: tuple[dict[str, Any], ...] = ()  # the options to choose from on a validation set
    protocol: str = "few_shot"
    validation: str = "none"  # the images to choose options on: "none", or one of VALIDATION_RULES
    dataset: str = ""
    encoder: str = ""
    targets: tuple[str, ...] = ()  # further datasets to test on
    # Where the result is shown; they do not decide it:
    entry: str = ""  # the key of an entry of the experiment
    model: str = ""  # the encoder by the paper's name

    @property
    def runs_tower(self) -> bool:
        """Whether it needs the encoder itself, and not only its features."""
        tower = self.protocol.startswith(("test_time_", "timing_"))
        return tower or methods.get(self.method).trains_tower

    @property
    def datasets(self) -> tuple[str, ...]:
        """The datasets that the run reads: the one it is fitted on, then the targets."""
        return (self.dataset, *self.targets)

    def to_json(self) -> str:
        """Return the fields that decide the result; equal runs have equal JSON."""
        return json.dumps({**asdict(self), "entry": "", "model": ""}, sort_keys=True)

    def create(self, **options: Any) -> methods.Method:
        """Create the method with its options."""
        options = {**self.options, **options}
        if "seed" in methods.options(self.method):
            options.setdefault("seed", self.seed)
        return methods.create(self.method, **options)

    def validation_task(self, dataset: EncodedDataset, drawn: Draw) -> Task | None:
        """Return the validation set of a draw, in its plain view; None where the run has none."""
        split = drawn.validation_split
        return None if self.validation == "none" else self.task(dataset, drawn.validation, None, split, 1)

    def task(
        self,
        dataset: EncodedDataset,
        chosen: Sequence[int],
        text: Text | None = None,
        split: str = "train",
        views: int | None = None,
    ) -> Task:
        """Return the images of a draw, the support set; `text` where only some of the classes take part."""
        x, y = dataset.splits[split].take(chosen, views or self.views)
        rows = dataset.text(self.template) if text is None else text
        task = Task(x, y, rows, dataset.head, dataset.scale * self.scale)
        method = self.create()
        if not method.trains_tower:
            return task
        images = dataset.images(split, chosen)
        return method.prepare(task, dataset.load_encoder(), dataset.templates[self.template], images)

    def draw(self, dataset: EncodedDataset) -> Draw:
        """Draw the images to train and validate on.

        This needs labels only: the dataset may have no features yet.
        """
        labels, paired = dataset.splits["train"].labels, dataset.paired
        if self.validation != "none":
            val = dataset.splits.get("val")
            held_out = None if val is None else val.labels
            shots = self.shots or 0
            return Draw(*sample_train_val(labels, held_out, shots, self.seed, paired, self.validation))
        if self.protocol == "base_to_new":
            classes = len(dataset.classes)
            return Draw(sample_base_support(labels, classes, self.shots, self.seed, paired))
        return Draw(sample_support(labels, self.shots, self.seed, paired))


@dataclass(frozen=True)
class Draw:
    """The images of a run, by their indices in the dataset's splits."""

    train: list[int]
    validation: list[int] = field(default_factory=list)
    validation_split: str = "val"


def lists_to_tuples(fields: dict[str, Any]) -> dict[str, Any]:
    """Restore the tuples of a dataclass's fields, which JSON turned into lists."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
