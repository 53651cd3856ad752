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


def _sizes(train: int, val: int, test: int) -> dict[str, int]:
    return {"train": train, "val": val, "test": test}


# fmt: off
_ALL = (
    Dataset("imagenet", "ImageNet", "imagenet", "imagenet", ("images", "."),
            None, 1000, {"train": 1281167, "test": 50000}, "image-net.org (ILSVRC 2012)"),
    Dataset("sun397", "SUN397", "sun397", "split", ("SUN397",),
            "split_zhou_SUN397.json", 397, _sizes(15880, 3970, 19850),
            "vision.princeton.edu/projects/2010/SUN"),
    Dataset("dtd", "DTD", "dtd", "split", ("images",),
            "split_zhou_DescribableTextures.json", 47, _sizes(2820, 1128, 1692),
            "robots.ox.ac.uk/~vgg/data/dtd"),
    Dataset("caltech101", "Caltech101", "caltech-101", "split", ("101_ObjectCategories",),
            "split_zhou_Caltech101.json", 100, _sizes(4128, 1649, 2465),
            "data.caltech.edu/records/mzrjq-6wc02"),
    Dataset("ucf101", "UCF101", "ucf101", "split", ("UCF-101-midframes",),
            "split_zhou_UCF101.json", 101, _sizes(7639, 1898, 3783),
            "crcv.ucf.edu/data/UCF101.php (the middle frame of each video)"),
    Dataset("flowers102", "Flowers102", "oxford_flowers", "split", ("jpg",),
            "split_zhou_OxfordFlowers.json", 102, _sizes(4093, 1633, 2463),
            "robots.ox.ac.uk/~vgg/data/flowers/102"),
    Dataset("stanford_cars", "StanfordCars", "stanford_cars", "split", (".",),
            "split_zhou_StanfordCars.json", 196, _sizes(6509, 1635, 8041),
            "ai.stanford.edu/~jkrause/cars (that link is dead; mirrors exist)"),
    Dataset("fgvc_aircraft", "FGVCAircraft", "fgvc_aircraft", "aircraft", ("images",),
            None, 100, _sizes(3334, 3333, 3333), "robots.ox.ac.uk/~vgg/data/fgvc-aircraft"),
    Dataset("eurosat", "EuroSAT", "eurosat", "split", ("2750",),
            "split_zhou_EuroSAT.json", 10, _sizes(13500, 5400, 8100), "github.com/phelber/EuroSAT (RGB)"),
    Dataset("oxford_pets", "OxfordPets", "oxford_pets", "split", ("images",),
            "split_zhou_OxfordPets.json", 37, _sizes(2944, 736, 3669), "robots.ox.ac.uk/~vgg/data/pets"),
    Dataset("food101", "Food101", "food-101", "split", ("images",),
            "split_zhou_Food101.json", 101, _sizes(50500, 20200, 30300),
            "vision.ee.ethz.ch/datasets_extra/food-101"),
    Dataset("imagenet_v2", "ImageNet-V2", "imagenetv2", "variant",
            ("imagenetv2-matched-frequency-format-val", "."), None, 1000, {"test": 10000},
            "github.com/modestyachts/ImageNetV2 (matched frequency)"),
    Dataset("imagenet_sketch", "ImageNet-Sketch", "imagenet-sketch", "variant", ("images", "sketch", "."),
            None, 1000, {"test": 50889}, "github.com/HaohanWang/ImageNet-Sketch"),
    Dataset("imagenet_a", "ImageNet-A", "imagenet-adversarial", "variant", ("imagenet-a", "."),
            None, 200, {"test": 7500}, "github.com/hendrycks/natural-adv-examples"),
    Dataset("imagenet_r", "ImageNet-R", "imagenet-rendition", "variant", ("imagenet-r", "."),
            None, 200, {"test": 30000}, "github.com/hendrycks/imagenet-r"),
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
