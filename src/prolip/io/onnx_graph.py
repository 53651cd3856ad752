"""Build ONNX models from NumPy arrays, and read those of others, with the package onnx.

An input of a node that is not a name is a constant:

    graph = Graph()
    y = graph.node("MatMul", "x", weight)
    graph.node("Relu", y, output="positive")
    model = graph.to_bytes({"x": ("float32", ("batch", 4))}, {"positive": ("float32", ("batch", 2))})
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from prolip.io.reading import ReadError, reading

if TYPE_CHECKING:
    from prolip.core.arrays import Array
    from prolip.core.head import Head

OPSET = 18
IR_VERSION = 8  # the one that came with opset 18

# Name: (element type of an array, the array's shape; a string is a size that is known at run time).
Values = Mapping[str, tuple[str, tuple[int | str, ...]]]


class Graph:
    """Operations of ONNX's default set, in the order in which they are added."""

    def __init__(self, prefix: str = "prolip") -> None:
        """`prefix` is that of new names, which the body of a loop must not share with the graph around it."""
        self._prefix = prefix
        self._nodes: list[Any] = []
        self._tensors: list[Any] = []
        self._opsets = {"": OPSET}

    def include(self, model: OnnxModel, values: Iterable[str]) -> None:
        """Add what computes some values of another model, converted to this operator set."""
        nodes, tensors = model.converted().parts(values)
        self._nodes += nodes
        self._tensors += tensors
        for each in model.proto.opset_import:
            self._opsets[each.domain] = max(self._opsets.get(each.domain, 1), each.version)

    def constant(self, value: Any) -> str:
        """Add an array to the model, floats as float32; return its name."""
        from onnx import numpy_helper

        array = np.asarray(value)
        if array.dtype.kind == "f":
            array = array.astype(np.float32, copy=False)
        name = f"{self._prefix}_constant_{len(self._tensors)}"
        self._tensors.append(numpy_helper.from_array(array, name))
        return name

    def node(self, kind: str, *inputs: Any, output: str | None = None, **attributes: Any) -> str:
        """Add an operation; return the name of its output, which is `output` if that is given.

        An input is the name of a graph input or of another node's output; anything else becomes a constant.
        """
        from onnx import helper

        name = output or f"{self._prefix}_{kind.lower()}_{len(self._nodes)}"
        sources = [x if isinstance(x, str) else self.constant(x) for x in inputs]
        self._nodes.append(helper.make_node(kind, sources, [name], **attributes))
        return name

    def cast(self, x: str, dtype: str, output: str | None = None) -> str:
        """Add the conversion to another element type."""
        return self.node("Cast", x, to=_element_type(dtype), output=output)

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

    def to_proto(self, inputs: Values, outputs: Values) -> Any:
        """Return the graph alone, as the body of a loop."""
        from onnx import helper

        return helper.make_graph(
            self._nodes, self._prefix, _described(inputs), _described(outputs), self._tensors
        )

    def to_bytes(self, inputs: Values, outputs: Values, metadata: Mapping[str, Any] | None = None) -> bytes:
        """Return the content of the model file; metadata that is not text is written as JSON."""
        from onnx import helper

        graph = self.to_proto(inputs, outputs)
        opsets = [helper.make_opsetid(domain, version) for domain, version in self._opsets.items()]
        model = helper.make_model(graph, producer_name="prolip", ir_version=IR_VERSION, opset_imports=opsets)
        texts = {
            key: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            for key, value in (metadata or {}).items()
        }
        helper.set_model_props(model, texts)
        content: bytes = model.SerializeToString()
        return content


def _described(values: Values) -> list[Any]:
    from onnx import helper

    return [
        helper.make_tensor_value_info(name, _element_type(dtype), shape)
        for name, (dtype, shape) in values.items()
    ]


def _element_type(dtype: str) -> int:
    from onnx import helper

    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


class OnnxModel:
    """A model file, which may come from anywhere; tensors are decoded only when they are needed."""

    def __init__(self, path: Path, proto: Any = None) -> None:
        import onnx

        self.path = path
        with reading(path):
            self.proto = proto or onnx.load(path, load_external_data=False)
        graph = self.proto.graph
        self.producers = {output: node for node in graph.node for output in node.output}
        self.outputs: list[str] = [output.name for output in graph.output]
        self._tensors = {tensor.name: tensor for tensor in graph.initializer}
        if not graph.node or not self.outputs:
            raise ReadError(path, "it is not an ONNX model")

    def constant(self, name: str) -> Array | None:
        """Return a tensor of the model, an initializer or a Constant; None for a value that is computed."""
        from onnx import numpy_helper

        tensor = self._tensors.get(name)
        if tensor is None and (node := self.producers.get(name)) is not None and node.op_type == "Constant":
            tensor = next((each.t for each in node.attribute if each.name == "value"), None)
        with reading(self.path):
            return None if tensor is None else numpy_helper.to_array(tensor, str(self.path.parent))

    def with_outputs(self, names: Iterable[str]) -> bytes:
        """Return the model with these values as its outputs; what they do not need is left to the runtime."""
        kept = list(self.proto.graph.output)
        del self.proto.graph.output[:]
        for name in names:
            self.proto.graph.output.add(name=name)
        content: bytes = self.proto.SerializeToString()
        del self.proto.graph.output[:]
        self.proto.graph.output.extend(kept)
        return content

    def converted(self) -> OnnxModel:
        """Return the model in the operator set that is written here."""
        from onnx import version_converter

        if any(each.domain == "" and each.version < OPSET for each in self.proto.opset_import):
            return OnnxModel(self.path, version_converter.convert_version(self.proto, OPSET))
        return self

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
