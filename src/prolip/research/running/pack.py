"""Packs of features: what an experiment needs of its datasets by one encoder, to run it anywhere.

    PACK/pack.json                what is in it: encoder, selection, datasets with licences, checksums
    PACK/dtd.safetensors          features in float16, labels, texts, and the head of the encoder
    PACK/splits/dtd.json.gz       the images behind them: [path, label, class name], as in CoOp's split files

A pack has neither images nor weights of towers. Methods that train through a tower cannot run from it.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import prolip
from prolip.core import InputError
from prolip.core.errors import check_name
from prolip.io.files import portable_name, sha256_file
from prolip.io.reading import read_json
from prolip.io.writing import write_bytes, write_folder, write_json
from prolip.research.datasets import DATASETS, Benchmark
from prolip.research.protocols.run import lists_to_tuples
from prolip.research.running.encoded_file import Encoding, read_encoding, write_encoding
from prolip.research.running.plan import Plan

_KIND = "prolip features"

# What the pages of the datasets say on the use of their images.
_LICENCES = {
    "imagenet": "non-commercial research and education (image-net.org, terms of access)",
    "sun397": "none stated",
    "dtd": "for research",
    "caltech101": "CC BY 4.0",
    "ucf101": "none stated",
    "flowers102": "none stated",
    "stanford_cars": "non-commercial research",
    "fgvc_aircraft": "non-commercial research",
    "eurosat": "MIT",
    "oxford_pets": "CC BY-SA 4.0",
    "food101": "images of Foodspotting: scientific fair use",
    "imagenet_v2": "MIT",
    "imagenet_sketch": "MIT",
    "imagenet_a": "MIT",
    "imagenet_r": "MIT",
}
_NOTE = (
    "Features of images that belong to others. The licences are what the pages of the datasets say of the "
    "images; read them before you share a pack. The weights of the encoder have a licence of their own."
)


@dataclass(frozen=True)
class Pack:
    """A folder of features by one encoder, and the part of an experiment that they are for."""

    folder: Path
    experiment: str
    model: str  # the paper's backbone, or the encoder
    encoder: str
    shots: tuple[int | None, ...]
    seeds: tuple[int, ...]
    views: int
    validation: str
    templates: tuple[str, ...]
    datasets: tuple[str, ...]

    @classmethod
    def open(cls, folder: Path) -> Pack:
        """Open a pack. Features are checked when they are read."""
        stored = read_json(folder / "pack.json")
        try:
            if stored["kind"] != _KIND:
                raise ValueError(f"it is {stored['kind']!r}")
            found: dict[str, Any] = {
                name: stored[name] for name in cls.__dataclass_fields__ if name != "folder"
            }
            return cls(folder, **lists_to_tuples(found))
        except (LookupError, TypeError, ValueError) as error:
            raise InputError(
                f"{folder / 'pack.json'} does not describe a pack of features: {error}"
            ) from error

    def file(self, dataset: str) -> Path:
        """Return the file of a dataset."""
        check_name(f"dataset of {self.folder}", dataset, self.datasets)
        return self.folder / f"{portable_name(dataset)}.safetensors"

    def read(self, dataset: str) -> Encoding:
        """Read a dataset, after a check of its checksum."""
        return read_encoding(self.file(dataset))

    def selection(self, experiment: str) -> dict[str, Any]:
        """Return the part of an experiment that it has the features of, as arguments of `make_plan`."""
        names = ["datasets", "shots", "seeds", "views", "templates"]
        names += ["validation"] * (experiment == self.experiment)
        return {"models": (self.model,), **{name: getattr(self, name) for name in names}}


def write_pack(folder: Path, plan: Plan, encodings: Iterable[tuple[str, Encoding, Benchmark]]) -> Pack:
    """Write the features of a plan's datasets, by its one encoder, into a new folder."""
    pack = Pack(
        folder,
        plan.experiment.name,
        plan.models[0],
        plan.runs[0].encoder,
        plan.shots,
        plan.seeds,
        plan.views,
        plan.experiment.validation,
        plan.templates,
        plan.datasets,
    )

    def fill(draft: Path) -> None:
        about = {}
        for _, encoding, benchmark in encodings:
            name, small = encoding.dataset.name, encoding.features_only()
            file = draft / f"{portable_name(name)}.safetensors"
            write_encoding(small, file)
            listed = {split: _listed(benchmark, split) for split in benchmark.splits}
            text = json.dumps(listed, separators=(",", ":")).encode()
            splits = draft / "splits" / f"{portable_name(name)}.json.gz"
            write_bytes(splits, gzip.compress(text, mtime=0))
            known = DATASETS.get(name)
            about[name] = {
                "title": benchmark.title,
                "source": known.source if known else "a folder of images",
                "licence": _LICENCES.get(name, "not known"),
                "classes": len(benchmark.names),
                "images": {split: len(images) for split, images in benchmark.splits.items()},
                "encoded": {split: list(one.x.shape[:2]) for split, one in small.dataset.splits.items()},
                "templates": small.dataset.templates,
                "origin": json.loads(encoding.origin),
                "files": {x.relative_to(draft).as_posix(): sha256_file(x) for x in (file, splits)},
            }
        described = {"kind": _KIND, "prolip": prolip.__version__, "precision": "float16", "note": _NOTE}
        fields = {name: value for name, value in asdict(pack).items() if name != "folder"}
        write_json(draft / "pack.json", {**described, **fields, "about": about})

    write_folder(folder, fill)
    return pack


def _listed(benchmark: Benchmark, split: str) -> list[list[Any]]:
    """Return path, label and class name of each image of a split; paths are below the dataset's folder."""
    images = benchmark.splits[split]
    root = f"{Path(images.root).as_posix()}/"  # os.path.relpath would take a minute for ImageNet
    paths = [Path(path).as_posix().removeprefix(root) for path in images.images]
    return [[path, label, benchmark.names[label]] for path, label in zip(paths, images.labels, strict=True)]
