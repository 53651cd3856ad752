"""Options that several commands share.

A group of options is a frozen dataclass whose fields are options. Its decorator, like `@image_input`, adds
them to a command, which gets them as one value.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import click

from prolip.cli.console import detail, printable
from prolip.cli.parameters import PATH, POSITIVE, SEED, DeviceName, argument, flag, option

if TYPE_CHECKING:
    from prolip.api import FewShotClassifier

LABELLED = (
    "a folder per class, a table (.csv .tsv .jsonl .parquet), an archive (.zip .tar .tar.gz) or a dataset"
)

TRAINING = f"Labelled images: {LABELLED}; its train split, if there is one."


def shared(declare: Callable[[Any], Any], default: Any = None) -> Any:
    """Declare a field of a group: the option, and its value where a command does not have it."""
    return field(default=default, metadata={"declare": declare})


def group(name: str, kind: type, without: tuple[str, ...] = ()) -> Callable[[Any], Any]:
    """Return a decorator that adds the options of a dataclass to a command, as one parameter `name`."""
    own = [each for each in fields(kind) if each.name not in without]

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(function)
        def collected(**values: Any) -> None:
            chosen = kind(**{each.name: values.pop(each.name) for each in own})
            function(**values, **{name: chosen})

        for each in reversed(own):
            each.metadata["declare"](collected)
        return collected

    return decorate


device = option(
    "--device",
    type=DeviceName(),
    default="auto",
    help="Where the encoder runs: auto, cpu, cuda, mps; for onnx: models also coreml, directml, openvino.",
)
MODELS = (
    "offline, clip (or another of `prolip models`), onnx:ID-or-PATH, open_clip:ARCH/TAG, "
    "open_clip:local-dir:PATH, hf:ID-or-PATH."
)
base_model = option("--model", default="offline", help=MODELS)
replaced_model = option("--out", "-o", type=PATH, show_default="MODEL", help="Folder to save the model in.")
base = option(
    "--base",
    metavar="NAME",
    show_default="as MODEL names it",
    help="The base model of MODEL; it may be downloaded.",
)
features_store = option(
    "--store", type=PATH, show_default="the user's cache", help="Folder for computed features."
)


@dataclass(frozen=True)
class ImageInput:
    """How images are read and encoded, and where their features are stored."""

    may_skip: ClassVar[float] = 0.1  # the fraction of images that may be unreadable
    device: str = shared(device, "auto")
    store: Path | None = shared(features_store)
    no_store: bool = shared(flag("--no-store", help="Do not write features to the disk."), False)
    strict: bool = shared(flag("--strict", help="Stop at the first image that cannot be read."), False)
    image_column: str | None = shared(
        option("--image-column", show_default="recognised", help="The column of images in a table.")
    )
    label_column: str | None = shared(
        option("--label-column", show_default="recognised", help="The column of labels in a table.")
    )
    images_dir: Path | None = shared(
        option("--images-dir", type=PATH, show_default="its own", help="The folder of a table's files.")
    )

    def settings(self) -> dict[str, Any]:
        """Return the arguments of a classifier."""
        store = False if self.no_store else self.store
        return {"device": self.device, "store": store, **self.reading()}

    def reading(self) -> dict[str, Any]:
        """Return how images are read, as `extract` takes it."""
        return {"skip_bad": 0.0 if self.strict else self.may_skip}

    def labelled(self, source: str, split: str) -> Any:
        """Return labelled images as `fit` and `evaluate` take them; also those of a project of the page."""
        from prolip.app.project import is_project, labelled_images
        from prolip.data import read_images

        if is_project(source):
            return labelled_images(Path(source), test=split == "test")
        tables = self.tables(labelled=True)
        return read_images(source, split, min_classes=1, **tables) if any(tables.values()) else source

    def tables(self, labelled: bool = False) -> dict[str, Any]:
        """Return how tables are read, as `list_images` takes it, or `read_images` if `labelled`."""
        names = ("image_column", "images_dir", *(["label_column"] if labelled else []))
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class UnlabelledInput(ImageInput):
    """Images without labels: any number may be unreadable."""

    may_skip: ClassVar[float] = 1.0


@dataclass(frozen=True)
class SavedModelInput:
    """A saved model, and what is known about its base model."""

    path: Path = shared(argument("path", "MODEL", "A saved model.", type=PATH))
    base: str | None = shared(base)

    def target(self, out: Path | None) -> Path:
        """Return where a changed model is saved: in place of this one, or in another folder."""
        if out is None or out.resolve() == self.path.resolve():
            return self.path
        confirm_replacing(out)
        return out

    def load(self, images: ImageInput) -> FewShotClassifier:
        """Return the model as a classifier, which reads images as `images` says."""
        from prolip.api import FewShotClassifier

        clf = FewShotClassifier.load(self.path, base=self.base, **images.settings())
        detail(f"{self.path}: {clf.method} on {clf.model_.encoder.name}, {len(clf.classes_)} classes")
        return clf


@dataclass(frozen=True)
class TrainingInput:
    """The base model, its prompts, and which of the labelled images are used."""

    model: str = shared(base_model, "offline")
    yes: bool = shared(flag("--yes", help="Download the model, if it is not here, without asking."), False)
    shots: int | None = shared(
        option("--shots", type=POSITIVE, show_default="all", help="Images per class to use.")
    )
    seed: int = shared(
        option("--seed", type=SEED, default=0, help="Random seed for sampling, views and folds."), 0
    )
    template: tuple[str, ...] = shared(
        option("--template", multiple=True, help="Prompt with {} for the class, or a dataset's name."), ()
    )

    def classifier(self, images: ImageInput, **options: Any) -> FewShotClassifier:
        """Return a classifier with these options, not yet fitted."""
        from prolip.api import FewShotClassifier
        from prolip.cli.models import ensure_downloaded

        ensure_downloaded(self.model, self.yes)
        templates: Any = list(self.template) or None
        if len(self.template) == 1 and "{}" not in self.template[0]:
            templates = self.template[0]  # the name of a dataset
        return FewShotClassifier(
            self.model, seed=self.seed, shots=self.shots, templates=templates,
            **images.settings(), **options,
        )  # fmt: skip


image_input = group("images", ImageInput)
unlabelled_input = group("images", UnlabelledInput, without=("label_column",))
saved_model = group("saved", SavedModelInput)
training_input = group("training", TrainingInput)
compared_input = group("training", TrainingInput, without=("model",))


def confirm_replacing(out: Path, advice: str = "name another folder") -> None:
    """Ask before the model in a folder is replaced; without a terminal, refuse."""
    from prolip.core import UsageError
    from prolip.export.saved import CONFIG

    if not (out / CONFIG).is_file():
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(f"{out} has a model: {advice}")
    if not click.confirm(printable(f"{out} has a model: replace it?"), err=True):
        raise UsageError(f"{out} stays as it is: name another folder")
