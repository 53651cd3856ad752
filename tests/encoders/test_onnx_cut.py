"""The last linear map of a graph, found for every way in which exporters write it: run again by NumPy."""

import numpy as np
import onnxruntime
import pytest

from prolip.encoders.onnx_cut import find_projection
from prolip.io.onnx_graph import Graph, OnnxModel

RNG = np.random.default_rng(0)
WEIGHT, BIAS = RNG.normal(size=(5, 3)).astype(np.float32), RNG.normal(size=3).astype(np.float32)


def gemm(graph, x):
    return graph.node("Gemm", x, WEIGHT.T.copy(), BIAS, transB=1)


def product(graph, x):
    return graph.node("MatMul", x, WEIGHT)


def product_and_bias(graph, x):
    return graph.node(
        "Add", BIAS, graph.node("MatMul", x, graph.node("Transpose", WEIGHT.T.copy(), perm=[1, 0]))
    )


def with_a_residual(graph, x):
    return graph.node("Add", graph.node("Relu", graph.node("MatMul", x, WEIGHT)), gemm(graph, x))


def unit(graph, y):
    return graph.unit_rows(y)


def unit_by_one_node(graph, y):
    return graph.node("LpNormalization", graph.node("Identity", y), axis=-1, p=2)


def as_it_is(graph, y):
    return y


def write(path, make, x=("batch", 5)):
    graph = Graph()
    graph.node("Identity", make(graph, graph.node("Tanh", "x")), output="y")
    path.write_bytes(graph.to_bytes({"x": ("float32", x)}, {"y": ("float32", ("batch", 3))}))
    return OnnxModel(path)


def run(content, x):
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})


@pytest.mark.parametrize("end", [as_it_is, unit, unit_by_one_node])
@pytest.mark.parametrize("linear", [gemm, product, product_and_bias, with_a_residual])
def test_the_map_and_what_goes_into_it_give_the_output(tmp_path, linear, end):
    model = write(tmp_path / "a.onnx", lambda graph, x: end(graph, linear(graph, x)))
    found = find_projection(model, "y")
    x = RNG.normal(size=(4, 5)).astype(np.float32)
    [expected] = run((tmp_path / "a.onnx").read_bytes(), x)
    embedding = found.head(np.concatenate(run(model.with_outputs(found.features), x), axis=1))
    if end is not as_it_is:
        embedding /= np.linalg.norm(embedding, axis=1, keepdims=True)
    np.testing.assert_allclose(embedding, expected, atol=1e-5)
    assert found.head.residual == (linear is with_a_residual)


def softmax(graph, x):
    return graph.node("Softmax", gemm(graph, x), axis=-1)


def times_something_computed(graph, x):
    return graph.node("MatMul", graph.node("Softmax", x), graph.node("Tanh", WEIGHT))


def scaled(graph, x):
    return graph.node("Mul", gemm(graph, x), 2.0)


def nothing(graph, x):
    return "x"


@pytest.mark.parametrize("end", [softmax, times_something_computed, scaled, nothing])
def test_a_graph_that_ends_in_something_else_is_a_black_box(tmp_path, end):
    assert find_projection(write(tmp_path / "a.onnx", end), "y") is None
