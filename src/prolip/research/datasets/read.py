"""Read the paper's datasets, in the layout of CoOp's DATASETS.md, or a folder of images.

    ROOT/oxford_pets/split_zhou_OxfordPets.json      train, val and test: [path, label, class name] each
    ROOT/oxford_pets/images/*.jpg
    ROOT/imagenet/images/{train,val}/n01440764/*.JPEG

Ten of the eleven have train, val and test splits; ImageNet has train, and its validation set is the test
split. The order is that of the split files, and sorted by name for folders of images: few-shot sampling draws
by index, so it depends on the order.

Any folder of images can replace a dataset: `read_dataset("photos", root)` reads ROOT/photos.
"""

from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

from prolip.core.arguments import as_text
from prolip.core.errors import InputError
from prolip.data.folders import MissingSplitError, existing
from prolip.data.imageset import ImageSet, clean_name, name_key
from prolip.data.inputs import read_images
from prolip.data.templates import DEFAULT, templates_for
from prolip.io.reading import read_json, read_text
from prolip.research.datasets.imagenet import NamedSplits, read_imagenet, read_variant
from prolip.research.datasets.table import DATASETS, Dataset, find_dataset


@dataclass(frozen=True)
class Benchmark:
    """The images, labels and prompts of a dataset, or of a folder of images that replaces one."""

    name: str  # as in the table of datasets, or the name of the folder
    title: str
    # "train", "val" and "test", those that exist; with the same labels
    splits: dict[str, ImageSet]
    names: tuple[str, ...]  # of the classes, for prompts; ImageNet has two names twice
    templates: tuple[str, ...]
    # For ImageNet's variants: the label of each class among ImageNet's 1,000.
    imagenet_labels: tuple[int, ...] | None = None
    written_names: tuple[str, ...] = ()  # of the classes, as the dataset's files have them

    def prompts(self, template: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return class names and templates: "own", "photo", "coop" or "clap", as in `Run`."""
        imagenet = self.name.startswith("imagenet")
        if template == "photo" or (template == "coop" and imagenet):
            return self.names, DEFAULT
        if template == "clap":
            return self.written_names or self.names, (*self.templates, *DEFAULT * imagenet)
        return self.names, self.templates


def read_dataset(name: str, root: str | Path) -> Benchmark:
    """Read one of the paper's datasets below `root`, or the images in the folder ROOT/NAME.

    Images are not opened, nor checked for existence: `prolip datasets ROOT` checks.
    """
    base = existing(root)
    if (base / as_text(name, "dataset")).is_dir() and not _is_standard(name, base):
        return read_folder(base / name)
    dataset = find_dataset(name)
    return read_known(dataset, base / dataset.folder)


def read_known(dataset: Dataset, folder: Path) -> Benchmark:
    """Read a dataset of the table from its own folder."""
    if not folder.is_dir():
        raise InputError(f"{folder} is missing: {dataset.title} comes from {dataset.source}")
    splits, names, imagenet_labels = _READERS[dataset.kind](dataset, folder)
    cleaned, templates = tuple(map(clean_name, names)), templates_for(dataset.name)
    return Benchmark(dataset.name, dataset.title, splits, cleaned, templates, imagenet_labels, tuple(names))


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


_READERS = {
    "split": read_split,
    "aircraft": read_aircraft,
    "imagenet": read_imagenet,
    "variant": read_variant,
}


def read_folder(folder: Path) -> Benchmark:
    """Read a folder of images: its train/, val/ and test/; without these, every second image tests."""
    train = read_images(folder, split="train")
    if not all(isinstance(image, Path) for image in train.images):
        raise InputError(f"{folder} is a table with images inside: experiments need image files")
    if train.split is None:
        turns = [count() for _ in train.classes]
        odd = [next(turns[label]) % 2 for label in train.labels]
        splits = {
            split: train.subset([i for i, out in enumerate(odd) if out == (split == "test")])
            for split in ("train", "test")
        }
        if min(train.counts().values()) < 2:
            raise InputError(f"{folder} has no test/ and a class with a single image: add images or a test/")
    else:
        splits = {"train": train, "test": _aligned(read_images(folder, split="test", min_classes=1), train)}
        with suppress(MissingSplitError):
            splits["val"] = _aligned(read_images(folder, split="val", min_classes=1), train)
    return Benchmark(folder.name, folder.name, splits, train.names, DEFAULT)


def _aligned(images: ImageSet, train: ImageSet) -> ImageSet:
    """Return the same images with the labels of the training split."""
    label_of = {name: label for label, name in enumerate(train.classes)}
    if unknown := [name for name in images.classes if name not in label_of]:
        raise InputError(f"class {unknown[0]!r} of {images.root} is not in {train.root}")
    labels = [label_of[images.classes[label]] for label in images.labels]
    return replace(images, labels=labels, classes=train.classes)


def _is_standard(name: str, base: Path) -> bool:
    """Return whether ROOT/NAME is the folder of a dataset of the table, not of the user's own images."""
    known = {name_key(word): d for d in DATASETS.values() for word in (d.name, d.title, d.folder)}
    dataset = known.get(name_key(name))
    if dataset is None or dataset.folder != name:
        return False
    others = ("variants.txt", "classnames.txt", "images", dataset.images[0])
    return any(
        (base / name / mark).exists() for mark in ([dataset.split_file] if dataset.split_file else others)
    )
