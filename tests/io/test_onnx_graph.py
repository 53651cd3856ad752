"""Models that we write, run by ONNX Runtime and computed again by NumPy."""

import json

import numpy as np
import onnx
import onnxruntime
import pytest

from prolip.core import Head, Projected, Text
from prolip.io.onnx_graph import Graph, OnnxModel
from prolip.io.reading import ReadError

RNG = np.random.default_rng(0)
ROWS = ("float32", ("batch", "width"))


def run(graph, inputs, result, dtype="float32"):
    """What ONNX Runtime makes of a graph on these arrays."""
    graph.node("Identity", result, output="result")
    rank = {name: tuple(f"{name}_{axis}" for axis in range(x.ndim)) for name, x in inputs.items()}
    kinds = {name: (x.dtype.name, rank[name]) for name, x in inputs.items()}
    session = open_session(graph.to_bytes(kinds, {"result": (dtype, ("rows", "columns"))}))
    return session.run(None, inputs)[0]


def open_session(model):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def test_unit_rows_leave_a_zero_row():
    x = np.array([[3.0, 4.0], [0.0, 0.0]], np.float32)
    graph = Graph()
    np.testing.assert_allclose(run(graph, {"x": x}, graph.unit_rows("x")), [[0.6, 0.8], [0, 0]], atol=1e-7)


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("bias", [None, [1.0, -2.0, 3.0]])
@pytest.mark.parametrize("adapter", [None, RNG.normal(size=(3, 3))])
def test_a_projected_model_is_what_it_computes(residual, bias, adapter):
    head = Head(RNG.normal(size=(5, 3)), bias, residual)
    fitted = Projected(head, Text(RNG.normal(size=(4, 3))), 12.5, adapter)
    x = RNG.normal(size=(6, head.width)).astype(np.float32)
    graph = Graph()
    np.testing.assert_allclose(run(graph, {"x": x}, fitted.to_onnx(graph, "x")), fitted.logits(x), atol=1e-4)
    graph = Graph()
    found = run(graph, {"x": x}, fitted.embed_to_onnx(graph, "x"))
    np.testing.assert_allclose(found, fitted.embed(x), atol=1e-5)


def test_metadata_reads_back():
    graph = Graph()
    graph.node("Relu", "x", output="y")
    about = {"method": "prolip", "classes": ["Käse", "猫"], "temperature": 1.5}
    model = graph.to_bytes({"x": ROWS}, {"y": ROWS}, about)
    found = open_session(model).get_modelmeta()
    assert found.producer_name == "prolip"
    kept = found.custom_metadata_map
    assert kept["method"] == "prolip"
    assert json.loads(kept["classes"]) == about["classes"]
    assert json.loads(kept["temperature"]) == 1.5


def test_tensors_read_back_from_the_file_or_beside_it(tmp_path):
    array = RNG.normal(size=(3, 2)).astype(np.float32)
    graph = Graph()
    name = graph.constant(array)
    graph.node("Identity", name, output="result")
    path = tmp_path / "model.onnx"
    path.write_bytes(graph.to_bytes({}, {"result": ("float32", (3, 2))}))
    for beside in (False, True):
        if beside:
            onnx.save(onnx.load(path), path, save_as_external_data=True, location="weights", size_threshold=0)
        model = OnnxModel(path)
        np.testing.assert_array_equal(model.constant(name), array)
        assert model.constant("result") is None  # computed
        nodes, tensors = model.parts(["result"])
        assert [node.op_type for node in nodes] == ["Identity"]
        assert [tensor.name for tensor in tensors] == [name]


@pytest.mark.parametrize("location", ["../weights", "/etc/hostname", "missing"])
def test_tensors_outside_the_folder_are_refused(tmp_path, location):
    (tmp_path / "weights").write_bytes(bytes(24))
    graph = Graph()
    name = graph.constant(np.zeros((3, 2)))
    graph.node("Identity", name, output="result")
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "a.onnx").write_bytes(graph.to_bytes({}, {"result": ("float32", (3, 2))}))
    model = OnnxModel(folder / "a.onnx")
    (tensor,) = model.proto.graph.initializer
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    with pytest.raises(ReadError):
        model.constant(name)


def test_a_model_of_an_older_operator_set_runs_inside_a_new_one(tmp_path):
    old = Graph()
    old.node("ReduceMean", "x", axes=[1], keepdims=1, output="mean")
    old.node("Squeeze", "mean", axes=[1], output="squeezed")
    old.node("Unsqueeze", "squeezed", axes=[0], output="mean_row")
    old.node("ReduceSum", "x", keepdims=1, output="total")  # without axes: of all
    (tmp_path / "old.onnx").write_bytes(old.to_bytes({"x": ROWS}, {"total": ROWS}))
    model = OnnxModel(tmp_path / "old.onnx")
    model.proto.opset_import[0].version = 12
    x = RNG.normal(size=(3, 3)).astype(np.float32)
    for value, expected in {"mean_row": x.mean(axis=1)[None], "total": [[x.sum()]]}.items():
        graph = Graph()
        graph.include(model, [value])
        np.testing.assert_allclose(run(graph, {"x": x}, value), expected, rtol=1e-5)
