"""An encoded dataset as one safetensors file with a checksum, which workers map into memory."""

import hashlib
import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from prolip.core import Head, InputError, Text
from prolip.core.arrays import Array
from prolip.io.files import sha256_tensors
from prolip.io.reading import open_regular, parse_json
from prolip.io.writing import write_tensors
from prolip.research.protocols.encoded_dataset import EncodedDataset, EncodedSplit
from prolip.research.protocols.run import Run

_PLAIN = ("name", "classes", "scale", "paired", "imagenet_labels", "encoder", "templates", "paths")
# Errors of a damaged file, whatever the damage.
DAMAGE = (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)
_DTYPES = {"F16": "<f2", "F32": "<f4", "F64": "<f8", "I64": "<i8", "U8": "u1"}


def model_tensors(head: Head | None, texts: dict[str, Text]) -> dict[str, Array]:
    """Return the encoder's head, the class rows, and the text features and projection behind them."""
    named: dict[str, Array | None] = {}
    if head is not None:
        named |= {"head.weight": head.weight, "head.bias": head.bias}
    for template, text in sorted(texts.items()):
        named |= {f"text.{template}.rows": text.rows, f"text.{template}.features": text.features}
        if text.projection is not None:
            named |= {"text_head.weight": text.projection.weight, "text_head.bias": text.projection.bias}
    return {name: tensor for name, tensor in named.items() if tensor is not None}


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
    hashes: dict[str, Array]  # the SHA-256 of each encoded image [m, 32], by split
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
            test, texts = self.dataset.splits["test"], {template: self.dataset.text(template)}
            digest = hashlib.sha256(f"{self.origin} {test.x.dtype} {json.dumps(test.labels)}".encode())
            digest.update(sha256_tensors(model_tensors(self.dataset.head, texts).items()).encode())
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

    def features_only(self) -> "Encoding":
        """Return it in float16, with short hashes, and without encoder and paths, which others lack."""
        splits = {
            name: replace(split, x=split.x.astype(np.float16)) for name, split in self.dataset.splits.items()
        }
        hashes = {name: rows[:, :8] for name, rows in self.hashes.items()}
        return Encoding(replace(self.dataset, splits=splits, encoder="", paths={}), hashes, self.origin)


def describe_encoding(encoding: Encoding) -> tuple[dict[str, Array], dict[str, str]]:
    """Return the tensors and the metadata of an encoded dataset's file."""
    dataset = encoding.dataset
    tensors = model_tensors(dataset.head, dataset.texts)
    for name, split in dataset.splits.items():
        tensors[f"{name}.x"], tensors[f"{name}.indices"] = split.x, split.indices
        tensors[f"{name}.labels"] = np.array(split.labels, np.int64)
        tensors[f"{name}.hashes"] = encoding.hashes[name]
    projection = next(iter(dataset.texts.values())).projection
    config = {name: getattr(dataset, name) for name in _PLAIN}
    config |= {"texts": sorted(dataset.texts), "splits": list(dataset.splits), "origin": encoding.origin}
    config["residual"] = dataset.head is not None and dataset.head.residual
    config["text_residual"] = projection is not None and projection.residual
    text = json.dumps(config)
    return tensors, {"dataset": text, "sha256": checksum(text, tensors)}


def write_encoding(encoding: Encoding, path: Path) -> None:
    """Write an encoded dataset atomically."""
    write_tensors(path, *describe_encoding(encoding))


def read_encoding(path: Path) -> Encoding:
    """Read an encoded dataset from a file that is intact."""
    tensors, metadata = map_tensors(path)
    config = parse_json(metadata["dataset"])
    dataset = _restore(tensors, config, "auto")
    return Encoding(dataset, {name: tensors[f"{name}.hashes"] for name in dataset.splits}, config["origin"])


def is_intact(path: Path) -> bool:
    """Return whether a file exists and matches its checksum."""
    try:
        tensors, metadata = map_tensors(path)
        return metadata["sha256"] == checksum(metadata["dataset"], tensors)
    except DAMAGE:
        return False


def read_encoded(source: str | Array, device: str = "auto") -> EncodedDataset:
    """Read an encoded dataset from its file, or from the file's bytes; its towers will run on `device`.

    A file is mapped, so that of many views only those that a run needs are read.
    """
    try:
        tensors, metadata = map_tensors(Path(source)) if isinstance(source, str) else _views(source)
        return _restore(tensors, parse_json(metadata["dataset"]), device)
    except DAMAGE as error:
        name = source if isinstance(source, str) else "the data from the cluster"
        raise InputError(f"{name} is damaged: start the run again, which writes it again") from error


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


def checksum(config: str, tensors: dict[str, Array]) -> str:
    """Return the SHA-256 of a file's description and tensors."""
    return hashlib.sha256(f"{sha256_tensors(tensors.items())} {config}".encode()).hexdigest()


def map_tensors(path: Path) -> tuple[dict[str, Array], dict[str, str]]:
    """Return the tensors of a file, mapped into memory, and its metadata."""
    open_regular(path).close()  # a pipe would hang
    return _views(np.memmap(path, np.uint8, "r"))


def _views(content: Array) -> tuple[dict[str, Array], dict[str, str]]:
    """Return the tensors of a safetensors file, as views of its bytes, and its metadata.

    The safetensors library copies tensors into memory, and every worker would have its own copy.
    """
    start = 8 + int.from_bytes(content[:8].tobytes(), "little")
    header = parse_json(content[8:start].tobytes().decode())
    metadata = header.pop("__metadata__")
    tensors = {}
    for name, entry in header.items():
        first, last = entry["data_offsets"]
        if not 0 <= first <= last <= len(content) - start:
            raise ValueError(f"{name} is outside of the file")
        values = content[start + first : start + last].view(_DTYPES[entry["dtype"]])
        tensors[name] = values.reshape(entry["shape"])
    return tensors, metadata
