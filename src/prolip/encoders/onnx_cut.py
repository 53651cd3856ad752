"""Where a tower ends and its projection begins, in an ONNX graph of an encoder.

Exporters write the last linear map of CLIP as one node, after which there may be a scaling to unit length:

    features --MatMul W--> embedding                                    transformers, open_clip
    features --Gemm W, b--> embedding                                   towers with a bias
    features --DynamicQuantizeLinear, MatMulInteger, Cast, Mul--> ...   dynamic int8
    (x --MatMul W--> + b) + residual --[:, 0]--> pooler_output          SigLIP: the last layer of its pooling

`find_projection` walks back from the output to that node and returns what goes into it, and W. Where it finds
something else, the graph is a black box, and its output is the embedding.
"""

from typing import Any, NamedTuple

import numpy as np

from prolip.core.arrays import Array
from prolip.core.head import Head
from prolip.io.onnx_graph import OnnxModel

_PASS = {"Cast", "Identity", "Dropout"}
_SELECT = {"Gather", "Squeeze", "Slice", "Flatten", "Reshape"}  # of a sequence of one: [B, 1, D] to [B, D]
_MAX_STEPS = 16


class GraphProjection(NamedTuple):
    """The linear map at the end of a graph."""

    head: Head
    features: tuple[str, ...]  # the values that the head takes, side by side: its input, then a residual


def find_projection(model: OnnxModel, output: str) -> GraphProjection | None:
    """Return the last linear map before an output; None where the graph ends in something else."""
    name = output
    for _ in range(_MAX_STEPS):
        if found := _linear(model, name) or _with_residual(model, name):
            return found
        node = model.producers.get(name)
        if node is None or not node.input:
            return None
        if node.op_type in _PASS | _SELECT | {"LpNormalization"} or _divides_by_length(model, node):
            name = node.input[0]
        else:
            return None
    return None


def _linear(model: OnnxModel, name: str) -> GraphProjection | None:
    node = model.producers.get(name)
    if node is None:
        return None
    if node.op_type == "MatMul":
        return _projection(_constant(model, node.input[1]), None, node.input[0])
    if node.op_type == "Gemm" and not _integer(node, "transA"):
        weight = _constant(model, node.input[1])
        if weight is not None and _integer(node, "transB"):
            weight = weight.T
        bias = _constant(model, node.input[2]) if len(node.input) > 2 else None
        return _projection(weight, bias, node.input[0])
    if node.op_type == "Mul":
        return _quantized(model, node)
    if node.op_type == "Add":
        for value, other in (node.input, node.input[::-1]):
            bias = _constant(model, other)
            inner = _linear(model, value) if bias is not None and bias.ndim == 1 else None
            if inner is not None and inner.head.bias is None and bias is not None:
                return inner._replace(head=Head(inner.head.weight, bias.astype(np.float32)))
    return None


def _with_residual(model: OnnxModel, name: str) -> GraphProjection | None:
    """Return the map of a layer with a residual around it, as SigLIP's pooling has it."""
    node = model.producers.get(name)
    if node is None or node.op_type != "Add":
        return None
    for value, residual in (node.input, node.input[::-1]):
        inner = _linear(model, value)
        if inner is not None and _constant(model, residual) is None:
            head = Head(inner.head.weight, inner.head.bias, residual=True)
            return GraphProjection(head, (*inner.features, residual))
    return None


def _quantized(model: OnnxModel, node: Any) -> GraphProjection | None:
    """Return the map of a dynamic int8 product, of float input: its weight is (q - z) s."""
    for product, scales in (node.input, node.input[::-1]):
        inner, scaling = model.producers.get(product), model.producers.get(scales)
        if inner is not None and inner.op_type == "Cast":
            inner = model.producers.get(inner.input[0])
        if inner is None or scaling is None or inner.op_type != "MatMulInteger" or scaling.op_type != "Mul":
            continue
        quantize = model.producers.get(inner.input[0])
        weight = _constant(model, inner.input[1])
        scale = next((s for s in (_constant(model, x) for x in scaling.input) if s is not None), None)
        if quantize is None or quantize.op_type != "DynamicQuantizeLinear" or weight is None or scale is None:
            continue
        zero = _constant(model, inner.input[3]) if len(inner.input) > 3 else None
        whole = weight.astype(np.float32) - (0 if zero is None else zero.astype(np.float32))
        return _projection(whole * scale.astype(np.float32), None, quantize.input[0])
    return None


def _projection(weight: Array | None, bias: Array | None, features: str) -> GraphProjection | None:
    if weight is None or weight.ndim != 2:
        return None
    head = Head(weight.astype(np.float32), None if bias is None else bias.astype(np.float32))
    return GraphProjection(head, (features,))


def _integer(node: Any, name: str, default: int = 0) -> int:
    return next((int(each.i) for each in node.attribute if each.name == name), default)


def _constant(model: OnnxModel, name: str) -> Array | None:
    """Return a value that does not depend on the inputs: a tensor, or a simple function of one."""
    if (found := model.constant(name)) is not None:
        return found
    node = model.producers.get(name)
    if node is None or node.op_type not in ("Transpose", "Cast", "Identity", "DequantizeLinear"):
        return None
    inner = _constant(model, node.input[0])
    if inner is None or node.op_type in ("Cast", "Identity"):
        return inner
    if node.op_type == "Transpose":
        return inner.T if inner.ndim == 2 else None
    scale = _constant(model, node.input[1])
    zero = _constant(model, node.input[2]) if len(node.input) > 2 else None
    if scale is None:
        return None
    shape = [1] * inner.ndim
    if scale.ndim:
        shape[_integer(node, "axis", 1)] = -1
    moved = inner.astype(np.float32) - (0 if zero is None else zero.astype(np.float32).reshape(shape))
    return moved * scale.astype(np.float32).reshape(shape)


def _divides_by_length(model: OnnxModel, node: Any) -> bool:
    if node.op_type != "Div":
        return False
    name = node.input[1]
    for _ in range(8):
        before = model.producers.get(name)
        if before is None or not before.input:
            return False
        if before.op_type in ("ReduceL2", "ReduceSumSquare"):
            return bool(before.input[0] == node.input[0])
        if before.op_type in ("ReduceSum", "Pow", "Mul"):
            return True
        name = before.input[0]
    return False
