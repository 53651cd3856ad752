"""EfficientNet-Lite0, the image tower of the offline encoder, as an ONNX graph in float32 or in int8.

The network is MobileNet's inverted residual, seven stages of it, with ReLU6 and no squeeze-and-excitation:

    expand 1x1 -> depthwise k x k -> project 1x1   (+ input, where stride is 1 and widths match)

Padding is TensorFlow's "same": where a stride does not divide the size, the odd pixel goes to the right and
to the bottom. Every batch norm is folded into the convolution before it. `walk` visits the convolutions in
order; the two graphs differ only in what they do with each. `offline_torch.py` has the network in torch.

In int8, activations are uint8, where q stands for scale (q - zero), and weights are int8 with one scale per
output channel. Processors sum integer products four times as fast as floats. The scales need no images: the
batch norms hold the mean m and deviation d of each output channel on ImageNet, and almost all values lie
within m -+ 6 d. Three choices keep the error small (1 - cosine to the float32 features, on birds60):

    the mean of the rounding error, sum_i (w_q - w)_i E[x_i], is subtracted from the bias    0.0050 -> 0.0029
    the first convolution and the first block stay in float32                                        -> 0.0016
    a range of 6 deviations, out of 3 to 7 (a narrow range clips large values, a wide one is coarse)

The expected inputs E[x] come from the batch norms, too; after a ReLU6 they are those of a normal distribution
clipped at 0 and 6. This is data-free quantisation with bias correction: Nagel et al., ICCV 2019.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from prolip.core.arrays import Array
from prolip.io.onnx_graph import Graph
from prolip.io.reading import read_bytes

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

FLOAT_LAYERS = ("_conv_stem", "_blocks.0._depthwise_conv", "_blocks.0._project_conv")  # also in int8
DEVIATIONS = 6.0  # range of an int8 activation, on either side of its mean
LEVELS = 127  # range of an int8 weight, on either side of zero


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
    """Yield the blocks of all stages, in order; the first of a stage has its stride."""
    inputs = STEM
    for repeats, kernel, stride, expansion, outputs in STAGES:
        for i in range(repeats):
            yield BlockShape(inputs, outputs, kernel, stride if i == 0 else 1, expansion)
            inputs = outputs


def same_pads(size: int, kernel: int, stride: int) -> tuple[int, int]:
    """Return how many pixels to add before and after an axis of this size."""
    total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
    return total // 2, total - total // 2


@dataclass(frozen=True, eq=False)
class Convolution:
    """A convolution with the batch norm after it folded in."""

    name: str  # in the published checkpoint
    weight: Array  # [outputs, inputs of a group, k, k]
    bias: Array  # [outputs]
    mean: Array  # [outputs], of the output on ImageNet before any ReLU6, from the batch norm
    deviation: Array  # [outputs], likewise
    stride: int
    pads: tuple[int, int]
    relu: bool  # whether a ReLU6 follows

    @property
    def depthwise(self) -> bool:
        """Whether each channel is a group of its own."""
        return "depthwise" in self.name

    def attributes(self) -> dict[str, Any]:
        """Return the attributes of its node in a graph."""
        groups = len(self.weight) if self.depthwise else 1
        return {"strides": [self.stride] * 2, "pads": sorted(self.pads * 2), "group": groups}


T = TypeVar("T")


def walk(
    weights: Mapping[str, Array], x: T, convolve: Callable[[T, Convolution], T], add: Callable[[T, T], T]
) -> T:
    """Run the network from normalised pixels to its last feature map, whatever a tensor is.

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


def read_weights(path: Path) -> dict[str, Array]:
    """Read the published checkpoint, whose SHA-256 must have been verified, without unpickling it.

    The table beside this file says where each tensor lies in it: type, offset, shape and strides in bytes.
    """
    content = read_bytes(path)
    table = json.loads(Path(__file__).with_name("efficientnet_lite0_tensors.json").read_text("ascii"))
    return {
        name: np.ndarray(shape, dtype, content, offset, strides).copy()
        for name, (dtype, offset, shape, strides) in table.items()
    }


def to_onnx(weights: Mapping[str, Array], int8: bool = False) -> bytes:
    """Return the tower as an ONNX model, `pixels` to `features`."""
    graph = Graph()
    graph.node("Identity", add_to_graph(graph, weights, "pixels", int8), output="features")
    return graph.to_bytes(
        {"pixels": ("uint8", ("batch", SIZE, SIZE, 3))}, {"features": ("float32", ("batch", WIDTH))}
    )


def add_to_graph(graph: Graph, weights: Mapping[str, Array], pixels: str, int8: bool = False) -> str:
    """Add the tower to a graph: uint8 pixels [batch, 224, 224, 3] to pooled features [batch, 1280]."""
    x = graph.node("Transpose", graph.node("Cast", pixels, to=1), perm=[0, 3, 1, 2])  # 1: float32
    x = graph.node("Mul", graph.node("Sub", x, 255 * MEAN), 1 / (255 * STD))
    if int8:
        start = _Tensor(x, np.zeros(3), np.ones(3), 1.0, 0, is_float=True)
        last = walk(
            weights,
            start,
            lambda x, layer: _convolve_int8(graph, x, layer),
            lambda x, y: _add_int8(graph, x, y),
        )
        x = _to_float(graph, last)
    else:
        x = walk(
            weights, x, lambda x, layer: _convolve(graph, x, layer), lambda x, y: graph.node("Add", x, y)
        )
    return graph.node("Flatten", graph.node("GlobalAveragePool", x))


def _convolve(graph: Graph, x: str, layer: Convolution) -> str:
    """Add a convolution and its ReLU6 in float32."""
    y = graph.node("Conv", x, layer.weight, layer.bias, **layer.attributes())
    return graph.node("Clip", y, 0.0, 6.0) if layer.relu else y


@dataclass(frozen=True, eq=False)
class _Tensor:
    """The output of a node: its mean and deviation per channel, and how 8 bits represent it."""

    name: str
    mean: Array
    deviation: Array
    scale: float
    zero: int
    is_float: bool = False

    @property
    def unit(self) -> tuple[Array, Array]:
        """Scale and zero point, as ONNX takes them."""
        return np.array(self.scale, np.float32), np.array(self.zero, np.uint8)


def _convolve_int8(graph: Graph, x: _Tensor, layer: Convolution) -> _Tensor:
    mean, deviation = layer.mean, layer.deviation
    if layer.relu:
        output = _Tensor("", _mean_after_relu6(mean, deviation), deviation, 6 / 255, 0)
    else:
        output = _with_range(mean, deviation)
    if layer.name in FLOAT_LAYERS:
        return replace(output, name=_convolve(graph, _to_float(graph, x), layer), is_float=True)
    largest = np.abs(layer.weight).max(axis=(1, 2, 3))
    # Coarse enough for the bias to fit into 32 bits where all weights of a channel are close to zero.
    scale = np.maximum(largest / LEVELS, np.abs(layer.bias) / (x.scale * 2**30) + 1e-12).astype(np.float32)
    weight = np.round(layer.weight / scale[:, None, None, None]).astype(np.int8)
    error = (weight * scale[:, None, None, None] - layer.weight).sum(axis=(2, 3))  # [outputs, inputs]
    bias = layer.bias - (error[:, 0] * x.mean if layer.depthwise else error @ x.mean)
    name = graph.node(
        "QLinearConv",
        *(_to_int8(graph, x), *x.unit),
        *(weight, scale, np.zeros(len(scale), np.int8)),
        *output.unit,
        np.round(bias / (scale * x.scale)).astype(np.int32),
        **layer.attributes(),
    )
    return replace(output, name=name)


def _add_int8(graph: Graph, x: _Tensor, y: _Tensor) -> _Tensor:
    """Add a block's input to its output; the deviation of the sum treats them as independent."""
    total = graph.node("Add", _to_float(graph, x), _to_float(graph, y))
    output = _with_range(x.mean + y.mean, np.hypot(x.deviation, y.deviation))
    output = replace(output, name=total, is_float=True)
    return replace(output, name=_to_int8(graph, output), is_float=False)


def _with_range(mean: Array, deviation: Array) -> _Tensor:
    """Return a tensor without a name, whose 256 steps span the likely values of every channel."""
    low = min(0.0, float((mean - DEVIATIONS * deviation).min()))
    high = max(0.0, float((mean + DEVIATIONS * deviation).max()))
    scale = (high - low) / 255
    return _Tensor("", mean, deviation, scale, round(-low / scale))


def _to_int8(graph: Graph, x: _Tensor) -> str:
    return graph.node("QuantizeLinear", x.name, *x.unit) if x.is_float else x.name


def _to_float(graph: Graph, x: _Tensor) -> str:
    return x.name if x.is_float else graph.node("DequantizeLinear", x.name, *x.unit)


def _mean_after_relu6(mean: Array, deviation: Array) -> Array:
    """Return the mean of min(max(x, 0), 6) for normal x."""
    from scipy.special import ndtr

    below, above = -mean / (deviation + 1e-6), (6 - mean) / (deviation + 1e-6)
    lower, upper = ndtr(below, dtype=np.float64), ndtr(above, dtype=np.float64)
    edges = (np.exp(-(below**2) / 2) - np.exp(-(above**2) / 2)) / math.sqrt(2 * math.pi)
    return np.asarray(mean * (upper - lower) + deviation * edges + 6 * (1 - upper))
