"""EfficientNet-Lite0, the image tower of the offline encoder, as an ONNX graph.

The network is MobileNet's inverted residual, seven stages of it, with ReLU6 and no squeeze-and-excitation:

    expand 1x1 -> depthwise k x k -> project 1x1   (+ input, where stride is 1 and widths match)

Padding is TensorFlow's "same": where a stride does not divide the size, the odd pixel goes to the right and
to the bottom. Every batch norm is folded into the convolution before it.

The tower is float32. In int8 it would take three fifths of the time on processors with VNNI, and longer in a
browser. But rounding to 8 bits magnifies small differences: one level more in one of 10,000 pixel values
changes probabilities by up to 0.11, where it is 0.001 in float32; two decoders would hardly ever agree.
"""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from prolip.core.arrays import Array
from prolip.io.onnx_graph import Graph
from prolip.io.reading import read_bytes

# (repeats, stride of the first, expansion) of each stage; kernels and channels are those of the weights
STAGES = [(1, 1, 1), (2, 2, 6), (2, 2, 6), (3, 2, 6), (3, 1, 6), (4, 2, 6), (1, 1, 6)]
WIDTH = 1280  # of the pooled feature
SIZE = 224  # of the input
MEAN, STD = 127 / 255, 128 / 255
EPS = 1e-3  # of the batch norms


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


def to_onnx(weights: Mapping[str, Array]) -> bytes:
    """Return the tower as an ONNX model, `pixels` to `features`."""
    graph = Graph()
    graph.node("Identity", add_to_graph(graph, weights, "pixels"), output="features")
    return graph.to_bytes(
        {"pixels": ("uint8", ("batch", SIZE, SIZE, 3))}, {"features": ("float32", ("batch", WIDTH))}
    )


def add_to_graph(graph: Graph, weights: Mapping[str, Array], pixels: str) -> str:
    """Add the tower to a graph: uint8 pixels [batch, 224, 224, 3] to pooled features [batch, 1280].

    `weights` has the names of the published checkpoint.
    """

    def layer(x: str, conv: str, norm: str, stride: int = 1, relu: bool = True) -> str:
        """Add a convolution with the batch norm after it folded in, and its ReLU6."""
        weight = weights[f"{conv}.weight"]
        gain = weights[f"{norm}.weight"] / np.sqrt(weights[f"{norm}.running_var"] + EPS)
        bias = weights[f"{norm}.bias"] - weights[f"{norm}.running_mean"] * gain
        y = graph.node(
            "Conv",
            *(x, weight * gain[:, None, None, None], bias),
            strides=[stride] * 2,
            auto_pad="SAME_UPPER",
            group=len(weight) if "depthwise" in conv else 1,
        )
        return graph.node("Clip", y, 0.0, 6.0) if relu else y

    x = graph.node("Transpose", graph.node("Cast", pixels, to=1), perm=[0, 3, 1, 2])  # 1: float32
    x = graph.node("Mul", graph.node("Sub", x, 255 * MEAN), 1 / (255 * STD))
    x = layer(x, "_conv_stem", "_bn0", stride=2)
    strides = [
        (expansion, stride if i == 0 else 1, i > 0) for n, stride, expansion in STAGES for i in range(n)
    ]
    for i, (expansion, stride, residual) in enumerate(strides):
        y, name = x, f"_blocks.{i}."
        if expansion != 1:
            y = layer(y, f"{name}_expand_conv", f"{name}_bn0")
        y = layer(y, f"{name}_depthwise_conv", f"{name}_bn1", stride)
        y = layer(y, f"{name}_project_conv", f"{name}_bn2", relu=False)
        x = graph.node("Add", x, y) if residual else y
    return graph.node("Flatten", graph.node("GlobalAveragePool", layer(x, "_conv_head", "_bn1")))
