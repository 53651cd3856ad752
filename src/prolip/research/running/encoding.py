"""An encoded dataset as one safetensors file of float16 features, which every process maps into memory."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from prolip.core import Head, InputError, Text
from prolip.core.arrays import Array
from prolip.io.files import cache_dir, portable_name, sha256_tensors
from prolip.io.reading import ReadError
from prolip.io.writing import write_tensors
from prolip.research.protocols.encoded_dataset import EncodedDataset, EncodedSplit
from prolip.research.protocols.run import Run, lists_to_tuples

_PLAIN = ("name", "classes", "scale", "paired", "imagenet_labels", "encoder", "templates", "paths")
_DTYPES = {"F16": "<f2", "F32": "<f4", "F64": "<f8", "I64": "<i8", "U8": "u1"}


class Place(NamedTuple):
    """What one file of features is for."""

    encoder: str
    view_area: float
    dataset: str

    @classmethod
    def of(cls, run: Run) -> list[Place]:
        """Return the files that a run reads: of the dataset it is fitted on, then of its targets."""
        return [cls(run.encoder, run.view_area, name) for name in run.datasets]


def draw_images(dataset: EncodedDataset, run: Run) -> dict[str, list[int]]:
    """Return the images that a run trains and validates on, by split; none if it cannot draw them."""
    try:
        drawn = run.draw(dataset)
    except InputError:
        return {}  # the run will fail with this error, and the others go on
    both = drawn.validation_split == "train"
    train = [*drawn.train, *drawn.validation] if both else drawn.train
    return {"train": train, "val": [] if both else drawn.validation}


@dataclass(frozen=True, eq=False)
class Encoding:
    """An encoded dataset, and what its features were made of."""

    place: Place
    dataset: EncodedDataset
    hashes: dict[str, Array]  # the first bytes of the SHA-256 of each encoded image [m, 8], by split
    origin: str  # the encoder, its preprocessing and its scale, as JSON
    _digests: dict[Any, str] = field(default_factory=dict)

    def digest(self, run: Run) -> str:
        """Return a digest of all that the run reads of this dataset; many runs share a draw."""
        key = run.template, run.protocol, run.validation, run.shots, run.seed
        if key not in self._digests:
            digest = hashlib.sha256(self.test_digest(run.template).encode())
            for split, indices in draw_images(self.dataset, run).items():
                labels = [self.dataset.splits[split].labels[i] for i in indices] if indices else []
                digest.update(f"{split}:{json.dumps([indices, labels])}".encode())
                if indices:
                    digest.update(self.hashes[split][self.dataset.splits[split].rows(indices)].tobytes())
            self._digests[key] = digest.hexdigest()
        return self._digests[key]

    def test_digest(self, template: str) -> str:
        """Return a digest of the encoder, the texts and the test images."""
        if template not in self._digests:
            labels = json.dumps(self.dataset.splits["test"].labels)
            digest = hashlib.sha256(f"{self.origin} {labels}".encode())
            tensors = _model_tensors(self.dataset.head, {template: self.dataset.text(template)})
            digest.update(sha256_tensors(tensors.items()).encode())
            digest.update(self.hashes["test"].tobytes())
            self._digests[template] = digest.hexdigest()
        return self._digests[template]

    def in_cache(self) -> Path:
        """Return its file in the cache folder, which is written if it does not exist."""
        digest = hashlib.sha256(json.dumps([self.test_digest(name) for name in self.dataset.texts]).encode())
        digest.update(json.dumps([self.place, self.dataset.paths]).encode())
        for name, split in self.dataset.splits.items():
            numbers = json.dumps([len(split.x), split.indices.tolist(), split.labels])
            digest.update(f"{name}:{numbers}".encode() + self.hashes[name].tobytes())
        name = f"{portable_name(self.dataset.name)}-{digest.hexdigest()[:24]}.safetensors"
        path = cache_dir() / "bench" / name
        if not path.is_file():
            self.write(path)
        return path

    def write(self, path: Path) -> None:
        """Write it as a safetensors file, atomically."""
        dataset = self.dataset
        tensors = _model_tensors(dataset.head, dataset.texts)
        for name, split in dataset.splits.items():
            tensors[f"{name}.x"], tensors[f"{name}.indices"] = split.x.astype(np.float16), split.indices
            tensors[f"{name}.labels"] = np.array(split.labels, np.int64)
            tensors[f"{name}.hashes"] = self.hashes[name]
        heads = {"head": dataset.head, "text_head": next(iter(dataset.texts.values())).projection}
        config = {
            "dataset": {name: getattr(dataset, name) for name in _PLAIN},
            "texts": sorted(dataset.texts),
            "splits": list(dataset.splits),
            "origin": self.origin,
            "place": self.place,
            "residual": {name: head is not None and head.residual for name, head in heads.items()},
        }
        write_tensors(path, tensors, {"dataset": json.dumps(config)})


def read_encoding(path: Path, device: str = "auto") -> Encoding:
    """Read an encoded dataset from its file; its towers will run on `device`.

    The file is mapped, so that of many views and draws only those that a run needs are read.
    """
    try:
        tensors, metadata = _map_tensors(path)
        return _restore(tensors, json.loads(metadata["dataset"]), device)
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise ReadError(path, f"it is damaged ({error}): remove it and start the run again") from error


def _restore(tensors: dict[str, Array], config: dict[str, Any], device: str) -> Encoding:
    heads = {
        name: Head(tensors[f"{name}.weight"], tensors.get(f"{name}.bias"), residual)
        for name, residual in config["residual"].items()
        if f"{name}.weight" in tensors  # a black box has none
    }
    plain = lists_to_tuples(config["dataset"])
    plain["templates"] = lists_to_tuples(plain["templates"])
    texts = {}
    for name in config["texts"]:
        rows, features = tensors[f"text.{name}.rows"], tensors.get(f"text.{name}.features")
        texts[name] = Text(rows, plain["classes"], features, heads.get("text_head"))
    splits = {}
    for name in config["splits"]:
        labels, x, indices = (tensors[f"{name}.{part}"] for part in ("labels", "x", "indices"))
        splits[name] = EncodedSplit(labels.tolist(), x, indices)
    dataset = EncodedDataset(**plain, head=heads.get("head"), texts=texts, splits=splits, device=device)
    hashes = {name: tensors[f"{name}.hashes"] for name in splits}
    return Encoding(Place(*config["place"]), dataset, hashes, config["origin"])


def _model_tensors(head: Head | None, texts: dict[str, Text]) -> dict[str, Array]:
    """Return the encoder's head, the class rows, and the text features and projection behind them."""
    named: dict[str, Array | None] = {}
    if head is not None:
        named |= {"head.weight": head.weight, "head.bias": head.bias}
    for template, text in sorted(texts.items()):
        named |= {f"text.{template}.rows": text.rows, f"text.{template}.features": text.features}
        if text.projection is not None:
            named |= {"text_head.weight": text.projection.weight, "text_head.bias": text.projection.bias}
    return {name: tensor for name, tensor in named.items() if tensor is not None}


def _map_tensors(path: Path) -> tuple[dict[str, Array], dict[str, str]]:
    """Return the tensors of a safetensors file, mapped into memory, and its metadata.

    The safetensors library copies tensors into memory, and every worker would have its own copy.
    """
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size).decode())
    metadata = header.pop("__metadata__")
    content, tensors = np.memmap(path, np.uint8, "r", 8 + size), {}
    for name, entry in header.items():
        first, last = entry["data_offsets"]
        tensors[name] = content[first:last].view(_DTYPES[entry["dtype"]]).reshape(entry["shape"])
    return tensors, metadata
