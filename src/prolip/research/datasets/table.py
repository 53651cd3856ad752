"""The paper's datasets: names, folders, sizes and sources, known before any file is read."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from prolip.core.errors import UnknownNameError
from prolip.data.imageset import name_key

SPLITS_FROM = "github.com/KaiyangZhou/CoOp, DATASETS.md"

Kind = Literal["split", "aircraft", "imagenet", "variant"]


@dataclass(frozen=True)
class Dataset:
    """A dataset, as it is known before any of its files is read."""

    name: str  # for commands and files
    title: str  # for tables, as the paper writes it
    folder: str  # below the root
    kind: Kind  # how it is read: a split file, the aircraft's lists, ImageNet, or a variant of it
    images: tuple[str, ...]  # where the images are, below the folder: the first of these that exists
    split_file: str | None  # the file that lists the splits, for the kind "split"
    classes: int
    sizes: dict[str, int]  # images of each split that a complete copy has
    source: str  # where to download it

    def differences(self, sizes: dict[str, int], classes: int) -> list[str]:
        """Return what a copy with these images of each split, and these classes, has less or more."""
        found = [
            f"{sizes.get(split, 0):,} of {size:,} {split} images"
            for split, size in self.sizes.items()
            if sizes.get(split) != size
        ]
        return found + [f"{classes} of {self.classes} classes"] * (classes != self.classes)


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

# The datasets of the paper's few-shot classification and the variants of ImageNet, in the paper's order.
ELEVEN = (
    "imagenet", "sun397", "dtd", "caltech101", "ucf101", "flowers102", "stanford_cars", "fgvc_aircraft",
    "eurosat", "oxford_pets", "food101",
)  # fmt: skip
VARIANTS = ("imagenet_v2", "imagenet_sketch", "imagenet_a", "imagenet_r")


def find_dataset(name: str, root: Path) -> Dataset | None:
    """Find a dataset by name, title or folder, in any spelling; None for a folder of images ROOT/NAME."""
    for dataset in _ALL:
        if name_key(name) in map(name_key, (dataset.name, dataset.title, dataset.folder)):
            return dataset
    if not (root / name).is_dir():
        raise UnknownNameError("dataset", name, DATASETS)
    return None
