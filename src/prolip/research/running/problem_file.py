"""A problem as one safetensors file with a checksum: what workers read, and what travels to a cluster."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from prolip.core import Head, InputError, Text
from prolip.core.arrays import Array
from prolip.io.files import sha256_tensors
from prolip.io.reading import open_regular, parse_json
from prolip.io.writing import write_tensors
from prolip.research.protocols.encoded_dataset import EncodedDataset, EncodedSplit

_PLAIN = ("name", "classes", "scale", "paired", "imagenet_labels", "model", "templates", "paths")
# Of a file that is not what was written, whatever it is; `Unreadable` is a ValueError.
_DAMAGE = (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)
_DTYPES = {"F32": "<f4", "F64": "<f8", "I64": "<i8"}


def model_tensors(head: Head | None, texts: dict[str, Text]) -> dict[str, Array]:
    """The encoder's head, the class rows, and what they were made from."""
    named: dict[str, Array | None] = {}
    if head is not None:
        named |= {"head.weight": head.weight, "head.bias": head.bias}
    for template, text in sorted(texts.items()):
        named |= {f"text.{template}.rows": text.rows, f"text.{template}.features": text.features}
        if text.projection is not None:
            named |= {"text_head.weight": text.projection.weight, "text_head.bias": text.projection.bias}
    return {name: tensor for name, tensor in named.items() if tensor is not None}


def write_problem(problem: EncodedDataset, path: Path) -> None:
    """Write a problem, whole or not at all."""
    tensors = model_tensors(problem.head, problem.texts)
    for name, part in problem.splits.items():
        tensors[f"{name}.x"], tensors[f"{name}.places"] = part.x, part.places
        tensors[f"{name}.labels"] = np.array(part.labels, np.int64)
    projection = next(iter(problem.texts.values())).projection
    about = {name: getattr(problem, name) for name in _PLAIN}
    about |= {"texts": sorted(problem.texts), "splits": list(problem.splits)}
    about["residual"] = problem.head is not None and problem.head.residual
    about["text_residual"] = projection is not None and projection.residual
    text = json.dumps(about)
    write_tensors(path, tensors, {"problem": text, "sha256": _checksum(text, tensors)})


def is_whole(path: Path) -> bool:
    """Whether a file is there and is what was written."""
    try:
        tensors, metadata = _open(_map(path))
        return metadata["sha256"] == _checksum(metadata["problem"], tensors)
    except _DAMAGE:
        return False


def _map(path: Path) -> Array:
    open_regular(path).close()  # a pipe would hang
    return np.memmap(path, np.uint8, "r")


def _checksum(about: str, tensors: dict[str, Array]) -> str:
    return hashlib.sha256(f"{sha256_tensors(tensors.items())} {about}".encode()).hexdigest()


def read_problem(source: str | Array, device: str = "auto") -> EncodedDataset:
    """A problem from its file, or from the file's bytes as an array; towers will run on `device`.

    A file is mapped, so that of many views only those that a unit asks for are read.
    """
    try:
        return _problem(*_open(_map(Path(source)) if isinstance(source, str) else source), device)
    except _DAMAGE as error:
        name = source if isinstance(source, str) else "what the cluster sent"
        raise InputError(f"{name} is damaged: start the run again, and it is made anew") from error


def _problem(tensors: dict[str, Array], metadata: dict[str, str], device: str) -> EncodedDataset:
    about: dict[str, Any] = parse_json(metadata["problem"])
    heads = {
        name: Head(tensors[f"{name}.weight"], tensors.get(f"{name}.bias"), residual)
        for name, residual in (("head", about["residual"]), ("text_head", about["text_residual"]))
        if f"{name}.weight" in tensors  # a black box has none
    }
    plain = {name: about[name] for name in _PLAIN}
    classes, places = tuple(about["classes"]), about["imagenet_labels"]
    plain |= {"classes": classes, "imagenet_labels": None if places is None else tuple(places)}
    plain["templates"] = {name: tuple(prompts) for name, prompts in about["templates"].items()}
    texts = {}
    for name in about["texts"]:
        rows, features = tensors[f"text.{name}.rows"], tensors.get(f"text.{name}.features")
        texts[name] = Text(rows, classes, features, heads.get("text_head"))
    splits = {
        name: EncodedSplit(
            tensors[f"{name}.labels"].tolist(), tensors[f"{name}.x"], tensors[f"{name}.places"]
        )
        for name in about["splits"]
    }
    return EncodedDataset(**plain, head=heads.get("head"), texts=texts, splits=splits, device=device)


def _open(content: Array) -> tuple[dict[str, Array], dict[str, str]]:
    """The tensors of a safetensors file, as views of its bytes, and its metadata.

    The file is the length of a JSON header in 8 bytes, the header, and the tensors at the places it tells.
    """
    start = 8 + int.from_bytes(content[:8].tobytes(), "little")
    header = parse_json(content[8:start].tobytes().decode())
    metadata = header.pop("__metadata__")
    tensors = {}
    for name, entry in header.items():
        first, last = entry["data_offsets"]
        if not 0 <= first <= last <= len(content) - start:
            raise ValueError(f"{name} lies outside of the file")
        values = content[start + first : start + last].view(_DTYPES[entry["dtype"]])
        tensors[name] = values.reshape(entry["shape"])
    return tensors, metadata
