"""ONNX graphs: a classifier that needs nothing else, and the two encoders.

    classifier.onnx         image uint8 [height, width, 3]    ->  label_index [], probabilities [K],
                                                                  out_of_distribution []
and with `all_graphs`
    classifier_batch.onnx   pixels uint8 [batch, S, S, 3]     ->  the same of each, [batch, ...]
    image.onnx              pixels uint8 [batch, S, S, 3]     ->  image_embeds [batch, D], unit rows
    text.onnx               input_ids int64 [batch, L]        ->  text_embeds [batch, D], unit rows

`image` is an upright RGB image of any size: resizing, cropping and normalisation are in the graph. `pixels`
are images that are resized and cropped already. The metadata of each file has the labels, the threshold of
out-of-distribution images and the version. A graph is a tower and a head: the fitted model adds the head, the
encoder the tower, or torch traces it (`onnx_torch.py`). Every graph is run, and its output compared, before
it is accepted. A method without an embedding of its own has only the classifiers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from PIL import Image

from prolip.core import Fitted, Head, Projected
from prolip.core.arrays import Array, softmax, unit_rows
from prolip.core.errors import ModelError, first_line
from prolip.encoders.base import Encoder
from prolip.encoders.preprocess import Preprocess
from prolip.io.onnx_graph import Graph, Values
from prolip.io.onnx_runtime import onnx_runtime
from prolip.io.writing import write_bytes

PROMPTS = ("a photo of a cat.", "a photo of a very small dog.")


class Rejection(Protocol):
    """What decides which images are out-of-distribution."""

    def to_onnx(self, graph: Graph, x: str, head: Head, best: str) -> str:
        """Add the decision bool [m] for features x [m, width] whose most probable classes are best [m]."""


@dataclass(frozen=True, eq=False)
class GraphSpec:
    """A graph to be written."""

    name: str  # of the file
    tower: str  # "image" or "text"
    inputs: dict[str, Array]  # arrays to try it on, by name: two of each, or one image
    # Adds what comes after the tower's output, under the names of `outputs`.
    follow: Callable[[Graph, str], None]
    outputs: Values
    expected: Array  # the output of floating point on `inputs`
    tolerance: float  # its largest difference

    @property
    def is_whole_image(self) -> bool:
        """Whether the input is one image of any size."""
        return "image" in self.inputs

    def input_values(self) -> Values:
        """Return the inputs, as the file declares them."""
        if self.is_whole_image:
            return {"image": ("uint8", ("height", "width", 3))}
        return {
            name: (array.dtype.name, ("batch", "length") if array.ndim == 2 else ("batch", *array.shape[1:]))
            for name, array in self.inputs.items()
        }


def write_graphs(
    folder: Path,
    encoder: Encoder,
    fitted: Fitted,
    temperature: float,
    about: dict[str, Any],
    rejection: Rejection | None = None,
    *,
    all_graphs: bool = False,
) -> None:
    """Write classifier.onnx into an existing folder; with `all_graphs` every graph that the model has."""
    encoder = fitted.encoder_for(encoder)  # training may have changed the tower
    about = {**about, "pixels": {"layout": "batch, height, width, RGB", **encoder.preprocess.config()}}
    specs = [
        classifier_spec(encoder, fitted, temperature, rejection, whole_image)
        for whole_image in ([True, False] if all_graphs else [True])
    ]
    if isinstance(fitted, Projected) and all_graphs:
        specs += _embedding_specs(encoder, fitted)
    with ExitStack() as towers:
        add_tower = _tower_writer(folder, encoder, specs, towers)
        for spec in specs:
            write_bytes(folder / spec.name, _written(encoder, spec, add_tower, about))
            check_graph(folder / spec.name, spec)


def classifier_spec(
    encoder: Encoder, fitted: Fitted, temperature: float, rejection: Rejection | None, whole_image: bool
) -> GraphSpec:
    """Describe the classifier of a whole image, or of a batch of pixels."""
    pixels = noise_pixels(encoder)
    image = np.asarray(Image.fromarray(pixels[0]).resize((171, 387), Image.Resampling.BICUBIC))
    if whole_image:
        pixels = _prepared(encoder.preprocess, image)

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
    return GraphSpec(
        "classifier.onnx" if whole_image else "classifier_batch.onnx",
        "image",
        {"image": image} if whole_image else {"pixels": pixels},
        follow,
        {
            "label_index": ("int64", batch),
            "probabilities": ("float32", (*batch, expected.shape[1])),
            "out_of_distribution": ("bool", batch),
        },
        expected[0] if whole_image else expected,
        encoder.graph_tolerance,
    )


def _embedding_specs(encoder: Encoder, fitted: Projected) -> list[GraphSpec]:
    pixels = noise_pixels(encoder)

    def image_embeds(graph: Graph, x: str) -> None:
        graph.node("Identity", fitted.embed_to_onnx(graph, x), output="image_embeds")

    def text_embeds(graph: Graph, x: str) -> None:
        graph.node("Identity", graph.unit_rows(graph.head(encoder.text_head, x)), output="text_embeds")

    def spec(tower: str, inputs: dict[str, Array], follow: Any, expected: Array) -> GraphSpec:
        outputs: Values = {f"{tower}_embeds": ("float32", ("batch", expected.shape[1]))}
        return GraphSpec(f"{tower}.onnx", tower, inputs, follow, outputs, expected, encoder.graph_tolerance)

    specs = [spec("image", {"pixels": pixels}, image_embeds, fitted.embed(encoder.encode(pixels)))]
    if encoder.has_text_graph:
        rows = unit_rows(encoder.text_head(encoder.encode_text(PROMPTS)))
        specs.append(spec("text", encoder.token_arrays(PROMPTS), text_embeds, rows))
    return specs


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
    ((pixels,),) = run_graph(content, [{"image": image}], ["pixels"])
    difference = np.abs(pixels[0].astype(int) - preprocess.centre(Image.fromarray(image))).mean()
    if difference > 1:
        raise ModelError(
            f"ONNX Runtime resizes images in another way than Pillow, by {difference:.1f} of 255"
        )
    return pixels


def _tower_writer(
    folder: Path, encoder: Encoder, specs: list[GraphSpec], towers: ExitStack
) -> Callable[[Graph, str], str]:
    """Return a function that adds a tower to a graph, and returns the name of the tower's output.

    Its inputs have their names in `GraphSpec.inputs`, and an image is `pixels`.
    """
    if not encoder.writes_graphs:
        from prolip.export.onnx_torch import traced_towers

        inputs = {
            spec.tower: {"pixels": noise_pixels(encoder)} if spec.tower == "image" else spec.inputs
            for spec in specs
        }
        return towers.enter_context(traced_towers(folder, encoder, inputs))

    def add(graph: Graph, tower: str) -> str:
        if tower == "image":
            return encoder.image_to_onnx(graph, "pixels")
        names = next(spec.inputs for spec in specs if spec.tower == "text")
        return encoder.text_to_onnx(graph, {name: name for name in names})

    return add


def _written(
    encoder: Encoder, spec: GraphSpec, add_tower: Callable[[Graph, str], str], about: dict[str, Any]
) -> bytes:
    graph = Graph()
    if spec.is_whole_image:
        graph.node("Identity", encoder.preprocess.to_onnx(graph, "image"), output="pixels")
    spec.follow(graph, add_tower(graph, spec.tower))
    return graph.to_bytes(spec.input_values(), spec.outputs, about)


def check_graph(path: Path, spec: GraphSpec) -> None:
    """Run a graph on an image, or on batches of one and of three; reject one that computes something else."""
    (output,) = [name for name, (dtype, _) in spec.outputs.items() if dtype == "float32"]
    places: list[Any] = [...] if spec.is_whole_image else [[0], [1, 0, 1]]
    batches = [{name: array[rows] for name, array in spec.inputs.items()} for rows in places]
    for rows, (found,) in zip(places, run_graph(path, batches, [output]), strict=True):
        require_close(path, found, spec.expected[rows], spec.tolerance)


def run_graph(
    path: Path | bytes, batches: Sequence[Mapping[str, Array]], outputs: Sequence[str]
) -> list[list[Array]]:
    """Return some outputs of a graph, in a file or not, for each batch of inputs."""
    onnxruntime = onnx_runtime()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    try:
        graph = path if isinstance(path, bytes) else str(path)
        session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
        return [session.run(list(outputs), dict(batch)) for batch in batches]
    except Exception as failure:  # onnxruntime's errors have no base of their own
        name = "" if isinstance(path, bytes) else f" {path.name}"
        raise ModelError(f"the graph{name} does not run: {first_line(failure)}") from failure


def require_close(path: Path, found: Array, expected: Array, tolerance: float) -> None:
    """Reject a graph that computes something else than the model."""
    error = float(np.abs(found - expected).max())
    if not error <= tolerance:
        raise ModelError(f"the graph {path.name} differs from the model by {error:.1e}: it is not written")
