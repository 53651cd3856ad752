"""EfficientNet-Lite0 in 8-bit whole numbers: the quick form of the offline encoder's image tower.

Activations are uint8, a number q standing for scale (q - zero); weights are int8, with a scale for each
output channel. A convolution then sums products of whole numbers, which processors of today do four times as
fast as floats. No picture is needed to find the scales, for the batch norms know what their outputs were on
ImageNet: per channel a mean m and a deviation d, and all but nothing lies within m -+ 6 d. Three things keep
the error small (1 - cosine to the features in floating point, on birds60):

    the mean of the rounding error, sum_i (w_q - w)_i E[x_i], is taken off the bias          0.0050 -> 0.0029
    the first convolution and the first block stay in floating point                                 -> 0.0016
    of ranges of 3 to 7 deviations, 6 (a narrow range cuts large values off, a wide one is coarse)

Expected inputs E[x] come from the batch norms too; after a ReLU6 they are those of a normal distribution that
is cut off at 0 and 6. Data-free quantisation with correction of the bias: Nagel et al., ICCV 2019.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from prolip.core.arrays import Array
from prolip.encoders.efficientnet_lite import Convolution, convolution, normalised, pooled, walk
from prolip.io.onnx_graph import Graph

IN_FLOATS = ("_conv_stem", "_blocks.0._depthwise_conv", "_blocks.0._project_conv")
DEVIATIONS = 6.0
LEVELS = 127  # of a weight, on either side of zero


@dataclass(frozen=True, eq=False)
class _Tensor:
    """What a node of the graph gives: per channel a mean and a deviation, and how 8 bits stand for it."""

    name: str
    mean: Array
    deviation: Array
    scale: float
    zero: int
    in_floats: bool = False


def add_to_graph(graph: Graph, weights: Mapping[str, Array], pixels: str) -> str:
    """Add the tower to a graph: uint8 pixels [batch, 224, 224, 3] to pooled features [batch, 1280]."""
    x = _Tensor(normalised(graph, pixels), np.zeros(3), np.ones(3), 1.0, 0, in_floats=True)
    y = walk(weights, x, lambda x, layer: _convolve(graph, x, layer), lambda x, y: _add(graph, x, y))
    return pooled(graph, _floats(graph, y).name)


def _convolve(graph: Graph, x: _Tensor, layer: Convolution) -> _Tensor:
    mean, deviation = layer.mean, layer.deviation
    if layer.relu:
        made = _Tensor("", _mean_after_relu6(mean, deviation), deviation, 6 / 255, 0)
    else:
        made = _ranged(mean, deviation)
    if layer.name in IN_FLOATS:
        return replace(made, name=convolution(graph, _floats(graph, x).name, layer), in_floats=True)
    x = _whole(graph, x)
    largest = np.abs(layer.weight).max(axis=(1, 2, 3))
    # Coarse enough for the bias to fit into 32 bits, where a channel's weights are all but zero.
    scale = np.maximum(largest / LEVELS, np.abs(layer.bias) / (x.scale * 2**30) + 1e-12).astype(np.float32)
    whole = np.round(layer.weight / scale[:, None, None, None]).astype(np.int8)
    error = (whole * scale[:, None, None, None] - layer.weight).sum(axis=(2, 3))  # [outputs, inputs]
    bias = layer.bias - (error[:, 0] * x.mean if layer.depthwise else error @ x.mean)
    name = graph.node(
        "QLinearConv",
        *(x.name, *_unit(x)),
        *(whole, scale, np.zeros(len(scale), np.int8)),
        *_unit(made),
        np.round(bias / (scale * x.scale)).astype(np.int32),
        **layer.attributes(),
    )
    return replace(made, name=name)


def _add(graph: Graph, x: _Tensor, y: _Tensor) -> _Tensor:
    """The sum of a block's input and output, as if they were independent."""
    made = _ranged(x.mean + y.mean, np.hypot(x.deviation, y.deviation))
    total = graph.node("Add", _floats(graph, x).name, _floats(graph, y).name)
    return _whole(graph, replace(made, name=total, in_floats=True))


def _ranged(mean: Array, deviation: Array) -> _Tensor:
    """A tensor without a name yet, whose 256 steps span every channel's likely values."""
    low = min(0.0, float((mean - DEVIATIONS * deviation).min()))
    high = max(0.0, float((mean + DEVIATIONS * deviation).max()))
    scale = (high - low) / 255
    return _Tensor("", mean, deviation, scale, round(-low / scale))


def _unit(x: _Tensor) -> tuple[Array, Array]:
    return np.array(x.scale, np.float32), np.array(x.zero, np.uint8)


def _whole(graph: Graph, x: _Tensor) -> _Tensor:
    """The tensor in 8 bits."""
    if not x.in_floats:
        return x
    return replace(x, name=graph.node("QuantizeLinear", x.name, *_unit(x)), in_floats=False)


def _floats(graph: Graph, x: _Tensor) -> _Tensor:
    """The tensor in floating point."""
    if x.in_floats:
        return x
    return replace(x, name=graph.node("DequantizeLinear", x.name, *_unit(x)), in_floats=True)


def _mean_after_relu6(mean: Array, deviation: Array) -> Array:
    """The mean of min(max(x, 0), 6) for normal x."""
    from scipy.special import ndtr

    below, above = -mean / (deviation + 1e-6), (6 - mean) / (deviation + 1e-6)
    lower, upper = ndtr(below, dtype=np.float64), ndtr(above, dtype=np.float64)
    edges = (np.exp(-(below**2) / 2) - np.exp(-(above**2) / 2)) / math.sqrt(2 * math.pi)
    return np.asarray(mean * (upper - lower) + deviation * edges + 6 * (1 - upper))
