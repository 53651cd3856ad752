"""A problem as one safetensors file: what workers read, and what travels to a cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from prolip.core import Head, Text
from prolip.core.arrays import Array
from prolip.core.files import write_tensors
from prolip.evaluate.encoded_dataset import EncodedDataset, EncodedSplit

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
    about = {
        "name": problem.name,
        "classes": problem.classes,
        "scale": problem.scale,
        "residual": problem.head is not None and problem.head.residual,
        "text_residual": projection is not None and projection.residual,
        "paired": problem.paired,
        "imagenet_labels": problem.imagenet_labels,
        "texts": sorted(problem.texts),
        "parts": list(problem.splits),
        "model": problem.model,
        "templates": problem.templates,
        "paths": problem.paths,
    }
    write_tensors(path, tensors, {"problem": json.dumps(about)})


def read_problem(source: str | Array) -> EncodedDataset:
    """A problem from its file, or from the file's bytes as an array.

    A file is mapped, so that of many views only those that a unit asks for are read.
    """
    tensors, metadata = _open(np.memmap(source, np.uint8, "r") if isinstance(source, str) else source)
    about: dict[str, Any] = json.loads(metadata["problem"])
    head = None  # a black box
    if "head.weight" in tensors:
        head = Head(tensors["head.weight"], tensors.get("head.bias"), about["residual"])
    projection = None
    if "text_head.weight" in tensors:
        projection = Head(tensors["text_head.weight"], tensors.get("text_head.bias"), about["text_residual"])
    classes = tuple(about["classes"])
    texts = {
        name: Text(tensors[f"text.{name}.rows"], classes, tensors.get(f"text.{name}.features"), projection)
        for name in about["texts"]
    }
    parts = {
        name: EncodedSplit(
            tensors[f"{name}.labels"].tolist(), tensors[f"{name}.x"], tensors[f"{name}.places"]
        )
        for name in about["parts"]
    }
    places = about["imagenet_labels"]
    return EncodedDataset(
        about["name"],
        classes,
        head,
        about["scale"],
        texts,
        parts,
        about["paired"],
        None if places is None else tuple(places),
        about["model"],
        {name: tuple(templates) for name, templates in about["templates"].items()},
        about["paths"],
    )


def _open(content: Array) -> tuple[dict[str, Array], dict[str, str]]:
    """The tensors of a safetensors file, as views of its bytes, and its metadata.

    The file is the length of a JSON header in 8 bytes, the header, and the tensors at the places it tells.
    """
    start = 8 + int.from_bytes(content[:8].tobytes(), "little")
    header = json.loads(content[8:start].tobytes())
    metadata = header.pop("__metadata__")
    tensors = {}
    for name, entry in header.items():
        first, last = entry["data_offsets"]
        values = content[start + first : start + last].view(_DTYPES[entry["dtype"]])
        tensors[name] = values.reshape(entry["shape"])
    return tensors, metadata
