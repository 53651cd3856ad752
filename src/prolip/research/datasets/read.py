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

from prolip.core.errors import InputError, as_text
from prolip.data.folders import MissingSplitError, existing
from prolip.data.imageset import ImageSet, clean_name
from prolip.data.inputs import read_images
from prolip.data.templates import DEFAULT, templates_for
from prolip.io.reading import read_json, read_text
from prolip.research.datasets.imagenet import NamedSplits, read_imagenet, read_variant
from prolip.research.datasets.table import Dataset, find_dataset

_SPLITS = ("train", "val", "test")


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

    @property
    def sizes(self) -> dict[str, int]:
        """The number of images of each split."""
        return {split: len(images) for split, images in self.splits.items()}

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
    dataset = find_dataset(as_text(name, "dataset"), base)
    return read_folder(base / name, name) if dataset is None else read_known(dataset, base / dataset.folder)


def read_known(dataset: Dataset, folder: Path) -> Benchmark:
    """Read a dataset of the table from its own folder."""
    if not folder.is_dir():
        raise InputError(f"{folder} is missing: {dataset.title} comes from {dataset.source}")
    splits, names, imagenet_labels = _READERS[dataset.kind](dataset, folder)
    cleaned, templates = tuple(map(clean_name, names)), templates_for(dataset.name)
    return Benchmark(dataset.name, dataset.title, splits, cleaned, templates, imagenet_labels, tuple(names))


def read_split(dataset: Dataset, folder: Path) -> NamedSplits:
    """Read splits and class names from a split_zhou file: {"train": [[path, label, name], ..], ..}."""
    file, images = folder / str(dataset.split_file), folder / dataset.images[0]
    if not file.is_file():
        raise InputError(f"{file} is missing: it lists the images of the train, val and test splits")
    try:
        stored = read_json(file)
        listed = {split: [(images / p, int(k), str(n)) for p, k, n in stored[split]] for split in _SPLITS}
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{file} is damaged: {error}; download it again") from error
    classes = sorted({(label, name) for rows in listed.values() for _, label, name in rows})
    if [label for label, _ in classes] != list(range(len(classes))):
        raise InputError(f"{file}: labels are not 0 .. {len(classes) - 1}, with one name each")
    names = [name for _, name in classes]
    splits = {
        split: ImageSet([path for path, _, _ in rows], [label for _, label, _ in rows], names, folder, split)
        for split, rows in listed.items()
    }
    return NamedSplits(splits, names)


def read_aircraft(dataset: Dataset, folder: Path) -> NamedSplits:
    """Read FGVCAircraft: variants.txt has the classes, images_variant_{train,val,test}.txt the images."""
    classes = _lines(folder / "variants.txt")
    label_of = {name: label for label, name in enumerate(classes)}
    splits: dict[str, ImageSet] = {}
    for split in _SPLITS:
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


def read_folder(folder: Path, name: str) -> Benchmark:
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
    return Benchmark(name, name, splits, train.names, DEFAULT)


def _aligned(images: ImageSet, train: ImageSet) -> ImageSet:
    """Return the same images with the labels of the training split."""
    label_of = {name: label for label, name in enumerate(train.classes)}
    if unknown := [name for name in images.classes if name not in label_of]:
        raise InputError(f"class {unknown[0]!r} of {images.root} is not in {train.root}")
    labels = [label_of[images.classes[label]] for label in images.labels]
    return replace(images, labels=labels, classes=train.classes)
