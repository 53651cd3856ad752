"""Read the ten datasets whose train, val and test splits are listed in files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from prolip.core.errors import InputError
from prolip.data.imageset import ImageSet, NamedSplits
from prolip.io.reading import read_json, read_text

if TYPE_CHECKING:
    from prolip.research.datasets.table import Dataset


def read_split(dataset: Dataset, folder: Path) -> NamedSplits:
    """Read splits and class names from a split_zhou file: {"train": [[path, label, name], ..], ..}."""
    file = folder / str(dataset.split_file)
    listed = _load(file)
    names: dict[int, str] = {}
    for rows in listed.values():
        for _, label, name in rows:
            if names.setdefault(int(label), str(name)) != name:
                raise InputError(f"{file}: label {label} is both {names[int(label)]!r} and {name!r}")
    if sorted(names) != list(range(len(names))):
        raise InputError(f"{file}: labels are not 0 .. {len(names) - 1} without a gap")
    classes = [names[label] for label in range(len(names))]
    images = folder / dataset.images[0]
    splits = {
        split: ImageSet(
            [images / str(p) for p, _, _ in rows], [int(n) for _, n, _ in rows], classes, folder, split
        )
        for split, rows in listed.items()
    }
    return NamedSplits(splits, classes)


def _load(file: Path) -> dict[str, list[Any]]:
    if not file.is_file():
        raise InputError(f"{file} is missing: it lists the images of the train, val and test splits")
    try:
        stored = read_json(file)
        found = {split: list(stored[split]) for split in ("train", "val", "test")}
        for rows in found.values():
            for row in rows:
                path, label, name = row
                if not isinstance(path, str) or not isinstance(label, int) or not isinstance(name, str):
                    raise ValueError(f"an entry is {row!r}, not [path, label, class name]")
                if Path(path).is_absolute() or ".." in Path(path).parts:
                    raise ValueError(f"the path {path!r} is outside the dataset's folder")
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{file} is damaged: {error}; download it again") from error
    return found


def read_aircraft(dataset: Dataset, folder: Path) -> NamedSplits:
    """Read FGVCAircraft: variants.txt has the classes, images_variant_{train,val,test}.txt the images."""
    classes = _lines(folder / "variants.txt")
    label_of = {name: label for label, name in enumerate(classes)}
    splits: dict[str, ImageSet] = {}
    for split in ("train", "val", "test"):
        file = folder / f"images_variant_{split}.txt"
        paths: list[Path] = []
        labels: list[int] = []
        for number, line in enumerate(_lines(file), start=1):
            image, _, name = line.partition(" ")
            if name not in label_of:
                raise InputError(f"{file}, line {number}: {name!r} is not in variants.txt")
            paths.append(folder / dataset.images[0] / f"{image}.jpg")
            labels.append(label_of[name])
        splits[split] = ImageSet(paths, labels, classes, folder, split)
    return NamedSplits(splits, classes)


def _lines(file: Path) -> list[str]:
    if not file.is_file():
        raise InputError(f"{file} is missing: it comes with the dataset")
    return [line.strip() for line in read_text(file).splitlines() if line.strip()]
