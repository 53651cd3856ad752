"""Where a tower ends and its projection begins, in an ONNX graph of an encoder.

Exporters write the last linear map of CLIP as one node, after which there may be a scaling to unit length:

    features --MatMul W--> embedding                                    transformers, open_clip
    features --Gemm W, b--> embedding                                   towers with a bias
    features --DynamicQuantizeLinear, MatMulInteger, Cast, Mul--> ...   dynamic int8
    (x --MatMul W--> + b) + residual --[:, 0]--> pooler_output          SigLIP: the last layer of its pooling

`find_projection` walks back from the output to that node and returns what goes into it, and W. Where it finds
something else, the graph is a black box, and its output is the embedding. What the division after the map is
by is not looked at: the caller compares the embeddings.
"""

from typing import Any, NamedTuple

import numpy as np

from prolip.core.arrays import Array
from prolip.core.head import Head
from prolip.io.onnx_graph import OnnxModel

_SELECT = {"Gather", "Squeeze", "Slice", "Flatten", "Reshape"}  # of a sequence of one: [B, 1, D] to [B, D]
_PASS = _SELECT | {"Cast", "Identity", "Dropout", "Div", "LpNormalization"}
_MAX_STEPS = 16


class GraphProjection(NamedTuple):
    """The linear map at the end of a graph."""

    head: Head
    features: tuple[str, ...]  # the values that the head takes, side by side: its input, then a residual


def find_projection(model: OnnxModel, output: str) -> GraphProjection | None:
    """Return the last linear map before an output; None where the graph ends in something else."""
    name = output
    for _ in range(_MAX_STEPS):
        if found := _linear(model, name) or _sum(model, name):
            return found
        node = model.producers.get(name)
        if node is None or node.op_type not in _PASS or not node.input:
            return None
        name = node.input[0]
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
    return None


def _sum(model: OnnxModel, name: str) -> GraphProjection | None:
    """Return a map and what is added to it: a bias, or a residual around it, as SigLIP's pooling has it."""
    node = _producer(model, name, "Add")
    for value, other in (node.input, node.input[::-1]) if node is not None else ():
        inner, bias = _linear(model, value) or _sum(model, value), _constant(model, other)
        if inner is None or inner.head.residual:
            continue
        weight = inner.head.weight
        if bias is None:
            return GraphProjection(Head(weight, inner.head.bias, residual=True), (*inner.features, other))
        if bias.ndim == 1 and inner.head.bias is None:
            return inner._replace(head=Head(weight, bias.astype(np.float32)))
    return None


def _quantized(model: OnnxModel, node: Any) -> GraphProjection | None:
    """Return the map of a dynamic int8 product, as ONNX Runtime quantizes it: its weight is (q - z) s."""
    cast = _producer(model, node.input[0], "Cast")
    scaling = _producer(model, node.input[1], "Mul")
    product = cast and _producer(model, cast.input[0], "MatMulInteger")
    quantize = product and _producer(model, product.input[0], "DynamicQuantizeLinear")
    if scaling is None or quantize is None:
        return None
    weight, scale = _constant(model, product.input[1]), _constant(model, scaling.input[1])
    if weight is None or scale is None:
        return None
    zero = _constant(model, product.input[3]) if len(product.input) > 3 else None
    whole = weight.astype(np.float32) - (0 if zero is None else zero.astype(np.float32))
    return _projection(whole * scale.astype(np.float32), None, quantize.input[0])


def _producer(model: OnnxModel, name: str, kind: str) -> Any:
    """Return the node that computes a value, if it is of this kind."""
    node = model.producers.get(name)
    return node if node is not None and node.op_type == kind else None


def _projection(weight: Array | None, bias: Array | None, features: str) -> GraphProjection | None:
    if weight is None or weight.ndim != 2:
        return None
    head = Head(weight.astype(np.float32), None if bias is None else bias.astype(np.float32))
    return GraphProjection(head, (features,))


def _integer(node: Any, name: str) -> int:
    return next((int(each.i) for each in node.attribute if each.name == name), 0)


def _constant(model: OnnxModel, name: str) -> Array | None:
    """Return a value that does not depend on the inputs: a tensor, also transposed or cast."""
    node = model.producers.get(name)
    if node is None or node.op_type not in ("Transpose", "Cast", "Identity"):
        return model.constant(name)
    inner = _constant(model, node.input[0])
    return inner.T if inner is not None and node.op_type == "Transpose" else inner
