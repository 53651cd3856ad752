"""An encoded dataset as one safetensors file of float16 features, which every process maps into memory.

The file in the cache folder and the file of a pack are the same, but for the places of the images.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from prolip.core import Head, InputError, Text
from prolip.core.arrays import Array
from prolip.io.files import cache_dir, portable_name, sha256_tensors
from prolip.io.reading import JSON_LIMIT, ReadError, open_regular, parse_json
from prolip.io.writing import write_tensors
from prolip.research.protocols.encoded_dataset import EncodedDataset, EncodedSplit
from prolip.research.protocols.run import Run

_PLAIN = ("name", "title", "classes", "scale", "paired", "imagenet_labels", "encoder", "templates", "paths")
_DTYPES = {"F16": "<f2", "F32": "<f4", "F64": "<f8", "I64": "<i8", "U8": "u1"}
_HASH = 8  # bytes of an image's hash that are stored


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

    dataset: EncodedDataset
    hashes: dict[str, Array]  # the beginning of the SHA-256 of each encoded image [m, 8], by split
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
            texts = {template: self.dataset.text(template)}
            digest = hashlib.sha256(
                f"{self.origin} {json.dumps(self.dataset.splits['test'].labels)}".encode()
            )
            digest.update(sha256_tensors(_model_tensors(self.dataset.head, texts).items()).encode())
            digest.update(self.hashes["test"].tobytes())
            self._digests[template] = digest.hexdigest()
        return self._digests[template]

    def content(self) -> str:
        """Return a digest of everything in it."""
        digest = hashlib.sha256(json.dumps([self.test_digest(name) for name in self.dataset.texts]).encode())
        for name, split in self.dataset.splits.items():
            numbers = json.dumps([len(split.x), split.indices.tolist(), split.labels])
            digest.update(f"{name}:{numbers}:{self.dataset.paths}".encode())
            digest.update(self.hashes[name].tobytes())
        return digest.hexdigest()

    def without_images(self) -> Encoding:
        """Return it without the encoder and the places of the images, which others lack."""
        return Encoding(replace(self.dataset, encoder="", paths={}), self.hashes, self.origin)

    def in_cache(self) -> Path:
        """Return its file in the cache folder, which is written if it does not exist."""
        name = f"{portable_name(self.dataset.name)}-{self.content()[:24]}.safetensors"
        path = cache_dir() / "bench" / name
        if not path.is_file():
            write_encoding(self, path)
        return path


def write_encoding(encoding: Encoding, path: Path) -> None:
    """Write an encoded dataset atomically."""
    dataset = encoding.dataset
    tensors = _model_tensors(dataset.head, dataset.texts)
    for name, split in dataset.splits.items():
        tensors[f"{name}.x"], tensors[f"{name}.indices"] = split.x.astype(np.float16), split.indices
        tensors[f"{name}.labels"] = np.array(split.labels, np.int64)
        tensors[f"{name}.hashes"] = encoding.hashes[name][:, :_HASH]
    projection = next(iter(dataset.texts.values())).projection
    config = {name: getattr(dataset, name) for name in _PLAIN}
    config |= {"texts": sorted(dataset.texts), "splits": list(dataset.splits), "origin": encoding.origin}
    config["residual"] = dataset.head is not None and dataset.head.residual
    config["text_residual"] = projection is not None and projection.residual
    write_tensors(path, tensors, {"dataset": json.dumps(config)})


def read_encoding(path: Path, device: str = "auto") -> Encoding:
    """Read an encoded dataset from its file; its towers will run on `device`.

    The file is mapped, so that of many views and draws only those that a run needs are read.
    """
    try:
        tensors, metadata = _map_tensors(path)
        config = parse_json(metadata["dataset"])
        dataset = _restore(tensors, config, device)
        return Encoding(
            dataset, {name: tensors[f"{name}.hashes"] for name in dataset.splits}, config["origin"]
        )
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise ReadError(path, f"it is damaged ({error}): remove it and start the run again") from error


def _restore(tensors: dict[str, Array], config: dict[str, Any], device: str) -> EncodedDataset:
    heads = {
        name: Head(tensors[f"{name}.weight"], tensors.get(f"{name}.bias"), residual)
        for name, residual in (("head", config["residual"]), ("text_head", config["text_residual"]))
        if f"{name}.weight" in tensors  # a black box has none
    }
    classes, labels = tuple(config["classes"]), config["imagenet_labels"]
    plain = {name: config[name] for name in _PLAIN}
    plain |= {"classes": classes, "imagenet_labels": None if labels is None else tuple(labels)}
    plain["templates"] = {name: tuple(prompts) for name, prompts in config["templates"].items()}
    texts = {}
    for name in config["texts"]:
        rows, features = tensors[f"text.{name}.rows"], tensors.get(f"text.{name}.features")
        texts[name] = Text(rows, classes, features, heads.get("text_head"))
    splits = {
        name: EncodedSplit(
            tensors[f"{name}.labels"].tolist(), tensors[f"{name}.x"], tensors[f"{name}.indices"]
        )
        for name in config["splits"]
    }
    return EncodedDataset(**plain, head=heads.get("head"), texts=texts, splits=splits, device=device)


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
    with open_regular(path) as file:
        size = int.from_bytes(file.read(8), "little")
        header = parse_json(file.read(min(size, JSON_LIMIT)).decode())
    metadata = header.pop("__metadata__")
    content, tensors = np.memmap(path, np.uint8, "r", 8 + size), {}
    for name, entry in header.items():
        first, last = entry["data_offsets"]
        tensors[name] = content[first:last].view(_DTYPES[entry["dtype"]]).reshape(entry["shape"])
    return tensors, metadata
