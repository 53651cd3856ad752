"""Export an adapted model as a folder for other programs; it is written atomically, and checked first."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from prolip.core import Fitted, Head, UsageError
from prolip.core.arrays import Array
from prolip.core.errors import ModelError, check_name
from prolip.encoders import is_downloaded
from prolip.encoders.base import Encoder
from prolip.export.card import model_card
from prolip.export.checkpoint import LIBRARIES, load_original, require_original
from prolip.export.fold import Folded, fold
from prolip.export.web import WebOptions, write_page
from prolip.io.onnx_graph import Graph
from prolip.io.writing import check_place, follow, write_bytes, write_folder

TARGETS = (*LIBRARIES, "onnx", "web")


def export(
    path: Path,
    encoder: Encoder,
    fitted: Fitted,
    config: dict[str, Any],
    to: Sequence[str],
    *,
    force: bool = False,
    rejection: Any = None,
    web: WebOptions | None = None,
    weights: str | None = None,
) -> list[str]:
    """Write an adapted model for other programs; return the names of the files.

    A folder that holds files is an error, unless `force`, which replaces those of the same names. `config` is
    the configuration of a saved model: classes, templates, temperature, figures of the fit. `to` are some of
    `TARGETS`; several go into one folder. `rejection` decides which images are out-of-distribution, if the
    model can. `weights` names the model of transformers or open_clip that the ONNX graphs of an encoder were
    made of, for a checkpoint.
    """
    check_request(path, to, force)
    temperature = float(config.get("temperature") or 1.0)
    about = {
        key: config.get(key)
        for key in ("prolip", "method", "classes", "templates", "temperature", "threshold", "licence")
    }
    writers: list[Callable[[Path], None]] = []
    libraries, original = [target for target in LIBRARIES if target in to], encoder
    if libraries:
        folded = fold(fitted, encoder, temperature)
        for library in libraries:
            original = load_original(encoder, library, weights)
            writers.append(_checkpoint_writer(encoder, original, library, folded, config))
    if weights is not None and not libraries:
        raise UsageError('weights are for to="hf" and to="open_clip"')
    if web is not None and "web" not in to:
        raise UsageError('the runtime, a single file and the base URL are for to="web"')
    if "onnx" in to or "web" in to:
        from prolip.export.onnx import write_graphs

        graph = {
            "labels": config.get("classes"), "version": config.get("prolip"),
            **{key: value for key, value in about.items() if key not in ("classes", "prolip")},
            "base_model": encoder.name, "fingerprint": encoder.fingerprint,
        }  # fmt: skip
        whole = (encoder, fitted, temperature, graph, rejection)
        writers.append(lambda folder: write_graphs(folder, *whole, only_classifier="onnx" not in to))
    if "web" in to:
        options = web or WebOptions()
        writers.append(lambda folder: write_page(folder, config["classes"], options))
        if options.single_file and "onnx" not in to:  # the page has it inside
            writers.append(lambda folder: (folder / "classifier.onnx").unlink())
    written: list[str] = []

    def fill(folder: Path) -> None:
        for write in writers:
            write(folder)
        names = {file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()}
        described = {**config, "sigmoid": original.shows_sigmoid}
        write_bytes(folder / "README.md", model_card(described, names, follow(path).name).encode())
        written.extend(sorted({*names, "README.md"}))

    write_folder(path, fill, replace=force)
    return written


def formats(fitted: Fitted, encoder: Encoder) -> tuple[str, ...]:
    """Return the formats of an adapted model; a checkpoint only for the library whose weights are here."""
    found: list[str] = []
    with suppress(UsageError):
        fold(fitted, encoder)
        for library in LIBRARIES:
            with suppress(ModelError, UsageError):
                name = require_original(encoder, library)
                if name is None or (is_downloaded(name) and find_spec("torch")):
                    found.append(library)
    with suppress(UsageError):
        fitted.to_onnx(Graph(), "x")
        found += ["onnx", "web"]
    return tuple(found)


def check_request(path: Path, to: Sequence[str], force: bool) -> None:
    """Check an export request before a model is loaded."""
    for target in to:
        check_name("export target", target, TARGETS)
    if not to:
        raise UsageError(f"name a format to export to: {', '.join(TARGETS)}")
    check_empty(path, force)


def check_formats(fitted: Fitted, encoder: Encoder, to: Sequence[str], weights: str | None = None) -> None:
    """Refuse formats that an adapted model cannot have, before anything is written."""
    for library in set(LIBRARIES).intersection(to):
        require_original(encoder, library, weights)
        fold(fitted, encoder)


def check_empty(path: Path, force: bool) -> None:
    """Check that a folder is new or empty, or `force` is set, and that it can be written."""
    target = check_place(path)
    if target.is_dir():
        inside = sorted(file.name for file in target.iterdir())
        if inside and not force:
            raise UsageError(
                f"{path} holds files ({inside[0]}{', ...' if len(inside) > 1 else ''}): "
                "name a new folder, or pass force=True to replace those of the same names"
            )
    elif target.exists():
        raise UsageError(f"{path} is a file: name a folder")


def _checkpoint_writer(
    encoder: Encoder, original: Encoder, library: str, folded: Folded, config: dict[str, Any]
) -> Callable[[Path], None]:
    """Return a writer of a checkpoint, which loads it again and compares its embeddings.

    `original` is the encoder itself, or the model of a library that its graphs were made of.
    """
    from prolip.export.checkpoint import load_checkpoint, write_checkpoint

    head = original.head if folded.head is encoder.head else folded.head
    text_head = original.text_head if folded.text_head is encoder.text_head else folded.text_head
    changes = original.folded(head, text_head, folded.scale)
    size = encoder.preprocess.size
    pixels = np.random.default_rng(0).integers(0, 256, (2, size, size, 3), np.uint8)
    templates = config.get("templates") or ["a photo of a {}."]
    names = [str(name) for name in config["classes"]][:8]
    prompts = [template.format(name) for template in templates[:2] for name in names]

    def embeddings(model: Encoder, head: Head, text_head: Head) -> tuple[Array, Array]:
        return head(model.encode(pixels)), text_head(model.encode_text(prompts))

    def write(folder: Path) -> None:
        write_checkpoint(original, changes, folder)
        loaded = load_checkpoint(library, folder)
        actual = embeddings(loaded, loaded.head, loaded.text_head)
        expected = embeddings(encoder, folded.head, folded.text_head)
        error = max(
            float(np.abs(a - b).max() / np.abs(b).max()) for a, b in zip(actual, expected, strict=True)
        )
        if not error <= encoder.graph_tolerance:
            raise ModelError(f"the embeddings of the exported model differ by {error:.1e}: it is not written")

    return write
