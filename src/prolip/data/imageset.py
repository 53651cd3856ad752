"""Images with their labels, and how a class's folder name becomes words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from prolip.core.errors import InputError
from prolip.core.names import normalize_name, spelled
from prolip.io.files import readable


class LookAlikeClasses(InputError):  # noqa: N818
    """Two classes whose names differ only in characters that do not show, or in how those are encoded."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(
            f"classes {spelled(first)} and {spelled(second)} have the same name, {normalize_name(first)!r}, "
            "but for what does not show: rename or merge them"
        )
        self.names = first, second


def clean_name(raw: str) -> str:
    """A class name as a prompt says it: normalised, and with spaces for underscores.

    Case stays as it is, as in the paper.

    Examples
    --------
    >>> clean_name("Maine_Coon")
    'Maine Coon'
    """
    if not raw.replace("_", " ").strip():
        raise InputError(f"class {raw!r} has no name left once underscores are spaces: rename it")
    return normalize_name(raw.replace("_", " "))


def class_names(raw: Iterable[str]) -> tuple[str, ...]:
    """Clean names, in the same order; no two may be the same, or their prompts would be."""
    seen: dict[str, str] = {}
    for name in raw:
        if readable(name) != name:
            raise InputError(f"the class name {readable(name)} is not UTF-8 text: rename its folder")
        cleaned = clean_name(name)
        if cleaned in seen:
            raise InputError(
                f"classes {spelled(seen[cleaned])} and {spelled(name)} both read {cleaned!r}: "
                "rename or merge them"
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
    classes: list[str]  # names of folders, or labels of a table, sorted; see `normalize_name`
    root: Any = None  # what was read
    split: str | None = None  # "train", "val" or "test", where the source has splits

    def __post_init__(self) -> None:
        if len(self.images) != len(self.labels):
            raise InputError(f"{len(self.images)} images but {len(self.labels)} labels")
        if outside := [label for label in self.labels if not 0 <= label < len(self.classes)]:
            raise InputError(f"label {outside[0]} lies outside 0 .. {len(self.classes) - 1}")
        object.__setattr__(self, "classes", _distinct(self.classes))

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


def _distinct(raw: Iterable[str]) -> list[str]:
    """Normalised names, in the same order; two that differ in nothing that shows are refused."""
    seen: dict[str, str] = {}
    for name in raw:
        normalized = normalize_name(name)
        if normalized in seen:
            raise LookAlikeClasses(seen[normalized], name)
        seen[normalized] = name
    return list(seen)


class NamedSplits(NamedTuple):
    """What a reader finds of a dataset; `imagenet_labels` are for ImageNet's variants."""

    splits: dict[str, ImageSet]
    names: list[str]
    imagenet_labels: tuple[int, ...] | None = None
