"""ONNX graphs: a classifier that needs nothing else, and its parts.

    classifier.onnx         image uint8 [height, width, 3]    ->  label_index [], probabilities [K],
                                                                  out_of_distribution []
and with `all_graphs`
    classifier_batch.onnx   pixels uint8 [batch, S, S, 3]     ->  the same of each, [batch, ...]
    image.onnx              pixels uint8 [batch, S, S, 3]     ->  image_embeds [batch, D], unit rows

`image` is an upright RGB image of any size: resizing, cropping and normalisation are in the graph. `pixels`
are images that are resized and cropped already. The metadata of each file has the labels, the threshold of
out-of-distribution images and the version. A graph is a tower and a head: the fitted model adds the head, the
encoder the tower, or torch traces it (`onnx_torch.py`). Every graph is run, and its output compared, before
it is accepted. A method without an embedding of its own has only the classifiers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from PIL import Image

from prolip.core import Head, Projected
from prolip.core.arrays import Array, softmax
from prolip.core.errors import ModelError, first_line
from prolip.encoders.base import Encoder
from prolip.encoders.onnx_tower import OnnxSession
from prolip.encoders.preprocess import Preprocess
from prolip.io.onnx_graph import Graph, Values
from prolip.io.writing import write_bytes

if TYPE_CHECKING:
    from prolip.export.formats import Export


class Rejection(Protocol):
    """What decides which images are out-of-distribution."""

    def to_onnx(self, graph: Graph, x: str, head: Head, best: str) -> str:
        """Add the decision bool [m] for features x [m, width] whose most probable classes are best [m]."""


@dataclass(frozen=True, eq=False)
class GraphSpec:
    """A graph to be written."""

    name: str  # of the file
    example: Array  # an input to try it on: an image [H, W, 3], or pixels [2, S, S, 3]
    follow: Callable[[Graph, str], None]  # adds what comes after the tower's output, named as `outputs`
    outputs: Values
    expected: Array  # the output of floating point on the example

    @property
    def inputs(self) -> Values:
        """The inputs, as the file declares them."""
        if self.example.ndim == 3:
            return {"image": ("uint8", ("height", "width", 3))}
        return {"pixels": ("uint8", ("batch", *self.example.shape[1:]))}


def write_graphs(folder: Path, export: Export) -> None:
    """Write classifier.onnx into an existing folder; with `all_graphs` every graph that the model has."""
    fitted = export.fitted
    encoder = fitted.encoder_for(export.encoder)  # training may have changed the tower
    about = {"pixels": {"layout": "batch, height, width, RGB", **encoder.preprocess.config()}}
    pixels = noise_pixels(encoder)
    image = np.asarray(Image.fromarray(pixels[0]).resize((171, 387), Image.Resampling.BICUBIC))
    specs = [classifier_spec(encoder, export, image)]
    if export.all_graphs:
        specs.append(classifier_spec(encoder, export, pixels))
    if export.all_graphs and isinstance(fitted, Projected):
        specs.append(embedding_spec(encoder, fitted, pixels))
    add_tower: Callable[[Graph], str] = partial(encoder.image_to_onnx, pixels="pixels")
    if not encoder.writes_graphs:
        from prolip.export.onnx_torch import traced_tower

        add_tower = traced_tower(encoder, pixels)
    for spec in specs:
        graph = Graph()
        if spec.example.ndim == 3:
            graph.node("Identity", encoder.preprocess.to_onnx(graph, "image"), output="pixels")
        spec.follow(graph, add_tower(graph))
        try:
            content = graph.to_bytes(spec.inputs, spec.outputs, {**export.metadata, **about})
        except Exception as error:  # protobuf's, which differ between versions, above 2 GB
            raise ModelError(f"{spec.name} cannot be written: {first_line(error)}") from error
        check_graph(content, spec, encoder.graph_tolerance)
        write_bytes(folder / spec.name, content)


def classifier_spec(encoder: Encoder, export: Export, example: Array) -> GraphSpec:
    """Describe the classifier of a whole image, or of a batch of pixels."""
    fitted, temperature, rejection = export.fitted, export.temperature, export.rejection
    whole_image = example.ndim == 3
    pixels = _prepared(encoder.preprocess, example) if whole_image else example

    def follow(graph: Graph, x: str) -> None:
        logits = graph.node("Div", fitted.to_onnx(graph, x), temperature)
        probabilities = graph.node("Softmax", logits, axis=1)
        best = graph.node("ArgMax", probabilities, axis=1, keepdims=0)
        rejected = (
            rejection.to_onnx(graph, x, encoder.head, best)
            if rejection is not None
            else graph.node("Less", best, np.array(0))  # never
        )
        found = {"label_index": best, "probabilities": probabilities, "out_of_distribution": rejected}
        for name, value in found.items():
            if whole_image:
                graph.node("Squeeze", value, np.array([0]), output=name)
            else:
                graph.node("Identity", value, output=name)

    expected = softmax(fitted.logits(encoder.encode(pixels)) / temperature)
    batch: tuple[int | str, ...] = () if whole_image else ("batch",)
    outputs: Values = {
        "label_index": ("int64", batch),
        "probabilities": ("float32", (*batch, expected.shape[1])),
        "out_of_distribution": ("bool", batch),
    }
    name = "classifier.onnx" if whole_image else "classifier_batch.onnx"
    return GraphSpec(name, example, follow, outputs, expected[0] if whole_image else expected)


def embedding_spec(encoder: Encoder, fitted: Projected, pixels: Array) -> GraphSpec:
    """Describe the graph of image embeddings."""

    def follow(graph: Graph, x: str) -> None:
        graph.node("Identity", fitted.embed_to_onnx(graph, x), output="image_embeds")

    expected = fitted.embed(encoder.encode(pixels))
    outputs: Values = {"image_embeds": ("float32", ("batch", expected.shape[1]))}
    return GraphSpec("image.onnx", pixels, follow, outputs, expected)


def noise_pixels(encoder: Encoder) -> Array:
    """Return two images of noise, to compare a graph with its model on.

    In int8 they are equal: the largest activation of a batch sets the scale of all, and CLIP's embeddings
    depend on how activations are rounded.
    """
    size = encoder.preprocess.size
    pixels = np.random.default_rng(0).integers(0, 256, (2, size, size, 3), np.uint8)
    return pixels[[0, 0]] if encoder.precision == "int8" else pixels


def _prepared(preprocess: Preprocess, image: Array) -> Array:
    """Return the pixels [1, S, S, 3] that a graph makes of an image; reject others than Pillow's."""
    graph, size = Graph(), preprocess.size
    graph.node("Identity", preprocess.to_onnx(graph, "image"), output="pixels")
    content = graph.to_bytes(
        {"image": ("uint8", ("height", "width", 3))}, {"pixels": ("uint8", (1, size, size, 3))}
    )
    pixels = run_graph(content, "image", image, "pixels")
    difference = np.abs(pixels[0].astype(int) - preprocess.centre(Image.fromarray(image))).mean()
    if difference > 1:
        raise ModelError(
            f"ONNX Runtime resizes images in another way than Pillow, by {difference:.1f} of 255"
        )
    return pixels


def check_graph(content: bytes, spec: GraphSpec, tolerance: float) -> None:
    """Run a graph on an image, or on batches of one and of three; reject one that computes something else."""
    (output,) = [name for name, (dtype, _) in spec.outputs.items() if dtype == "float32"]
    (name,) = spec.inputs
    rows: Any
    for rows in [...] if spec.example.ndim == 3 else ([0], [1, 0, 1]):
        actual = run_graph(content, name, spec.example[rows], output)
        error = float(np.abs(actual - spec.expected[rows]).max())
        if not error <= tolerance:
            raise ModelError(f"{spec.name} differs from the model by {error:.1e}: it is not written")


def run_graph(content: bytes, name: str, value: Array, output: str) -> Array:
    """Return an output of a graph for the value of its input."""
    try:
        return OnnxSession(content)({name: value}, [output], size=len(value))[0][0]
    except Exception as failure:  # onnxruntime's errors have no base of their own
        raise ModelError(f"a graph does not run: {first_line(failure)}") from failure
