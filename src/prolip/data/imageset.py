"""Images with their labels, and class names as prompts use them."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from prolip.core.errors import InputError
from prolip.io.files import readable

NEGATIVES = ("none of these", "background", "none")  # labels of images that show none of the classes


@dataclass(frozen=True, eq=False)
class LazyImage:
    """A member of an archive, a cell of a table or an item of a dataset, read on access."""

    name: str  # in predictions and messages
    # Returns a path, the bytes of a file, a PIL image or an array. Threads may call it at the same time.
    load: Callable[[], Any]

    def __str__(self) -> str:
        return self.name


def normalize_name(raw: str) -> str:
    r"""Return a class name in Unicode's composed form (NFC), trimmed, with single spaces.

    File systems and keyboards differ in these; names that look different stay different.

    Examples
    --------
    >>> normalize_name(" cafe\u0301  noir ")
    'café noir'
    """
    name = " ".join(unicodedata.normalize("NFC", raw).split())
    if not name:
        raise InputError(f"class {raw!a} is empty: rename it")
    return name


def normalize_label(label: Any) -> Any:
    """Normalise a label, if it is text."""
    return normalize_name(label) if isinstance(label, str) else label


def clean_name(raw: str) -> str:
    """Return a class name for prompts: normalised, and with spaces for underscores.

    Case stays as it is, as in the paper.

    Examples
    --------
    >>> clean_name("Maine_Coon")
    'Maine Coon'
    """
    if not raw.replace("_", " ").strip():
        raise InputError(f"class {raw!r} consists of underscores: rename it")
    return normalize_name(raw.replace("_", " "))


def class_names(raw: Iterable[str]) -> tuple[str, ...]:
    """Check that the names differ as prompts use them, and return them in the same order."""
    seen: dict[str, str] = {}
    for name in raw:
        if readable(name) != name:
            raise InputError(f"the class name {readable(name)} is not UTF-8 text: rename its folder")
        cleaned = clean_name(name)
        if cleaned in seen:
            raise InputError(
                f"classes {seen[cleaned]!a} and {name!a} both read {cleaned!r}: rename or merge them"
            )
        seen[cleaned] = name
    return tuple(seen)


def is_negative(label: Any) -> bool:
    """Return whether a label says that an image shows none of the classes.

    Examples
    --------
    >>> is_negative("None_of_these"), is_negative("_none"), is_negative("nonesuch")
    (True, True, False)
    """
    return isinstance(label, str) and label.replace("_", " ").strip().lower() in NEGATIVES


def name_key(name: str) -> str:
    """Return a name without case, underscores, hyphens and spaces, to compare spellings."""
    return name.lower().replace("_", "").replace("-", "").replace(" ", "")


@dataclass(frozen=True)
class ImageSet:
    """Images, their labels, and the classes that the labels point to."""

    images: list[Any]  # paths of files, or `LazyImage` where an image is part of something larger
    labels: list[int]  # one per image
    classes: list[Any]  # names of folders, or labels of a table, sorted; or numbers
    root: Any = None  # the source
    split: str | None = None  # "train", "val" or "test", where the source has splits
    # One per image: images of one group (an animal, a day, a camera) are alike, and stay in one fold.
    groups: tuple[str, ...] | None = None
    negatives: tuple[Any, ...] = ()  # further images, which show none of the classes

    def __post_init__(self) -> None:
        for name, values in (("labels", self.labels), ("groups", self.groups)):
            if values is not None and len(values) != len(self.images):
                raise InputError(f"{len(self.images)} images but {len(values)} {name}")
        classes = [normalize_label(name) for name in self.classes]
        if len(set(classes)) < len(classes):
            same = [
                ascii(raw) for raw, name in zip(self.classes, classes, strict=True) if classes.count(name) > 1
            ]
            raise InputError(f"two classes have the same name: {', '.join(same)}")
        object.__setattr__(self, "classes", classes)

    def __len__(self) -> int:
        return len(self.images)

    @property
    def names(self) -> tuple[str, ...]:
        """The classes as prompts use them."""
        return class_names(map(str, self.classes))

    @property
    def label_names(self) -> list[Any]:
        """The label of each image."""
        return [self.classes[k] for k in self.labels]

    def subset(self, indices: Sequence[int]) -> ImageSet:
        """Return these images, in this order, with the same classes."""
        return replace(
            self,
            images=[self.images[i] for i in indices],
            labels=[self.labels[i] for i in indices],
            groups=None if self.groups is None else tuple(self.groups[i] for i in indices),
        )

    def counts(self) -> dict[Any, int]:
        """Return the number of images of each class."""
        counts = Counter(self.labels)
        return {name: counts[label] for label, name in enumerate(self.classes)}
