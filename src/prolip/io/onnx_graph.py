"""ONNX models, written and read with protobuf; the package onnx is not needed.

    graph = Graph()
    y = graph.node("MatMul", "x", weight)              an input that is not a name is a constant
    graph.node("Relu", y, output="positive")
    model = graph.to_bytes({"x": ("float32", ("batch", 4))}, {"positive": ("float32", ("batch", 2))})

`_SCHEMA` has the fields of onnx.proto that are used here; others pass through unchanged.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from prolip.io.reading import FILE_LIMIT, ReadError, open_regular, read_bytes

if TYPE_CHECKING:
    from prolip.core.arrays import Array
    from prolip.core.head import Head

OPSET = 18
IR_VERSION = 8  # the one that came with opset 18

# Name: (element type of an array, the array's shape; a string is a size that is known at run time).
Values = Mapping[str, tuple[str, tuple[int | str, ...]]]

_TYPES = {
    "float32": 1, "uint8": 2, "int8": 3, "int32": 6, "int64": 7, "bool": 9, "float16": 10, "float64": 11,
}  # fmt: skip
# Attributes that became inputs: the name, the operations, and the opset.
_ATTRIBUTES_BEFORE = (
    ("axes", ("Squeeze", "Unsqueeze", "ReduceSum"), 13),
    ("axes", tuple(f"Reduce{kind}" for kind in ("Max", "Mean", "Min", "Prod", "L1", "L2", "SumSquare")), 18),
    ("split", ("Split",), 18),
)
_EXTERNAL = 1  # data_location of a tensor whose data is in a file beside the model

# Fields by message: number, name and type; * marks repeated ones.
_SCHEMA = {
    "Model": "1 ir_version int64, 2 producer_name string, 7 graph Graph, 8 opset_import *Opset, "
    "14 metadata_props *Entry",
    "Graph": "1 node *Node, 2 name string, 5 initializer *Tensor, 11 input *Value, 12 output *Value",
    "Node": "1 input *string, 2 output *string, 4 op_type string, 5 attribute *Attribute",
    "Attribute": "1 name string, 2 f float, 3 i int64, 4 s bytes, 5 t Tensor, 8 ints *int64, 20 type int32",
    "Tensor": "1 dims *int64, 2 data_type int32, 4 float_data *float, 5 int32_data *int32, "
    "7 int64_data *int64, 8 name string, 9 raw_data bytes, 13 external_data *Entry, 14 data_location int32",
    "Value": "1 name string, 2 type Type",
    "Type": "1 tensor_type TensorType",
    "TensorType": "1 elem_type int32, 2 shape Shape",
    "Shape": "1 dim *Dimension",
    "Dimension": "1 dim_value int64, 2 dim_param string",
    "Opset": "1 domain string, 2 version int64",
    "Entry": "1 key string, 2 value string",
}


@cache
def _model_class() -> Any:
    """Return the class of a model, whose fields are messages of the schema."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="prolip.proto", package="prolip", syntax="proto2")
    field = descriptor_pb2.FieldDescriptorProto
    for name, described in _SCHEMA.items():
        message = file.message_type.add(name=name)
        for number, key, kind in map(str.split, described.split(", ")):
            label = field.LABEL_REPEATED if kind.startswith("*") else field.LABEL_OPTIONAL
            kind = kind.lstrip("*")
            typed = {"type_name": f".prolip.{kind}"} if kind in _SCHEMA else {}
            number_of_type = field.TYPE_MESSAGE if typed else getattr(field, f"TYPE_{kind.upper()}")
            message.field.add(name=key, number=int(number), label=label, type=number_of_type, **typed)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("prolip.Model"))


class Graph:
    """Operations of ONNX's default set, in the order in which they are added."""

    def __init__(self) -> None:
        self._model = _model_class()(
            ir_version=IR_VERSION,
            producer_name="prolip",
            graph={"name": "prolip"},
            opset_import=[{"version": OPSET}],
        )

    def include(self, model: OnnxModel, values: Iterable[str], prefix: str = "") -> None:
        """Add what computes some values of another model, older operations as of now.

        Its values have their own names after the prefix; so have its inputs.
        """
        nodes, tensors = model.parts(values)
        imports = {each.domain: each.version for each in model.proto.opset_import}
        for node in nodes:
            added = self._model.graph.node.add()
            added.CopyFrom(node)
            for names in (added.input, added.output):
                names[:] = [prefix + name if name else name for name in names]
            self._renew(added, imports.get("", 1))
        for tensor in tensors:
            copied = self._model.graph.initializer.add()
            copied.CopyFrom(tensor)
            copied.MergeFrom(type(tensor)(name=prefix + tensor.name))
        for each in self._model.opset_import:
            imports[each.domain] = max(imports.get(each.domain, 1), each.version)
        self._model.ClearField("opset_import")
        opsets = [{"domain": domain, "version": version} for domain, version in imports.items()]
        version = max(model.proto.ir_version, self._model.ir_version)
        self._model.MergeFrom(_model_class()(ir_version=version, opset_import=opsets))

    def _renew(self, node: Any, opset: int) -> None:
        """Write axes and sizes as inputs, which were attributes of an operation before opset 13 or 18."""
        for name, kinds, until in _ATTRIBUTES_BEFORE:
            if opset < until and node.op_type in kinds:
                if found := [each for each in node.attribute if each.name == name]:
                    node.input.append(self.constant(np.array(found[0].ints, np.int64)))
                    node.attribute.remove(found[0])
                elif node.op_type == "Split" and len(node.input) == 1:
                    node.attribute.add(**_attribute("num_outputs", len(node.output)))

    def constant(self, value: Any) -> str:
        """Add an array to the model, floats as float32; return its name."""
        array = np.asarray(value)
        if array.dtype.kind == "f":
            array = array.astype(np.float32, copy=False)
        tensors = self._model.graph.initializer
        name = f"prolip_constant_{len(tensors)}"
        raw = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes()
        tensors.add(name=name, dims=array.shape, data_type=_TYPES[array.dtype.name], raw_data=raw)
        return name

    def node(self, kind: str, *inputs: Any, output: str | None = None, **attributes: Any) -> str:
        """Add an operation; return the name of its output, which is `output` if that is given.

        An input is the name of a graph input or of another node's output; anything else becomes a constant.
        """
        nodes = self._model.graph.node
        name = output or f"prolip_{kind.lower()}_{len(nodes)}"
        sources = [x if isinstance(x, str) else self.constant(x) for x in inputs]
        described = [_attribute(key, value) for key, value in attributes.items()]
        nodes.add(op_type=kind, input=sources, output=[name], attribute=described)
        return name

    def cast(self, x: str, dtype: str, output: str | None = None) -> str:
        """Add the conversion to another element type."""
        return self.node("Cast", x, to=_TYPES[dtype], output=output)

    def unit_rows(self, x: str) -> str:
        """Add the scaling of rows to length one; a zero row stays zero."""
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
        for name in inputs:
            self._model.graph.input.add(**_value(name, *inputs[name]))
        for name in outputs:
            self._model.graph.output.add(**_value(name, *outputs[name]))
        for key, value in (metadata or {}).items():
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            self._model.metadata_props.add(key=key, value=text)
        content: bytes = self._model.SerializeToString()
        return content


def _value(name: str, dtype: str, shape: tuple[int | str, ...]) -> dict[str, Any]:
    sizes = [{"dim_param" if isinstance(size, str) else "dim_value": size} for size in shape]
    return {"name": name, "type": {"tensor_type": {"elem_type": _TYPES[dtype], "shape": {"dim": sizes}}}}


def _attribute(name: str, value: int | float | str | list[int]) -> dict[str, Any]:
    if isinstance(value, float):
        return {"name": name, "f": value, "type": 1}
    if isinstance(value, int):
        return {"name": name, "i": value, "type": 2}
    if isinstance(value, str):
        return {"name": name, "s": value.encode(), "type": 3}
    return {"name": name, "ints": value, "type": 7}


class OnnxModel:
    """A model file, which may come from anywhere; tensors are decoded only when they are needed."""

    def __init__(self, path: Path) -> None:
        from google.protobuf.message import DecodeError

        self.path = path
        try:
            self.proto = _model_class().FromString(read_bytes(path))
            graph = self.proto.graph
            self.producers = {output: node for node in graph.node for output in node.output}
            self.outputs: list[str] = [output.name for output in graph.output]
            self._tensors = {tensor.name: tensor for tensor in graph.initializer}
            graph.ClearField("output")
        except (DecodeError, UnicodeDecodeError) as error:
            raise ReadError(path, "it is not an ONNX model") from error
        if not graph.node or not self.outputs:
            raise ReadError(path, "it is not an ONNX model")

    def constant(self, name: str) -> Array | None:
        """Return a tensor of the model, an initializer or a Constant; None for a value that is computed."""
        if name in self._tensors:
            return self._decode(self._tensors[name])
        node = self.producers.get(name)
        if node is None or node.op_type != "Constant":
            return None
        return next((self._decode(each.t) for each in node.attribute if each.name == "value"), None)

    def with_outputs(self, names: Iterable[str]) -> bytes:
        """Return the model with these values as its outputs; what they do not need is left to the runtime."""
        for name in names:
            self.proto.graph.output.add(name=name)
        content: bytes = self.proto.SerializeToString()
        self.proto.graph.ClearField("output")
        return content

    def parts(self, values: Iterable[str]) -> tuple[list[Any], list[Any]]:
        """Return the nodes and initializers behind some values."""
        needed: set[str] = set()
        waiting = list(values)
        while waiting:
            name = waiting.pop()
            if name not in needed:
                needed.add(name)
                waiting += self.producers[name].input if name in self.producers else ()
        nodes = [node for node in self.proto.graph.node if needed.intersection(node.output)]
        return nodes, [tensor for name, tensor in self._tensors.items() if name in needed]

    def _decode(self, tensor: Any) -> Array:
        kinds = {number: name for name, number in _TYPES.items()}
        if tensor.data_type not in kinds:
            raise ReadError(self.path, f"it has a tensor of an unsupported type ({tensor.data_type})")
        dtype, dims = np.dtype(kinds[tensor.data_type]).newbyteorder("<"), list(tensor.dims)
        size = math.prod(dims) * dtype.itemsize
        if min(dims, default=0) < 0 or size > FILE_LIMIT:
            raise ReadError(self.path, f"it has a tensor of the shape {dims}")
        if tensor.data_location == _EXTERNAL:
            data = self._external({entry.key: entry.value for entry in tensor.external_data}, size)
        elif tensor.HasField("raw_data"):
            data = tensor.raw_data
        else:
            listed = tensor.float_data or tensor.int32_data or tensor.int64_data
            data = np.array(listed).astype(dtype).tobytes()
        if len(data) != size:
            raise ReadError(self.path, "it has a tensor of another size than it says")
        return np.frombuffer(data, dtype).reshape(dims)

    def _external(self, where: Mapping[str, str], size: int) -> bytes:
        """Read a tensor from the file beside the model that it names."""
        name = Path(where.get("location", ""))
        if name.is_absolute() or ".." in name.parts or not name.parts:
            raise ReadError(self.path, f"it names a file outside its folder: {name}")
        offset = where.get("offset", "0")
        with open_regular(self.path.parent / name) as file:
            try:
                file.seek(int(offset))
            except (ValueError, OverflowError, OSError) as error:
                raise ReadError(self.path, f"a tensor has the offset {offset!r:.40}") from error
            return file.read(size)
