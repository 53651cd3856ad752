"""EfficientNet-Lite0: the image tower of the offline encoder, in torch and as an ONNX graph.

The network is MobileNet's inverted residual, seven stages of it, with ReLU6 and no squeeze-and-excitation:

    expand 1x1 -> depthwise k x k -> project 1x1   (+ input, where stride is 1 and widths match)

Padding is TensorFlow's "same": where a stride does not divide the size, the odd pixel goes to the right and
to the bottom. On a CPU the ONNX graph, batch norms folded into the convolutions, runs several times faster
than torch; the torch module is for GPUs and for training.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

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
WIDTH = 1280  # of the pooled feature
SIZE = 224  # of the input
MEAN, STD = 127 / 255, 128 / 255


class SameConv2d(nn.Conv2d):
    """A convolution without bias, padded as TensorFlow's "same"."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> None:
        super().__init__(inputs, outputs, kernel, stride, groups=groups, bias=False)

    def pads(self, size: int) -> tuple[int, int]:
        """Pixels to add before and after an axis of this size."""
        kernel, stride = self.kernel_size[0], self.stride[0]
        total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
        return total // 2, total - total // 2

    def forward(self, x: Tensor) -> Tensor:
        """[B, inputs, H, W] to [B, outputs, ceil(H / stride), ceil(W / stride)]."""
        top, bottom = self.pads(x.shape[2])
        left, right = self.pads(x.shape[3])
        return super().forward(nn.functional.pad(x, (left, right, top, bottom)))


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=1e-3, momentum=0.01)


class Block(nn.Module):
    """One inverted residual."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        middle = inputs * expansion
        self.residual = stride == 1 and inputs == outputs
        if expansion != 1:
            self._expand_conv = SameConv2d(inputs, middle, 1)
            self._bn0 = _norm(middle)
        self._depthwise_conv = SameConv2d(middle, middle, kernel, stride, groups=middle)
        self._bn1 = _norm(middle)
        self._project_conv = SameConv2d(middle, outputs, 1)
        self._bn2 = _norm(outputs)

    def layers(self) -> Iterator[tuple[SameConv2d, nn.BatchNorm2d, bool]]:
        """Convolution, norm, and whether ReLU6 follows."""
        if hasattr(self, "_expand_conv"):
            yield self._expand_conv, self._bn0, True
        yield self._depthwise_conv, self._bn1, True
        yield self._project_conv, self._bn2, False

    def forward(self, x: Tensor) -> Tensor:
        """[B, inputs, H, W] to [B, outputs, H', W']."""
        y = x
        for conv, norm, relu in self.layers():
            y = norm(conv(y))
            y = nn.functional.relu6(y) if relu else y
        return x + y if self.residual else y


class EfficientNetLite0(nn.Module):
    """Parameter names are those of the published checkpoint, which loads as it is."""

    def __init__(self) -> None:
        super().__init__()
        self._conv_stem, self._bn0 = SameConv2d(3, 32, 3, 2), _norm(32)
        blocks, inputs = [], 32
        for repeats, kernel, stride, expansion, outputs in STAGES:
            for i in range(repeats):
                blocks.append(Block(inputs, outputs, kernel, stride if i == 0 else 1, expansion))
                inputs = outputs
        self._blocks = nn.ModuleList(blocks)
        self._conv_head, self._bn1 = SameConv2d(inputs, WIDTH, 1), _norm(WIDTH)
        self._fc = nn.Linear(WIDTH, 1000)

    def feature_map(self, x: Tensor) -> Tensor:
        """Local features [B, 1280, 7, 7] of normalised pixels [B, 3, 224, 224]."""
        x = nn.functional.relu6(self._bn0(self._conv_stem(x)))
        for block in self._blocks:
            x = block(x)
        return nn.functional.relu6(self._bn1(self._conv_head(x)))

    def forward(self, x: Tensor) -> Tensor:
        """Pooled features [B, 1280], before the classifier."""
        return self.feature_map(x).mean(dim=(2, 3))


def to_onnx(model: EfficientNetLite0) -> bytes:
    """An ONNX model: uint8 pixels [batch, 224, 224, 3] to pooled features [batch, 1280]."""
    from onnx import TensorProto, helper, numpy_helper

    nodes: list[Any] = []
    weights: list[Any] = []

    def constant(value: Tensor) -> str:
        weights.append(numpy_helper.from_array(value.detach().float().numpy(), f"w{len(weights)}"))
        return str(weights[-1].name)

    def node(kind: str, *inputs: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(kind, list(inputs), [f"t{len(nodes)}"], **attributes))
        return f"t{len(nodes) - 1}"

    def convolve(x: str, size: int, conv: SameConv2d, norm: nn.BatchNorm2d, relu: bool) -> tuple[str, int]:
        assert norm.running_mean is not None
        assert norm.running_var is not None
        gain = norm.weight / (norm.running_var + norm.eps).sqrt()
        before, after = conv.pads(size)
        y = node(
            "Conv",
            x,
            constant(conv.weight * gain[:, None, None, None]),
            constant(norm.bias - norm.running_mean * gain),
            kernel_shape=list(conv.kernel_size),
            strides=list(conv.stride),
            group=conv.groups,
            pads=[before, before, after, after],
        )
        y = node("Clip", y, low, high) if relu else y
        return y, -(-size // conv.stride[0])

    low, high = constant(torch.tensor(0.0)), constant(torch.tensor(6.0))
    x = node("Cast", "pixels", to=TensorProto.FLOAT)
    x = node("Transpose", x, perm=[0, 3, 1, 2])
    x = node(
        "Mul", node("Sub", x, constant(torch.tensor(255 * MEAN))), constant(torch.tensor(1 / (255 * STD)))
    )
    x, size = convolve(x, SIZE, model._conv_stem, model._bn0, True)
    for block in model._blocks:
        assert isinstance(block, Block)
        y = x
        for conv, norm, relu in block.layers():
            y, size = convolve(y, size, conv, norm, relu)
        x = node("Add", x, y) if block.residual else y
    x, size = convolve(x, size, model._conv_head, model._bn1, True)
    nodes.append(helper.make_node("Flatten", [node("GlobalAveragePool", x)], ["features"]))
    graph = helper.make_graph(
        nodes,
        "efficientnet_lite0",
        [helper.make_tensor_value_info("pixels", TensorProto.UINT8, ["batch", SIZE, SIZE, 3])],
        [helper.make_tensor_value_info("features", TensorProto.FLOAT, ["batch", WIDTH])],
        weights,
    )
    opset = [helper.make_opsetid("", 13)]
    return bytes(helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString())
