"""Images with their labels, and how a class's folder name becomes words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from prolip.core.errors import InputError
from prolip.core.files import readable


def clean_name(raw: str) -> str:
    """A class name as a prompt says it: underscores are spaces, and spaces are single.

    Case stays as it is, as in the paper.

    Examples
    --------
    >>> clean_name("Maine_Coon")
    'Maine Coon'
    """
    name = " ".join(raw.replace("_", " ").split())
    if not name:
        raise InputError(f"class {raw!r} has no name left once underscores are spaces: rename it")
    return name


def class_names(raw: Iterable[str]) -> tuple[str, ...]:
    """Clean names, in the same order; no two may be the same, or their prompts would be."""
    seen: dict[str, str] = {}
    for name in raw:
        if readable(name) != name:
            raise InputError(f"the class name {readable(name)} is no UTF-8 text: rename its folder")
        cleaned = clean_name(name)
        if cleaned in seen:
            raise InputError(
                f"classes {seen[cleaned]!r} and {name!r} both read {cleaned!r}: rename or merge them"
            )
        seen[cleaned] = name
    return tuple(seen)


def name_key(name: str) -> str:
    """What two spellings of a name share: case, underscores, hyphens and spaces do not count."""
    return name.lower().replace("_", "").replace("-", "").replace(" ", "")


@dataclass(frozen=True)
class ImageSet:
    """Images, their labels, and the classes that the labels point to."""

    images: list[Any]  # paths of files, or `LazyImage` where an image is part of something larger
    labels: list[int]  # one per image
    classes: list[str]  # names of folders, or labels of a table, as they are written there, sorted
    root: Any = None  # what was read
    split: str | None = None  # "train", "val" or "test", where the source has splits

    def __post_init__(self) -> None:
        if len(self.images) != len(self.labels):
            raise InputError(f"{len(self.images)} images but {len(self.labels)} labels")
        if outside := [label for label in self.labels if not 0 <= label < len(self.classes)]:
            raise InputError(f"label {outside[0]} lies outside 0 .. {len(self.classes) - 1}")

    def __len__(self) -> int:
        return len(self.images)

    @property
    def names(self) -> tuple[str, ...]:
        """The classes as prompts say them."""
        return class_names(self.classes)

    def subset(self, indices: Sequence[int]) -> ImageSet:
        """These images, in this order; the classes stay."""
        return replace(
            self, images=[self.images[i] for i in indices], labels=[self.labels[i] for i in indices]
        )

    def counts(self) -> dict[str, int]:
        """How many images each class has."""
        counts = dict.fromkeys(self.classes, 0)
        for label in self.labels:
            counts[self.classes[label]] += 1
        return counts


class NamedSplits(NamedTuple):
    """What a reader finds of a dataset; `imagenet_labels` are for ImageNet's variants."""

    splits: dict[str, ImageSet]
    names: list[str]
    imagenet_labels: tuple[int, ...] | None = None
