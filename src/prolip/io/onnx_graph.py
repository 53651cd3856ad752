"""Write ONNX models without a library: a graph is a list of operations and their constants, in protobuf.

An ONNX file is a protobuf message, a sequence of fields: each has a number and a type, then an integer, or a
length and that many bytes. Tensors are raw little-endian bytes.

    graph = Graph()
    y = graph.node("MatMul", "x", weight)              an input that is not a name is a constant
    graph.node("Relu", y, output="positive")
    model = graph.to_bytes({"x": ("float32", ("batch", 4))}, {"positive": ("float32", ("batch", 2))})
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from prolip.core.arrays import Array
    from prolip.core.head import Head
    from prolip.io.onnx_model import OnnxModel

OPSET = 18
IR_VERSION = 8  # the one that came with opset 18

# Name: (element type of an array, the array's shape; a string is a size that is known at run time).
Values = Mapping[str, tuple[str, tuple[int | str, ...]]]

_TYPES = {"float32": 1, "uint8": 2, "int8": 3, "int32": 6, "int64": 7, "bool": 9, "float16": 10}


class Graph:
    """Operations of ONNX's default set, in the order in which they are added."""

    def __init__(self) -> None:
        self._nodes: list[bytes] = []
        self._constants: list[bytes] = []
        self._imports = [_integer(2, OPSET)]
        self._opset, self._ir_version = OPSET, IR_VERSION

    def include(self, model: OnnxModel, values: Iterable[str]) -> None:
        """Add what computes some values of another model, under its own names and in its opset."""
        nodes, tensors, self._imports = model.parts(values)
        self._nodes += nodes
        self._constants += tensors
        self._opset, self._ir_version = model.opset, max(model.ir_version, 4)

    def constant(self, value: Any) -> str:
        """Add an array to the model, floats as float32; return its name."""
        array = np.asarray(value)
        if array.dtype.kind == "f":
            array = array.astype(np.float32, copy=False)
        name = f"prolip_constant_{len(self._constants)}"
        self._constants.append(tensor_proto(name, array))
        return name

    def node(self, kind: str, *inputs: Any, output: str | None = None, **attributes: Any) -> str:
        """Add an operation; return the name of its output, which is `output` if that is given.

        An input is the name of a graph input or of another node's output; anything else becomes a constant.
        """
        name = output or f"prolip_{kind.lower()}_{len(self._nodes)}"
        sources = [x if isinstance(x, str) else self.constant(x) for x in inputs]
        self._nodes.append(
            b"".join(bytes_field(1, source.encode()) for source in sources)
            + bytes_field(2, name.encode())
            + bytes_field(4, kind.encode())
            + b"".join(bytes_field(5, _attribute(key, value)) for key, value in attributes.items())
        )
        return name

    def unit_rows(self, x: str) -> str:
        """Add the scaling of rows to length one; a zero row stays zero."""
        if self._opset < 18:  # where axes are an attribute
            length = self.node("ReduceL2", x, axes=[-1], keepdims=1)
        else:
            length = self.node("ReduceL2", x, np.array([-1]), keepdims=1)
        return self.node("Div", x, self.node("Max", length, 1e-12))

    def columns(self, x: str, start: int, stop: int) -> str:
        """Add the slice x[:, start:stop]."""
        return self.node("Slice", x, np.array([start]), np.array([stop]), np.array([1]))

    def head(self, head: Head, x: str) -> str:
        """Embeddings `head(x)` [m, D] of features [m, width]."""
        width = len(head.weight)
        v = self.node("MatMul", self.columns(x, 0, width) if head.residual else x, head.weight)
        if head.residual:
            v = self.node("Add", v, self.columns(x, width, head.width))
        return v if head.bias is None else self.node("Add", v, head.bias)

    def to_bytes(self, inputs: Values, outputs: Values, metadata: Mapping[str, Any] | None = None) -> bytes:
        """Return the content of the model file; metadata that is not text is written as JSON."""
        graph = (
            b"".join(bytes_field(1, node) for node in self._nodes)
            + bytes_field(2, b"prolip")
            + b"".join(bytes_field(5, constant) for constant in self._constants)
            + b"".join(bytes_field(11, _value(name, *value)) for name, value in inputs.items())
            + b"".join(bytes_field(12, _value(name, *value)) for name, value in outputs.items())
        )
        about = {
            k: v if isinstance(v, str) else json.dumps(v, ensure_ascii=False)
            for k, v in (metadata or {}).items()
        }
        return (
            _integer(1, self._ir_version)
            + bytes_field(2, b"prolip")
            + bytes_field(7, graph)
            + b"".join(bytes_field(8, each) for each in self._imports)
            + b"".join(
                bytes_field(14, bytes_field(1, k.encode()) + bytes_field(2, v.encode()))
                for k, v in about.items()
            )
        )


def tensor_proto(name: str, array: Array) -> bytes:
    """Return a tensor as it stands in a model: TensorProto."""
    raw = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes()
    dims = b"".join(_integer(1, size) for size in array.shape)
    return dims + _integer(2, _TYPES[array.dtype.name]) + bytes_field(8, name.encode()) + bytes_field(9, raw)


def _varint(value: int) -> bytes:
    """Encode seven bits per byte, the lowest first; negative numbers as 64-bit two's complement."""
    value &= (1 << 64) - 1
    low = bytearray()
    while value > 0x7F:
        low.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*low, value])


def _integer(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(int(value))


def bytes_field(field: int, content: bytes) -> bytes:
    """Return a field that holds bytes."""
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _value(name: str, dtype: str, shape: tuple[int | str, ...]) -> bytes:
    """Describe an input or an output: ValueInfoProto."""
    sizes = [bytes_field(2, size.encode()) if isinstance(size, str) else _integer(1, size) for size in shape]
    tensor = _integer(1, _TYPES[dtype]) + bytes_field(2, b"".join(bytes_field(1, size) for size in sizes))
    return bytes_field(1, name.encode()) + bytes_field(2, bytes_field(1, tensor))


def _attribute(name: str, value: int | float | str | list[int]) -> bytes:
    """Encode an attribute of a node: AttributeProto, whose field 20 is the type of its value."""
    start = bytes_field(1, name.encode())
    if isinstance(value, float):
        return start + _varint(2 << 3 | 5) + np.float32(value).tobytes() + _integer(20, 1)
    if isinstance(value, int):
        return start + _integer(3, value) + _integer(20, 2)
    if isinstance(value, str):
        return start + bytes_field(4, value.encode()) + _integer(20, 3)
    return start + b"".join(_integer(8, each) for each in value) + _integer(20, 7)
