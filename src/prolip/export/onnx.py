"""ONNX graphs: the two encoders, and a classifier that needs nothing else.

    image.onnx         pixels uint8 [batch, S, S, 3]   ->  image_embeds [batch, D], unit rows
    text.onnx          input_ids int64 [batch, L]      ->  text_embeds [batch, D], unit rows
    classifier.onnx    pixels uint8 [batch, S, S, 3]   ->  probabilities [batch, K]

Pixels are those of the resized and cropped picture; the rest (scaling, normalisation) is inside. What a
program has to know (classes, how to resize) is in each file's metadata. Every graph is run and compared with
torch before it is kept. A method without an embedding of its own has only the classifier.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from prolip.core import Fitted, Projected
from prolip.core.arrays import unit_rows
from prolip.core.errors import ModelError
from prolip.encoders.base import Encoder
from prolip.encoders.hub import first_line, loading, require

TOLERANCE = 1e-4
_ONE_FILE = 1_900_000_000  # bytes: protobuf ends at 2 GB; larger weights go to a file beside


class _Traced(nn.Module):
    """A function of tensors, with the modules that it uses, so that their weights keep their names."""

    def __init__(self, run: Callable[..., Tensor], *owners: Any) -> None:
        super().__init__()
        self.run = run
        self.owners = nn.ModuleList(owner for owner in owners if isinstance(owner, nn.Module))

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.run(*inputs)


def write_graphs(
    folder: Path,
    encoder: Encoder,
    fitted: Fitted,
    temperature: float,
    about: dict[str, Any],
) -> None:
    """Write what a fitted method allows into a folder that is there."""
    size = encoder.preprocess.size
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (2, size, size, 3), dtype=torch.uint8, generator=generator)
    about = {**about, "pixels": {"layout": "batch, height, width, RGB", **encoder.preprocess.config()}}
    owners = (getattr(encoder, "model", None), getattr(encoder, "image_tower", None))

    def probabilities(pixels: Tensor) -> Tensor:
        return (fitted.logits(encoder.trace(pixels)) / temperature).softmax(dim=1)

    written = {"classifier.onnx": (probabilities, owners, {"pixels": pixels}, "probabilities")}
    if isinstance(fitted, Projected):
        tokens = encoder.tokens(["a photo of a cat.", "a photo of a very small dog."])
        text_head, names = encoder.text_head, list(tokens)

        def image(pixels: Tensor) -> Tensor:
            return fitted.embed(encoder.trace(pixels))

        def text(*values: Tensor) -> Tensor:
            return unit_rows(text_head(encoder.trace_text(dict(zip(names, values, strict=True)))))

        text_owners = (getattr(encoder, "model", None), getattr(encoder, "text_tower", None))
        written["image.onnx"] = (image, owners, {"pixels": pixels}, "image_embeds")
        written["text.onnx"] = (text, text_owners, tokens, "text_embeds")  # type: ignore[assignment]
    for name, (run, modules, inputs, output) in written.items():
        write_graph(folder / name, _Traced(run, *modules), inputs, output, about)


def write_graph(
    path: Path, module: nn.Module, inputs: dict[str, Tensor], output: str, about: dict[str, Any]
) -> None:
    """Trace a module, write it, run it, and compare."""
    for needed in ("onnx", "onnxscript", "onnxruntime"):
        require(needed, "onnx")
    batch = torch.export.Dim("batch", min=1)
    shapes = tuple(
        {0: batch, 1: torch.export.Dim.AUTO} if t.ndim == 2 else {0: batch} for t in inputs.values()
    )
    module.eval()
    with loading(f"the graph {path.name}", local=True), torch.no_grad(), warnings.catch_warnings():
        # Two inputs of one batch, and the exporter's own deprecations: nothing that a user could act on.
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            module,
            tuple(inputs.values()),
            dynamo=True,
            verbose=False,
            input_names=list(inputs),
            output_names=[output],
            dynamic_shapes=(shapes,),
        )
        assert program is not None
        for key, value in about.items():
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            program.model.metadata_props[key] = text
    weights = sum(parameter.nbytes for parameter in module.parameters())
    program.save(str(path), external_data=weights > _ONE_FILE)
    _check(path, module, inputs)


@torch.no_grad()
def _check(path: Path, module: nn.Module, inputs: dict[str, Tensor]) -> None:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    for rows in ([0], [1, 0, 1]):
        chosen = {name: tensor[rows] for name, tensor in inputs.items()}
        expected = module(*chosen.values()).cpu().numpy()
        try:
            found = session.run(None, {name: tensor.cpu().numpy() for name, tensor in chosen.items()})[0]
        except Exception as failure:  # onnxruntime's errors have no base of their own
            raise ModelError(f"the graph {path.name} does not run: {first_line(failure)}") from failure
        error = float(np.abs(found - expected).max())
        if not error <= TOLERANCE:
            raise ModelError(
                f"the graph {path.name} gives other numbers than torch (by {error:.1e}); it is not kept"
            )
