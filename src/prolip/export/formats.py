"""Export an adapted model as a folder for other programs: a table of formats.

Each format says why a model cannot have it, without building anything, and writes its files into a folder.
What was written is loaded and compared with the model; only then does the folder get its name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from prolip.core import Fitted, Head, UsageError
from prolip.core.arrays import Array
from prolip.core.errors import ModelError, Parameter, check_name
from prolip.encoders.base import Encoder
from prolip.encoders.hub import cached_revision
from prolip.export.card import model_card
from prolip.export.checkpoint import load_checkpoint, load_original, require_original, write_checkpoint
from prolip.export.fold import fold
from prolip.export.web import find_runtime, write_page
from prolip.io.writing import check_place, follow, write_bytes, write_folder


@dataclass(frozen=True, eq=False)
class Export:
    """A model to be exported, and how.

    `config` is the configuration of a saved model: classes, templates, temperature, figures of the fit.
    """

    encoder: Encoder
    fitted: Fitted
    config: dict[str, Any]
    rejection: Any = None  # decides which images are out-of-distribution, if the model can
    all_graphs: bool = False  # also those of batches and of image embeddings
    weights: str | None = None  # what ONNX graphs were made of, as a model of transformers or open_clip
    runtime: Path | None = None  # the folder of ONNX Runtime Web

    @property
    def temperature(self) -> float:
        """The calibrated temperature."""
        return float(self.config.get("temperature") or 1.0)

    @property
    def metadata(self) -> dict[str, Any]:
        """What the graphs say about themselves."""
        keys = ("method", "templates", "temperature", "threshold", "licence")
        return {
            "labels": self.config.get("classes"),
            "version": self.config.get("prolip"),
            **{key: self.config.get(key) for key in keys},
            "base_model": self.encoder.name,
            "fingerprint": self.encoder.fingerprint,
        }


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint of transformers or open_clip, with the tuned matrix in it."""

    library: str

    def why_not(
        self, fitted: Fitted, encoder: Encoder, weights: str | None = None, download: bool = True
    ) -> str | None:
        """Say why a model cannot be folded into a checkpoint of this library, or None."""
        try:
            original = require_original(encoder, self.library, weights)
            fold(fitted, encoder)
        except (ModelError, UsageError) as error:
            return str(error)
        if original is None or download:
            return None
        here = original.startswith("hf:") and cached_revision(original[3:], "config.json")
        if not (here and find_spec("torch")):
            return f"it needs the original weights, {original}, on this machine, and torch"
        return None

    def write(self, folder: Path, export: Export) -> None:
        """Write the checkpoint, load it again and compare its embeddings."""
        encoder = export.encoder
        head, text_head, scale = fold(export.fitted, encoder, export.temperature)
        original = load_original(encoder, self.library, export.weights)
        own_head = original.head if head is encoder.head else head
        own_text_head = original.text_head if text_head is encoder.text_head else text_head
        write_checkpoint(original, original.folded(own_head, own_text_head, scale), folder)
        size = encoder.preprocess.size
        pixels = np.random.default_rng(0).integers(0, 256, (2, size, size, 3), np.uint8)
        templates = export.config.get("templates") or ["a photo of a {}."]
        names = [str(name) for name in export.config["classes"]][:8]
        prompts = [template.format(name) for template in templates[:2] for name in names]

        def embeddings(model: Encoder, head: Head, text_head: Head) -> tuple[Array, Array]:
            return head(model.encode(pixels)), text_head(model.encode_text(prompts))

        loaded = load_checkpoint(self.library, folder)
        actual = embeddings(loaded, loaded.head, loaded.text_head)
        expected = embeddings(encoder, head, text_head)
        error = max(
            float(np.abs(a - b).max() / np.abs(b).max()) for a, b in zip(actual, expected, strict=True)
        )
        if not error <= encoder.graph_tolerance:
            raise ModelError(f"the embeddings of the exported model differ by {error:.1e}: it is not written")


class OnnxGraphs:
    """`classifier.onnx`, and with `all_graphs` those of batches and of image embeddings."""

    def why_not(
        self, fitted: Fitted, encoder: Encoder, weights: str | None = None, download: bool = True
    ) -> str | None:
        """Say why a model has no graph, or None."""
        return None if fitted.has_graph else f"{fitted.method} cannot be exported to ONNX"

    def write(self, folder: Path, export: Export) -> None:
        """Write the graphs, run them, and compare their outputs."""
        from prolip.export.onnx import write_graphs

        write_graphs(folder, export)


class WebPage(OnnxGraphs):
    """A page with the classifier inside, which opens from the disk."""

    def write(self, folder: Path, export: Export) -> None:
        """Write the page beside a graph, which is removed if the page has it inside."""
        graph = folder / "classifier.onnx"
        exported = graph.exists()
        if not exported:
            super().write(folder, export)
        inside = write_page(folder, export.config["classes"], export.runtime or find_runtime())
        if inside and not exported:
            graph.unlink()


FORMATS: dict[str, Checkpoint | OnnxGraphs] = {
    "hf": Checkpoint("hf"),
    "open_clip": Checkpoint("open_clip"),
    "onnx": OnnxGraphs(),
    "web": WebPage(),
}


def export(path: Path, model: Export, to: Sequence[str], *, force: bool = False) -> list[str]:
    """Write a model in some of `FORMATS` into one folder; return the names of the files.

    A folder that holds files is an error, unless `force`, which replaces those of the same names.
    """
    check_request(path, to, force)
    for target in to:
        if reason := FORMATS[target].why_not(model.fitted, model.encoder, model.weights):
            raise UsageError(reason)
    written: list[str] = []

    def fill(folder: Path) -> None:
        for name, format_ in FORMATS.items():  # graphs before the page
            if name in to:
                format_.write(folder, model)
        names = {file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()}
        card = model_card({**model.config, "sigmoid": model.encoder.shows_sigmoid}, names, follow(path).name)
        write_bytes(folder / "README.md", card.encode())
        written.extend(sorted({*names, "README.md"}))

    write_folder(path, fill, replace=force)
    return written


def check_request(path: Path, to: Sequence[str], force: bool) -> None:
    """Check formats and folder before a model is loaded: the folder is new or empty, or `force` is set."""
    for target in to:
        check_name("export target", target, FORMATS)
    if not to:
        raise UsageError(f"name a format to export to: {', '.join(FORMATS)}")
    folder = check_place(path)
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{path} is a file: name a folder")
    inside = sorted(file.name for file in folder.iterdir()) if folder.is_dir() else []
    if inside and not force:
        raise UsageError(
            f"{path} holds files ({inside[0]}, ...): name a new folder, or replace "
            "those of the same names with ",
            Parameter("force", True),
        )
