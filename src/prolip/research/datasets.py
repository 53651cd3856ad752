"""The paper's datasets, in the layout that few-shot work on CLIP-like models has on disk.

    ROOT/oxford_pets/split_zhou_OxfordPets.json      train, val and test: [path, label, class name] each
    ROOT/oxford_pets/images/*.jpg
    ROOT/imagenet/images/{train,val}/n01440764/*.JPEG

Folders and split files are those of CoOp's DATASETS.md; ten of the eleven have train, val and test, ImageNet
has train and its validation set for a test. Order is as in the split files, and sorted by name for folders of
images: few-shot sampling draws by index, so it depends on it. Nothing is left out by its name.

Any folder of images can stand in for a dataset: `read_dataset("photos", root)` reads ROOT/photos.
"""

from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Literal

from prolip.core.arguments import as_text
from prolip.core.errors import InputError, unknown_name
from prolip.data.files import existing
from prolip.data.folders import MissingSplit
from prolip.data.imageset import ImageSet, clean_name, name_key
from prolip.data.inputs import read_images
from prolip.data.templates import DEFAULT, templates_for

SPLITS_FROM = "github.com/KaiyangZhou/CoOp, DATASETS.md"

Kind = Literal["split", "aircraft", "imagenet", "variant"]


@dataclass(frozen=True)
class Dataset:
    """What is known of a dataset before a file of it is read."""

    name: str  # for commands and files
    title: str  # for tables, as the paper writes it
    folder: str  # below the root
    kind: Kind  # how it is read: a split file, the aircraft's lists, ImageNet, or a variant of it
    # Where images are, below the folder; several where people have it in one of several places.
    images: tuple[str, ...]
    split_file: str | None  # the file that lists the splits, for that kind
    classes: int
    sizes: dict[str, int]  # images of each split that a complete copy has
    source: str  # where it comes from


@dataclass(frozen=True)
class Benchmark:
    """A dataset that was read, or a folder of images that stands in for one."""

    name: str  # as in the table of datasets; of a folder, its name
    title: str
    # "train", "val" and "test", as far as there are any; labels mean the same in all of them
    splits: dict[str, ImageSet]
    names: tuple[str, ...]  # classes as prompts say them. ImageNet has two names twice.
    templates: tuple[str, ...]  # its prompts
    # For ImageNet's variants: the label of each class among ImageNet's 1,000.
    imagenet_labels: tuple[int, ...] | None = None


def _listed(
    name: str,
    title: str,
    folder: str,
    images: str,
    file: str,
    classes: int,
    sizes: tuple[int, ...],
    source: str,
) -> Dataset:
    by_split = dict(zip(("train", "val", "test"), sizes, strict=True))
    split_file = f"split_zhou_{file}.json"
    return Dataset(name, title, folder, "split", (images,), split_file, classes, by_split, source)


def _variant(
    name: str, title: str, folder: str, images: tuple[str, ...], classes: int, size: int, source: str
) -> Dataset:
    return Dataset(name, title, folder, "variant", images, None, classes, {"test": size}, source)


# The eleven of few-shot classification in the paper's order, then ImageNet's variants.
# fmt: off
_ALL = (
    Dataset("imagenet", "ImageNet", "imagenet", "imagenet", ("images", "."), None, 1000,
            {"train": 1281167, "test": 50000}, "image-net.org (ILSVRC 2012)"),
    _listed("sun397", "SUN397", "sun397", "SUN397", "SUN397", 397, (15880, 3970, 19850),
            "vision.princeton.edu/projects/2010/SUN"),
    _listed("dtd", "DTD", "dtd", "images", "DescribableTextures", 47, (2820, 1128, 1692),
            "robots.ox.ac.uk/~vgg/data/dtd"),
    _listed("caltech101", "Caltech101", "caltech-101", "101_ObjectCategories", "Caltech101", 100,
            (4128, 1649, 2465), "data.caltech.edu/records/mzrjq-6wc02"),
    _listed("ucf101", "UCF101", "ucf101", "UCF-101-midframes", "UCF101", 101, (7639, 1898, 3783),
            "crcv.ucf.edu/data/UCF101.php (the middle frame of each video)"),
    _listed("flowers102", "Flowers102", "oxford_flowers", "jpg", "OxfordFlowers", 102, (4093, 1633, 2463),
            "robots.ox.ac.uk/~vgg/data/flowers/102"),
    _listed("stanford_cars", "StanfordCars", "stanford_cars", ".", "StanfordCars", 196, (6509, 1635, 8041),
            "ai.stanford.edu/~jkrause/cars (that link is dead; mirrors exist)"),
    Dataset("fgvc_aircraft", "FGVCAircraft", "fgvc_aircraft", "aircraft", ("images",), None, 100,
            {"train": 3334, "val": 3333, "test": 3333}, "robots.ox.ac.uk/~vgg/data/fgvc-aircraft"),
    _listed("eurosat", "EuroSAT", "eurosat", "2750", "EuroSAT", 10, (13500, 5400, 8100),
            "github.com/phelber/EuroSAT (RGB)"),
    _listed("oxford_pets", "OxfordPets", "oxford_pets", "images", "OxfordPets", 37, (2944, 736, 3669),
            "robots.ox.ac.uk/~vgg/data/pets"),
    _listed("food101", "Food101", "food-101", "images", "Food101", 101, (50500, 20200, 30300),
            "vision.ee.ethz.ch/datasets_extra/food-101"),
    _variant("imagenet_v2", "ImageNet-V2", "imagenetv2", ("imagenetv2-matched-frequency-format-val", "."),
             1000, 10000, "github.com/modestyachts/ImageNetV2 (matched frequency)"),
    _variant("imagenet_sketch", "ImageNet-Sketch", "imagenet-sketch", ("images", "sketch", "."),
             1000, 50889, "github.com/HaohanWang/ImageNet-Sketch"),
    _variant("imagenet_a", "ImageNet-A", "imagenet-adversarial", ("imagenet-a", "."),
             200, 7500, "github.com/hendrycks/natural-adv-examples"),
    _variant("imagenet_r", "ImageNet-R", "imagenet-rendition", ("imagenet-r", "."),
             200, 30000, "github.com/hendrycks/imagenet-r"),
)
# fmt: on

DATASETS: dict[str, Dataset] = {dataset.name: dataset for dataset in _ALL}

ELEVEN = tuple(name for name, dataset in DATASETS.items() if dataset.kind != "variant")
VARIANTS = tuple(name for name, dataset in DATASETS.items() if dataset.kind == "variant")


def find_dataset(name: str) -> Dataset:
    """A dataset by name; case, hyphens and underscores do not matter, and titles will do.

    Examples
    --------
    >>> find_dataset("OxfordPets").classes
    37
    """
    key = name_key(name)
    for dataset in _ALL:
        if key in (name_key(dataset.name), name_key(dataset.title)):
            return dataset
    raise unknown_name("dataset", name, DATASETS)


def read_dataset(name: str, root: str | Path) -> Benchmark:
    """Read one of the paper's datasets below `root`, or the folder ROOT/NAME in its place.

    Images are not opened, and whether each is there is not looked at: `prolip datasets ROOT` does that.
    """
    base = existing(root)
    if (base / as_text(name, "dataset")).is_dir() and not _is_standard(name, base):
        return read_stand_in(base / name)
    dataset = find_dataset(name)
    return read_known(dataset, base / dataset.folder)


def read_known(dataset: Dataset, folder: Path) -> Benchmark:
    """Read a dataset of the table from its own folder."""
    from prolip.research import datasets_imagenet, datasets_split

    readers = {
        "split": datasets_split.read_split,
        "aircraft": datasets_split.read_aircraft,
        "imagenet": datasets_imagenet.read_imagenet,
        "variant": datasets_imagenet.read_variant,
    }
    if not folder.is_dir():
        raise InputError(f"{dataset.title} is not there: {folder} is missing; it comes from {dataset.source}")
    splits, names, imagenet_labels = readers[dataset.kind](dataset, folder)
    cleaned = tuple(map(clean_name, names))
    templates = templates_for(dataset.name)
    return Benchmark(dataset.name, dataset.title, splits, cleaned, templates, imagenet_labels)


def read_stand_in(folder: Path) -> Benchmark:
    """A folder of images as a dataset: its train/, val/ and test/; without them, every second image tests."""
    train = read_images(folder, split="train")
    if not all(isinstance(image, Path) for image in train.images):
        raise InputError(f"{folder} has its images inside a table: experiments need them as files")
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
        with suppress(MissingSplit):
            splits["val"] = _aligned(read_images(folder, split="val", min_classes=1), train)
    return Benchmark(folder.name, folder.name, splits, train.names, DEFAULT)


def _aligned(images: ImageSet, train: ImageSet) -> ImageSet:
    """The same images with the labels of the training split."""
    label_of = {name: label for label, name in enumerate(train.classes)}
    if unknown := [name for name in images.classes if name not in label_of]:
        raise InputError(f"class {unknown[0]!r} of {images.root} is not in {train.root}")
    labels = [label_of[images.classes[label]] for label in images.labels]
    return replace(images, labels=labels, classes=train.classes)


def _is_standard(name: str, base: Path) -> bool:
    """Whether ROOT/NAME is the folder of a dataset that is known, not somebody's own images."""
    known = {name_key(word): d for d in _ALL for word in (d.name, d.title, d.folder)}
    dataset = known.get(name_key(name))
    if dataset is None or dataset.folder != name:
        return False
    marks = (
        [dataset.split_file]
        if dataset.split_file
        else ["variants.txt", "classnames.txt", "images", *dataset.images[:1]]
    )
    return any((base / name / mark).exists() for mark in marks)
