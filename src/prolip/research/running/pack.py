"""Packs of features: what an experiment needs of its datasets by one encoder, to run it anywhere.

    PACK/pack.json                what is in it: encoder, selection, datasets with licences, checksums
    PACK/encoder.safetensors      the heads of the encoder's towers
    PACK/dtd.safetensors          features in float16, labels and texts, deflated
    PACK/splits/dtd.json.xz       the images behind them: [path, label, class name], as in CoOp's split files

Arrays are deflated byte by byte: all first bytes of their elements, then all second ones. Signs and exponents
of features, and two bits of their mantissas, take 5.5 of 8 bits so; the rest of the mantissas is noise, and
stays. A run restores a dataset once, in the cache folder, where workers can map it.

A pack has neither images nor weights of towers. Methods that train through a tower cannot run from it.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import math
import zlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import prolip
from prolip.core import InputError
from prolip.core.arrays import Array
from prolip.core.errors import check_name
from prolip.io.files import cache_dir, portable_name, sha256_file
from prolip.io.reading import RATIO, parse_json, read_json
from prolip.io.writing import write_bytes, write_folder, write_json, write_tensors
from prolip.research.datasets import DATASETS, Benchmark
from prolip.research.protocols.run import lists_to_tuples
from prolip.research.running.encoded_file import (
    DAMAGE,
    Encoding,
    checksum,
    describe_encoding,
    is_intact,
    map_tensors,
    read_encoding,
)
from prolip.research.running.plan import Plan

_KIND = "prolip features"
_ENCODER = "encoder.safetensors"
_HEADS = ("head.", "text_head.")  # beginnings of the names of tensors that all datasets share

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
    "Features of images that belong to others. The licences are those of the images as far as we know them: "
    "read the pages of the datasets before you share a pack. The encoder has a licence of its own."
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
            pack = cls(folder, **lists_to_tuples(found))
            listed = ("shots", "seeds", "templates", "datasets")
            if not all(isinstance(getattr(pack, name), tuple) for name in listed):
                raise TypeError(f"one of {', '.join(listed)} is not a list")
            numbers = [pack.views, *pack.seeds, *(shots for shots in pack.shots if shots is not None)]
            words = [pack.model, pack.encoder, pack.validation, *pack.templates, *pack.datasets]
            if not all(type(each) is int for each in numbers) or not all(type(each) is str for each in words):
                raise TypeError("a number or a name is of another type")
            return pack
        except (LookupError, TypeError, ValueError) as error:
            raise InputError(
                f"{folder / 'pack.json'} does not describe a pack of features: {error}"
            ) from error

    def file(self, dataset: str) -> Path:
        """Return the file of a dataset."""
        check_name(f"dataset of {self.folder}", dataset, self.datasets)
        return self.folder / f"{portable_name(dataset)}.safetensors"

    def read(self, dataset: str) -> tuple[Encoding, Path]:
        """Restore the file of a dataset in the cache folder, if it is not there; return content and path."""
        file = self.file(dataset)
        try:
            packed, metadata = map_tensors(file)
            name = hashlib.sha256(metadata["sha256"].encode()).hexdigest()[:24]
            path = cache_dir() / "bench" / f"{portable_name(dataset)}-{name}.safetensors"
            if not is_intact(path):
                shapes = parse_json(metadata.pop("arrays"))
                heads = map_tensors(self.folder / _ENCODER)[0]
                tensors = {**heads, **_inflate(packed, shapes, RATIO * file.stat().st_size)}
                if checksum(metadata["dataset"], tensors) != metadata["sha256"]:
                    raise ValueError("wrong checksum")
                write_tensors(path, tensors, metadata)
            return read_encoding(path), path
        except (*DAMAGE, zlib.error) as error:
            raise InputError(f"{file} is missing or damaged: copy the pack again") from error

    def check(self, plan: Plan) -> None:
        """Refuse a plan that the pack lacks features for."""
        for name in ("seeds", "shots"):
            has = getattr(self, name)
            if lacking := [value for value in getattr(plan, name) if value not in has]:
                raise InputError(
                    f"{self.folder} has no features for {name} {_list(lacking)}, only for {_list(has)}"
                )
        rules = {run.validation for run in plan.runs} - {"none", self.validation}
        if (plan.experiment.name, plan.experiment.validation) == (self.experiment, self.validation):
            rules = set()  # some of its lines have a rule of their own
        lacks = [
            (plan.views > self.views, f"{plan.views} views", f"{self.views}"),
            (plan.models != (self.model,), f'model="{" ".join(plan.models)}"', self.model),
            (plan.templates != self.templates, "other templates", " ".join(self.templates) or "its own"),
            (bool(rules), f'validation="{" ".join(sorted(rules))}"', self.validation),
        ]
        for wrong, wanted, has in lacks:
            if wrong:
                raise InputError(
                    f"{self.folder} has no features for {wanted}, only for {has}: write a pack with these "
                    f"options, by `prolip bench pack {plan.experiment.name}`"
                )

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
            tensors, metadata = describe_encoding(small)
            heads = {key: tensors.pop(key) for key in list(tensors) if key.startswith(_HEADS)}
            write_tensors(draft / _ENCODER, heads, {"encoder": pack.encoder})  # the same of every dataset
            arrays = {key: [values.dtype.str, values.shape] for key, values in tensors.items()}
            write_tensors(file, _deflate(tensors), {**metadata, "arrays": json.dumps(arrays)})
            listed = {split: _listed(benchmark, split) for split in benchmark.splits}
            text = json.dumps(listed, separators=(",", ":")).encode()
            splits = draft / "splits" / f"{portable_name(name)}.json.xz"
            write_bytes(splits, lzma.compress(text, preset=1))
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


def _list(values: Iterable[int | None]) -> str:
    return ", ".join("full" if value is None else str(value) for value in values)


def _deflate(tensors: dict[str, Array]) -> dict[str, Array]:
    """Return a deflated stream for each byte of the elements of arrays."""
    streams = {}
    for name, values in tensors.items():
        for place, plane in enumerate(values.reshape(-1).view(np.uint8).reshape(-1, values.itemsize).T):
            # Noise has no repetitions.
            deflate = zlib.compressobj(1, memLevel=9, strategy=zlib.Z_HUFFMAN_ONLY)
            content = deflate.compress(np.ascontiguousarray(plane).data) + deflate.flush()
            streams[f"{name}/{place}"] = np.frombuffer(content, np.uint8)
    return streams


def _inflate(streams: dict[str, Array], arrays: dict[str, Any], limit: int) -> dict[str, Array]:
    """Restore arrays from `_deflate`; all of them together have at most `limit` bytes."""
    kinds = {name: (np.dtype(kind), tuple(shape)) for name, (kind, shape) in arrays.items()}
    if any(length < 0 for _, shape in kinds.values() for length in shape):
        raise ValueError("a length is negative")
    if sum(kind.itemsize * math.prod(shape) for kind, shape in kinds.values()) > limit:
        raise ValueError("the arrays are larger than their streams can be")
    tensors = {}
    for name, (kind, shape) in kinds.items():
        found = np.empty((math.prod(shape), kind.itemsize), np.uint8)
        for place in range(kind.itemsize):
            content = zlib.decompressobj().decompress(streams[f"{name}/{place}"].data, max(1, len(found)))
            found[:, place] = np.frombuffer(content, np.uint8)
        tensors[name] = found.view(kind).reshape(shape)
    return tensors


def _listed(benchmark: Benchmark, split: str) -> list[list[Any]]:
    """Return path, label and class name of each image of a split; paths are below the dataset's folder."""
    images = benchmark.splits[split]
    root = f"{Path(images.root).as_posix()}/"  # os.path.relpath would take a minute for ImageNet
    paths = [Path(path).as_posix().removeprefix(root) for path in images.images]
    return [[path, label, benchmark.names[label]] for path, label in zip(paths, images.labels, strict=True)]
