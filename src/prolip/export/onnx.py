"""ONNX graphs: the two encoders, and a classifier that needs nothing else.

    image.onnx         pixels uint8 [batch, S, S, 3]   ->  image_embeds [batch, D], unit rows
    text.onnx          input_ids int64 [batch, L]      ->  text_embeds [batch, D], unit rows
    classifier.onnx    pixels uint8 [batch, S, S, 3]   ->  probabilities [batch, K]

Pixels are those of the resized and cropped image; scaling and normalisation are in the graph. The metadata of
each file has the classes and how to resize. A graph is a tower and a head: the fitted model adds the head,
the encoder the tower, or torch traces it (`onnx_torch.py`). Every graph is run, and its output compared,
before it is accepted. A method without an embedding of its own has only the classifier.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from prolip.core import Fitted, Projected
from prolip.core.arrays import Array, softmax, unit_rows
from prolip.core.errors import ModelError, first_line
from prolip.encoders.base import Encoder
from prolip.io.onnx_graph import Graph, Values
from prolip.io.onnx_runtime import onnx_runtime
from prolip.io.writing import write_bytes

_PROMPTS = ("a photo of a cat.", "a photo of a very small dog.")


@dataclass(frozen=True, eq=False)
class GraphSpec:
    """A graph to be written."""

    name: str  # of the file
    tower: str  # "image" or "text"
    inputs: dict[str, Array]  # arrays to try it on, by name; two of each
    # Adds what comes after the tower's output to a graph; returns the name of the result.
    follow: Callable[[Graph, str], str]
    output: str  # what the result is called
    expected: Array  # the result on `inputs`

    @property
    def outputs(self) -> Values:
        """The graph's output, as its file declares it."""
        return {self.output: ("float32", ("batch", self.expected.shape[1]))}

    def finish(self, graph: Graph, x: str) -> None:
        """Add all that comes after the tower's output x."""
        graph.node("Identity", self.follow(graph, x), output=self.output)


def write_graphs(
    folder: Path, encoder: Encoder, fitted: Fitted, temperature: float, about: dict[str, Any]
) -> None:
    """Write the graphs that a fitted method supports into an existing folder."""
    encoder = fitted.encoder_for(encoder)  # training may have changed the tower
    about = {**about, "pixels": {"layout": "batch, height, width, RGB", **encoder.preprocess.config()}}
    for spec in _specs(encoder, fitted, temperature):
        path = folder / spec.name
        if encoder.writes_graphs:
            write_bytes(path, _written(encoder, spec, about))
        else:
            from prolip.export.onnx_torch import write_traced

            write_traced(path, encoder, spec, about)
        check_graph(path, spec, encoder.graph_tolerance)


def _specs(encoder: Encoder, fitted: Fitted, temperature: float) -> list[GraphSpec]:
    size = encoder.preprocess.size
    pixels = np.random.default_rng(0).integers(0, 256, (2, size, size, 3), np.uint8)
    x = encoder.encode(pixels)

    def probabilities(graph: Graph, x: str) -> str:
        return graph.node("Softmax", graph.node("Div", fitted.to_onnx(graph, x), temperature), axis=1)

    expected = softmax(fitted.logits(x) / temperature)
    specs = [
        GraphSpec("classifier.onnx", "image", {"pixels": pixels}, probabilities, "probabilities", expected)
    ]
    if isinstance(fitted, Projected):

        def text_embeds(graph: Graph, x: str) -> str:
            return graph.unit_rows(graph.head(encoder.text_head, x))

        tokens = encoder.token_arrays(_PROMPTS)
        rows = unit_rows(encoder.text_head(encoder.encode_text(_PROMPTS)))
        specs += [
            GraphSpec(
                "image.onnx",
                "image",
                {"pixels": pixels},
                fitted.embed_to_onnx,
                "image_embeds",
                fitted.embed(x),
            ),
            GraphSpec("text.onnx", "text", tokens, text_embeds, "text_embeds", rows),
        ]
    return specs


def _written(encoder: Encoder, spec: GraphSpec, about: dict[str, Any]) -> bytes:
    """The graph of an encoder that writes its towers itself."""
    graph = Graph()
    if spec.tower == "image":
        x = encoder.image_to_onnx(graph, "pixels")
    else:
        x = encoder.text_to_onnx(graph, {name: name for name in spec.inputs})
    spec.finish(graph, x)
    inputs: Values = {
        name: (array.dtype.name, ("batch", "length") if array.ndim == 2 else ("batch", *array.shape[1:]))
        for name, array in spec.inputs.items()
    }
    return graph.to_bytes(inputs, spec.outputs, about)


def check_graph(path: Path, spec: GraphSpec, tolerance: float) -> None:
    """Run a graph on batches of one and of three; reject one that computes something else."""
    onnxruntime = onnx_runtime()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        batches = [
            (rows, session.run(None, {name: array[rows] for name, array in spec.inputs.items()})[0])
            for rows in ([0], [1, 0, 1])
        ]
    except Exception as failure:  # onnxruntime's errors have no base of their own
        raise ModelError(f"the graph {path.name} does not run: {first_line(failure)}") from failure
    error = max(float(np.abs(found - spec.expected[rows]).max()) for rows, found in batches)
    if not error <= tolerance:
        raise ModelError(f"the graph {path.name} differs from the model by {error:.1e}: it is not written")
