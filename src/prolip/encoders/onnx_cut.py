"""Where a tower ends and its projection begins, in an ONNX graph of an encoder.

Exporters write the last linear map of CLIP as one node, after which there may be a scaling to unit length:

    features --MatMul W--> embedding                                    transformers, open_clip
    features --Gemm W, b--> embedding                                   towers with a bias
    features --DynamicQuantizeLinear, MatMulInteger, Cast, Mul--> ...   dynamic int8
    (x --MatMul W--> + b) + residual --[:, 0]--> pooler_output          SigLIP: the last layer of its pooling

`find_projection` walks back from the output to that node and returns what goes into it, and W. Where it finds
something else, the graph is a black box, and its output is the embedding.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from prolip.core.arrays import Array
from prolip.core.head import Head
from prolip.io.onnx_model import Node, OnnxModel

_PASS = {"Cast", "Identity", "Dropout"}
_SELECT = {"Gather", "Squeeze", "Slice", "Flatten", "Reshape"}  # of a sequence of one: [B, 1, D] to [B, D]
_MAX_STEPS = 16


@dataclass(frozen=True, eq=False)
class GraphProjection:
    """The linear map at the end of a graph."""

    head: Head
    features: tuple[str, ...]  # the values that the head takes, side by side: its input, then a residual
    weight: str | None  # the initializer that is W as it stands, [Do, D] and float; None for other forms


def find_projection(model: OnnxModel, output: str) -> GraphProjection | None:
    """Return the last linear map before an output; None where the graph ends in something else."""
    name = output
    for _ in range(_MAX_STEPS):
        if found := _linear(model, name) or _with_residual(model, name):
            return found
        node = model.producers.get(name)
        if node is None or not node.inputs:
            return None
        if node.kind in _PASS | _SELECT | {"LpNormalization"} or _divides_by_length(model, node):
            name = node.inputs[0]
        else:
            return None
    return None


def _linear(model: OnnxModel, name: str) -> GraphProjection | None:
    """Return the map x W + b that computes a value."""
    node = model.producers.get(name)
    if node is None:
        return None
    if node.kind == "MatMul":
        weight = _matrix(model, node.inputs[1])
        plain = model.initializer(node.inputs[1])
        if weight is not None and plain is not None and weight.dtype != np.float32:
            plain = None
        return _projection(weight, None, node.inputs[0], plain)
    if node.kind == "Gemm" and not node.integer("transA"):
        weight = _matrix(model, node.inputs[1])
        if weight is not None and node.integer("transB"):
            weight = weight.T
        bias = _constant(model, node.inputs[2]) if len(node.inputs) > 2 else None
        return _projection(weight, bias, node.inputs[0])
    if node.kind == "Mul":
        return _quantized(model, node)
    if node.kind == "Add":
        for value, other in (node.inputs, node.inputs[::-1]):
            bias = _constant(model, other)
            inner = _linear(model, value) if bias is not None and bias.ndim == 1 else None
            if inner is not None and inner.head.bias is None and bias is not None:
                return replace(inner, head=Head(inner.head.weight, bias.astype(np.float32)))
    return None


def _with_residual(model: OnnxModel, name: str) -> GraphProjection | None:
    """Return the map of a layer with a residual around it, as SigLIP's pooling has it."""
    node = model.producers.get(name)
    if node is None or node.kind != "Add":
        return None
    for value, residual in (node.inputs, node.inputs[::-1]):
        inner = _linear(model, value)
        if inner is not None and _constant(model, residual) is None:
            head = Head(inner.head.weight, inner.head.bias, residual=True)
            return GraphProjection(head, (*inner.features, residual), inner.weight)
    return None


def _quantized(model: OnnxModel, node: Node) -> GraphProjection | None:
    """Return the map of a dynamic int8 product, of float input: its weight is (q - z) s."""
    for product, scales in (node.inputs, node.inputs[::-1]):
        inner, scaling = model.producers.get(product), model.producers.get(scales)
        if inner is not None and inner.kind == "Cast":
            inner = model.producers.get(inner.inputs[0])
        if inner is None or scaling is None or inner.kind != "MatMulInteger" or scaling.kind != "Mul":
            continue
        quantize = model.producers.get(inner.inputs[0])
        weight = _constant(model, inner.inputs[1])
        scale = next((s for s in (_constant(model, x) for x in scaling.inputs) if s is not None), None)
        if quantize is None or quantize.kind != "DynamicQuantizeLinear" or weight is None or scale is None:
            continue
        zero = _constant(model, inner.inputs[3]) if len(inner.inputs) > 3 else None
        whole = weight.astype(np.float32) - (0 if zero is None else zero.astype(np.float32))
        return _projection(whole * scale.astype(np.float32), None, quantize.inputs[0])
    return None


def _projection(
    weight: Array | None, bias: Array | None, features: str, plain: str | None = None
) -> GraphProjection | None:
    if weight is None or weight.ndim != 2:
        return None
    head = Head(weight.astype(np.float32), None if bias is None else bias.astype(np.float32))
    return GraphProjection(head, (features,), plain)


def _matrix(model: OnnxModel, name: str) -> Array | None:
    found = _constant(model, name)
    return found if found is not None and found.ndim == 2 else None


def _constant(model: OnnxModel, name: str) -> Array | None:
    """Return a value that does not depend on the inputs: a tensor, or a simple function of one."""
    if (found := model.constant(name)) is not None:
        return found
    node = model.producers.get(name)
    if node is None or node.kind not in ("Transpose", "Cast", "Identity", "DequantizeLinear"):
        return None
    inner = _constant(model, node.inputs[0])
    if inner is None or node.kind in ("Cast", "Identity"):
        return inner
    if node.kind == "Transpose":
        return inner.T if inner.ndim == 2 else None
    scale = _constant(model, node.inputs[1])
    zero = _constant(model, node.inputs[2]) if len(node.inputs) > 2 else None
    if scale is None:
        return None
    shape = [1] * inner.ndim
    if scale.ndim:
        shape[node.integer("axis", 1)] = -1
    moved = inner.astype(np.float32) - (0 if zero is None else zero.astype(np.float32).reshape(shape))
    return moved * scale.astype(np.float32).reshape(shape)


def _divides_by_length(model: OnnxModel, node: Node) -> bool:
    """Whether a node scales its first input to unit length."""
    if node.kind != "Div":
        return False
    name = node.inputs[1]
    for _ in range(8):
        before = model.producers.get(name)
        if before is None or not before.inputs:
            return False
        if before.kind in ("ReduceL2", "ReduceSumSquare"):
            return before.inputs[0] == node.inputs[0]
        if before.kind in ("ReduceSum", "Pow", "Mul"):
            return True
        name = before.inputs[0]
    return False
