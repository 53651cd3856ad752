"""EfficientNet-Lite0: the image tower of the offline encoder, as an ONNX graph.

The network is MobileNet's inverted residual, seven stages of it, with ReLU6 and no squeeze-and-excitation:

    expand 1x1 -> depthwise k x k -> project 1x1   (+ input, where stride is 1 and widths match)

Padding is TensorFlow's "same": where a stride does not divide the size, the odd pixel goes to the right and
to the bottom. In the graph every batch norm is folded into the convolution before it. On a CPU, ONNX Runtime
is several times faster than torch. The same network in whole numbers is in `efficientnet_lite_int8.py`, and
in torch, for GPUs and for training, in `efficientnet_lite_torch.py`.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from prolip.core.arrays import Array
from prolip.io.onnx_graph import Graph

# (repeats, kernel, stride, expansion, channels out) of each stage
STAGES = [
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
]
STEM = 32  # channels after the first convolution
WIDTH = 1280  # of the pooled feature
SIZE = 224  # of the input
MEAN, STD = 127 / 255, 128 / 255
EPS = 1e-3  # of the batch norms


@dataclass(frozen=True)
class BlockShape:
    """Sizes of one inverted residual."""

    inputs: int
    outputs: int
    kernel: int
    stride: int
    expansion: int

    @property
    def residual(self) -> bool:
        """Whether the input is added to the output."""
        return self.stride == 1 and self.inputs == self.outputs


def blocks() -> Iterator[BlockShape]:
    """The blocks of all stages, in order; the first of a stage has its stride."""
    inputs = STEM
    for repeats, kernel, stride, expansion, outputs in STAGES:
        for i in range(repeats):
            yield BlockShape(inputs, outputs, kernel, stride if i == 0 else 1, expansion)
            inputs = outputs


def same_pads(size: int, kernel: int, stride: int) -> tuple[int, int]:
    """Pixels to add before and after an axis of this size."""
    total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
    return total // 2, total - total // 2


@dataclass(frozen=True, eq=False)
class Convolution:
    """A convolution with the batch norm after it folded in."""

    name: str  # in the published checkpoint
    weight: Array  # [outputs, inputs of a group, k, k]
    bias: Array  # [outputs]
    mean: Array  # [outputs], of what comes out on ImageNet, before any ReLU6: the batch norm knows
    deviation: Array  # likewise
    stride: int
    pads: tuple[int, int]
    relu: bool  # whether a ReLU6 follows

    @property
    def depthwise(self) -> bool:
        """Whether each channel is a group of its own."""
        return "depthwise" in self.name

    def attributes(self) -> dict[str, Any]:
        """Those of the node in a graph."""
        groups = len(self.weight) if self.depthwise else 1
        return {"strides": [self.stride] * 2, "pads": sorted(self.pads * 2), "group": groups}


T = TypeVar("T")


def walk(
    weights: Mapping[str, Array], x: T, convolve: Callable[[T, Convolution], T], add: Callable[[T, T], T]
) -> T:
    """The network from normalised pixels to its last feature map, whatever a tensor is.

    `weights` has the names of the published checkpoint.
    """
    size = SIZE

    def layer(x: T, conv: str, norm: str, stride: int = 1, relu: bool = True) -> T:
        nonlocal size
        weight = weights[f"{conv}.weight"]
        scale, shift = weights[f"{norm}.weight"], weights[f"{norm}.bias"]
        gain = scale / np.sqrt(weights[f"{norm}.running_var"] + EPS)
        pads = same_pads(size, weight.shape[2], stride)
        size = -(-size // stride)
        bias = shift - weights[f"{norm}.running_mean"] * gain
        folded = weight * gain[:, None, None, None]
        return convolve(x, Convolution(conv, folded, bias, shift, np.abs(scale), stride, pads, relu))

    x = layer(x, "_conv_stem", "_bn0", stride=2)
    for i, block in enumerate(blocks()):
        y, name = x, f"_blocks.{i}."
        if block.expansion != 1:
            y = layer(y, f"{name}_expand_conv", f"{name}_bn0")
        y = layer(y, f"{name}_depthwise_conv", f"{name}_bn1", block.stride)
        y = layer(y, f"{name}_project_conv", f"{name}_bn2", relu=False)
        x = add(x, y) if block.residual else y
    return layer(x, "_conv_head", "_bn1")


def normalised(graph: Graph, pixels: str) -> str:
    """Add the change of uint8 pixels [batch, S, S, 3] to what the first convolution takes."""
    x = graph.node("Transpose", graph.node("Cast", pixels, to=1), perm=[0, 3, 1, 2])  # 1: float32
    return graph.node("Mul", graph.node("Sub", x, 255 * MEAN), 1 / (255 * STD))


def convolution(graph: Graph, x: str, layer: Convolution) -> str:
    """Add a convolution and its ReLU6, in floating point."""
    y = graph.node("Conv", x, layer.weight, layer.bias, **layer.attributes())
    return graph.node("Clip", y, 0.0, 6.0) if layer.relu else y


def add_to_graph(graph: Graph, weights: Mapping[str, Array], pixels: str) -> str:
    """Add the tower to a graph: uint8 pixels [batch, 224, 224, 3] to pooled features [batch, 1280]."""
    x = walk(
        weights,
        normalised(graph, pixels),
        lambda x, layer: convolution(graph, x, layer),
        lambda x, y: graph.node("Add", x, y),
    )
    return pooled(graph, x)


def pooled(graph: Graph, x: str) -> str:
    """Add the mean over places."""
    return graph.node("Flatten", graph.node("GlobalAveragePool", x))


def to_onnx(
    weights: Mapping[str, Array], add: Callable[[Graph, Mapping[str, Array], str], str] = add_to_graph
) -> bytes:
    """The tower alone as an ONNX model, `pixels` to `features`; `add` puts it into a graph."""
    graph = Graph()
    graph.node("Identity", add(graph, weights, "pixels"), output="features")
    return graph.to_bytes(
        {"pixels": ("uint8", ("batch", SIZE, SIZE, 3))}, {"features": ("float32", ("batch", WIDTH))}
    )
