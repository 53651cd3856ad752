"""Read ImageNet and its four variants: a folder per class, named by its WordNet id.

The label of a class is the index of its id among the 1,000 sorted ids; its name has the same index in the
package's list of names. V2 names its folders by label. A and R have 200 of the 1,000 classes, with labels of
their own: `imagenet_labels` maps them to ImageNet's, for classifiers of all 1,000 classes. The 1,000 ids come
from classnames.txt ("n01440764 tench" on each line), or from ImageNet's own folders.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from prolip.core.errors import InputError
from prolip.data.folders import is_image, listing
from prolip.data.imageset import ImageSet
from prolip.encoders.offline import imagenet_names
from prolip.io.reading import read_text

if TYPE_CHECKING:
    from prolip.research.datasets.table import Dataset

_ID = re.compile(r"n\d{8}")


class NamedSplits(NamedTuple):
    """The splits of a dataset and its class names; `imagenet_labels` are for ImageNet's variants."""

    splits: dict[str, ImageSet]
    names: list[str]
    imagenet_labels: tuple[int, ...] | None = None


def read_imagenet(dataset: Dataset, folder: Path) -> NamedSplits:
    """Read train/, and val/ as the test split; both have a folder for each of the same ids."""
    home = next((folder / p for p in dataset.images if (folder / p / "val").is_dir()), None)
    if home is None:
        raise InputError(f"{folder} has neither images/val nor val: ImageNet's images are expected there")
    ids = [f.name for f in _id_folders(home / "val")]
    names = _names(ids, folder)
    splits = {"test": _images(home / "val", ids, "test")}
    if (home / "train").is_dir():
        splits["train"] = _images(home / "train", ids, "train")
    return NamedSplits(splits, names)


def read_variant(dataset: Dataset, folder: Path) -> NamedSplits:
    """Read V2, Sketch, A or R."""
    home = next((folder / p for p in dataset.images if _class_folders(folder / p)), None)
    if home is None:
        raise InputError(f"{folder} has no class folders, nor {' or '.join(dataset.images[:-1])} in it")
    folders = [f.name for f in _class_folders(home)]
    if dataset.name == "imagenet_v2" and all(name.isdecimal() for name in folders):
        labels = sorted(folders, key=int)  # folders sort as text: 0, 1, 10, 100, ...
        names = [imagenet_names()[int(name)] for name in labels]
        return NamedSplits({"test": _images(home, labels, "test")}, names, tuple(map(int, labels)))
    ids, named = known_ids(folder)
    label_of = {wordnet: label for label, wordnet in enumerate(ids)}
    if unknown := [name for name in folders if name not in label_of]:
        raise InputError(f"{home / unknown[0]} is not a class of ImageNet, by classnames.txt")
    imagenet_labels = tuple(label_of[name] for name in folders)
    words = imagenet_names() if len(folders) == len(imagenet_names()) else named
    names = [words[label] for label in imagenet_labels]
    return NamedSplits({"test": _images(home, folders, "test")}, names, imagenet_labels)


def known_ids(folder: Path) -> tuple[list[str], list[str]]:
    """Return ImageNet's sorted ids and their names, from a classnames.txt or from ImageNet's own folders."""
    for file in (folder / "classnames.txt", folder.parent / "imagenet" / "classnames.txt"):
        if file.is_file():
            pairs = [line.split(maxsplit=1) for line in read_text(file).splitlines() if line.strip()]
            if bare := [pair for pair in pairs if len(pair) < 2]:
                raise InputError(
                    f"{file} has a line {bare[0][0]!r} without a name: expected 'n01440764 tench'"
                )
            names = dict(pairs)
            return sorted(names), [names[wordnet].strip() for wordnet in sorted(names)]
    for inside in ("images/val", "images/train", "val", "train"):
        if (folder.parent / "imagenet" / inside).is_dir():
            ids = [f.name for f in _id_folders(folder.parent / "imagenet" / inside)]
            return ids, _names(ids, folder)
    raise InputError(
        f"{folder / 'classnames.txt'} is missing, and there is no imagenet folder beside it: "
        "one of them is needed to map these classes to ImageNet's 1,000"
    )


def _names(ids: list[str], folder: Path) -> list[str]:
    """Return the names of all 1,000 ids, or of a part of them by a classnames.txt."""
    if len(ids) == len(imagenet_names()):
        return list(imagenet_names())
    known, names = known_ids(folder) if (folder / "classnames.txt").is_file() else ([], [])
    by_id = dict(zip(known, names, strict=True))
    if missing := [wordnet for wordnet in ids if wordnet not in by_id]:
        raise InputError(
            f"ImageNet has 1,000 class folders, {folder} has {len(ids)}, and no classnames.txt names "
            f"{missing[0]}"
        )
    return [by_id[wordnet] for wordnet in ids]


def _images(home: Path, folders: list[str], split: str) -> ImageSet:
    paths: list[Path] = []
    labels: list[int] = []
    for label, name in enumerate(folders):
        if not (home / name).is_dir():
            raise InputError(f"{home / name} is missing: every class needs its folder")
        images = [file for file in listing(home / name)[1] if is_image(file)]
        paths += images
        labels += [label] * len(images)
    return ImageSet(paths, labels, list(folders), home, split)


def _id_folders(home: Path) -> list[Path]:
    return [folder for folder in listing(home)[0] if _ID.fullmatch(folder.name)]


def _class_folders(home: Path) -> list[Path]:
    if not home.is_dir():
        return []
    return _id_folders(home) or [folder for folder in listing(home)[0] if folder.name.isdecimal()]
