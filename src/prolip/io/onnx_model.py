"""Reading ONNX models by hand: the nodes and tensors of a graph, and the same graph with other outputs.

An ONNX file is a protobuf message (see `onnx_graph`, which writes them). Only what is needed to find a linear
map inside a graph is parsed; everything else is passed on byte for byte. A file may come from anywhere: every
length is checked against what is there, and tensors are decoded only when they are needed.

    ModelProto    1 ir_version   7 graph   8 opset_import
    GraphProto    1 node   5 initializer   11 input   12 output
    NodeProto     1 input   2 output   3 name   4 op_type   5 attribute
    TensorProto   1 dims   2 data_type   4 float_data   5 int32_data   7 int64_data   8 name   9 raw_data
                  13 external_data   14 data_location
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from prolip.core.arrays import Array
from prolip.io.onnx_graph import bytes_field, tensor_proto
from prolip.io.reading import Unreadable, open_regular

_DTYPES = {1: "<f4", 2: "|u1", 3: "|i1", 6: "<i4", 7: "<i8", 9: "|b1", 10: "<f2", 11: "<f8"}
_EXTERNAL = 1  # data_location of a tensor whose data is in a file beside the model


@dataclass(frozen=True)
class Node:
    """An operation of a graph."""

    kind: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, memoryview] = field(repr=False)  # AttributeProto by name

    def integer(self, name: str, default: int = 0) -> int:
        """Return an attribute that is an integer."""
        found = dict(_fields(self.attributes[name])) if name in self.attributes else {}
        value = found.get(3, default)
        return value if isinstance(value, int) else default


@dataclass(frozen=True)
class OnnxModel:
    """A model file: its nodes in order, its tensors, its inputs and outputs."""

    path: Path
    content: memoryview
    nodes: tuple[Node, ...]
    inputs: tuple[str, ...]  # without those that have an initializer
    outputs: tuple[str, ...]
    opset: int
    ir_version: int
    _tensors: Mapping[str, memoryview]

    @classmethod
    def read(cls, path: Path) -> OnnxModel:
        """Read and parse a model file."""
        with open_regular(path) as file:
            return cls.parse(file.read(), path)

    @classmethod
    def parse(cls, content: bytes, path: Path) -> OnnxModel:
        """Parse the content of a file; `path` is for messages and for tensors in other files."""
        view = memoryview(content)
        try:
            nodes, tensors, inputs, outputs, opset, version = [], {}, [], [], 1, 0
            for number, value in _fields(view):
                if number == 7 and isinstance(value, memoryview):
                    for part, body in _fields(value):
                        if not isinstance(body, memoryview):
                            continue
                        if part == 1:
                            nodes.append(_node(body))
                        elif part == 5:
                            tensors[_text(_first(body, 8))] = body
                        elif part == 11:
                            inputs.append(_text(_first(body, 1)))
                        elif part == 12:
                            outputs.append(_text(_first(body, 1)))
                elif number == 1 and isinstance(value, int):
                    version = value
                elif number == 8 and isinstance(value, memoryview) and not _text(_first(value, 1)):
                    stated = _first(value, 2)
                    opset = stated if isinstance(stated, int) else 1
        except (IndexError, UnicodeDecodeError) as error:
            raise Unreadable(path, "it is not an ONNX model") from error
        if not nodes or not outputs:
            raise Unreadable(path, "it is not an ONNX model")
        given = tuple(name for name in inputs if name not in tensors)
        return cls(path, view, tuple(nodes), given, tuple(outputs), opset, version, tensors)

    @cached_property
    def producers(self) -> dict[str, Node]:
        """The node behind every value."""
        return {output: node for node in self.nodes for output in node.outputs}

    def constant(self, name: str) -> Array | None:
        """Return a tensor of the model, an initializer or a Constant; None for a value that is computed."""
        if name in self._tensors:
            return self._decode(self._tensors[name])
        node = self.producers.get(name)
        if node is None or node.kind != "Constant" or "value" not in node.attributes:
            return None
        body = _first(node.attributes["value"], 5)
        return self._decode(body) if isinstance(body, memoryview) and len(body) else None

    def initializer(self, name: str) -> str | None:
        """Return the name if it is that of an initializer."""
        return name if name in self._tensors else None

    def with_outputs(self, names: Iterable[str]) -> bytes:
        """Return the model with these values as its outputs; what they do not need is left to the runtime."""

        def graph(body: memoryview) -> bytes:
            parts = [bytes(raw) for number, raw in _raw_fields(body) if number != 12]
            return b"".join(parts) + b"".join(
                bytes_field(12, bytes_field(1, name.encode())) for name in names
            )

        return self._with_graph(graph)

    def with_tensor(self, name: str, array: Array) -> bytes:
        """Return the model with another initializer of the same name, all else byte for byte."""

        def graph(body: memoryview) -> bytes:
            parts = []
            for number, raw in _raw_fields(body):
                replaced = number == 5 and _text(_first(_body(raw), 8)) == name
                parts.append(bytes_field(5, tensor_proto(name, array)) if replaced else bytes(raw))
            return b"".join(parts)

        return self._with_graph(graph)

    def parts(self, values: Iterable[str]) -> tuple[list[bytes], list[bytes], list[bytes]]:
        """Return the nodes and initializers behind some values, and the opset imports, as they stand here."""
        needed: set[str] = set()
        waiting = list(values)
        while waiting:
            name = waiting.pop()
            if name not in needed:
                needed.add(name)
                waiting += self.producers[name].inputs if name in self.producers else ()
        nodes, tensors, imports = [], [], []
        place = 0
        for number, raw in _raw_fields(self.content):
            if number == 8:
                imports.append(bytes(_body(raw)))
            elif number == 7:
                for part, inner in _raw_fields(_body(raw)):
                    if part == 1:
                        if needed.intersection(self.nodes[place].outputs):
                            nodes.append(bytes(_body(inner)))
                        place += 1
                    elif part == 5 and _text(_first(_body(inner), 8)) in needed:
                        tensors.append(bytes(_body(inner)))
        return nodes, tensors, imports

    def _with_graph(self, change: Callable[[memoryview], bytes]) -> bytes:
        parts = [
            bytes_field(7, change(_body(raw))) if number == 7 else bytes(raw)
            for number, raw in _raw_fields(self.content)
        ]
        return b"".join(parts)

    def _decode(self, body: memoryview) -> Array:
        dims, kind, raw, packed = [], 0, None, None
        location: int | memoryview = 0
        external: dict[str, str] = {}
        for number, value in _fields(body):
            if number == 1:
                dims += [value] if isinstance(value, int) else list(_varints(value))
            elif number == 2 and isinstance(value, int):
                kind = value
            elif number in (4, 5, 7) and isinstance(value, memoryview):
                packed = (number, value)
            elif number == 9:
                raw = value
            elif number == 13 and isinstance(value, memoryview):
                external[_text(_first(value, 1))] = _text(_first(value, 2))
            elif number == 14:
                location = value
        if kind not in _DTYPES:
            raise Unreadable(self.path, f"it has a tensor of an unsupported type ({kind})")
        dtype, count = np.dtype(_DTYPES[kind]), int(np.prod(dims, dtype=np.int64))
        if location == _EXTERNAL:
            data = self._external(external, count * dtype.itemsize)
        elif isinstance(raw, memoryview):
            data = bytes(raw)
        elif packed is not None and packed[0] == 4:
            data = bytes(packed[1])
        elif packed is not None:
            data = np.array(list(_varints(packed[1])), np.int64).astype(dtype).tobytes()
        else:
            data = b""
        if len(data) != count * dtype.itemsize:
            raise Unreadable(self.path, "it has a tensor of another size than it says")
        return np.frombuffer(data, dtype).reshape(dims)

    def _external(self, where: Mapping[str, str], size: int) -> bytes:
        """Read a tensor from the file beside the model that it names."""
        name = Path(where.get("location", ""))
        if name.is_absolute() or ".." in name.parts or not name.parts:
            raise Unreadable(self.path, f"it names a file outside its folder: {name}")
        with open_regular(self.path.parent / name) as file:
            file.seek(int(where.get("offset", "0")))
            return file.read(size)


def _node(body: memoryview) -> Node:
    inputs, outputs, attributes = [], [], {}
    name = kind = ""
    for number, value in _fields(body):
        if not isinstance(value, memoryview):
            continue
        if number == 1:
            inputs.append(_text(value))
        elif number == 2:
            outputs.append(_text(value))
        elif number == 3:
            name = _text(value)
        elif number == 4:
            kind = _text(value)
        elif number == 5:
            attributes[_text(_first(value, 1))] = value
    return Node(kind, name, tuple(inputs), tuple(outputs), attributes)


def _first(body: memoryview, wanted: int) -> memoryview | int:
    """Return the first field of a number; nothing is an empty one."""
    return next((value for number, value in _fields(body) if number == wanted), memoryview(b""))


def _text(value: memoryview | int) -> str:
    return bytes(value).decode() if isinstance(value, memoryview) else ""


def _fields(view: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Yield the number and the value of each field."""
    for number, start, end, value in _walk(view):
        yield number, view[start:end] if value is None else value


def _raw_fields(view: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Yield the number of each field and all its bytes, the key and the length among them."""
    place = 0
    for number, _, end, _ in _walk(view):
        yield number, view[place:end]
        place = end


def _body(raw: memoryview) -> memoryview:
    """Return what a field with a length holds."""
    _, start, end, _ = next(_walk(raw))
    return raw[start:end]


def _walk(view: memoryview) -> Iterator[tuple[int, int, int, int | None]]:
    """Yield number, start and end of each field; and its value, if it is an integer."""
    place, size = 0, len(view)
    while place < size:
        key, place = _varint(view, place)
        kind, number, value = key & 7, key >> 3, None
        start = place
        if kind == 0:
            value, place = _varint(view, place)
        elif kind == 1:
            place += 8
        elif kind == 2:
            length, start = _varint(view, place)
            place = start + length
        elif kind == 5:
            place += 4
        else:
            raise IndexError(f"a field of kind {kind}")
        if place > size:
            raise IndexError("a field is longer than the file")
        yield number, start, place, value


def _varints(view: memoryview) -> Iterator[int]:
    place = 0
    while place < len(view):
        value, place = _varint(view, place)
        yield value - (1 << 64) if value >> 63 else value


def _varint(view: memoryview, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = view[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
        shift += 7
        if shift > 63:
            raise IndexError("a number is too long")
