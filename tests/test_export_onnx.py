"""ONNX graphs of the offline encoder, written without torch and without the onnx package."""

import errno
import json
import sys

import numpy as np
import onnxruntime
import pytest

from pictures import COLOURS, blotch
from prolip.core import Head, ModelError, Projected, UsageError
from prolip.core.arrays import softmax, unit_rows
from prolip.core.fitted import Fitted
from prolip.export import onnx as module
from prolip.export.write import export
from prolip.io.writing import WriteError
from prolip.methods.classifiers import (
    AdapterClassifier,
    CacheClassifier,
    LinearClassifier,
    TextProjected,
)
from prolip.methods.composition import Combined

TEMPLATE = "a photo of a {}."
CONFIG = {
    "prolip": "0", "model": "offline", "method": "prolip", "kind": "projected", "classes": list(COLOURS),
    "templates": [TEMPLATE], "temperature": 1.25, "fingerprint": "f", "fit": {"images": 4, "shots": 2.0},
}  # fmt: skip
RNG = np.random.default_rng(0)


@pytest.fixture(scope="module")
def pixels(offline):
    return np.stack([offline.preprocess.centre(blotch(c, k, 90)) for k, c in enumerate(COLOURS.values())])


@pytest.fixture(scope="module")
def models(offline, pixels):
    """One of each kind of fitted model, with numbers out of the air."""
    text, head, scale = offline.text(list(COLOURS), [TEMPLATE]), offline.head, offline.scale
    keys = unit_rows(head(offline.encode(pixels)))
    tuned = Head(head.weight + 0.01 * RNG.normal(size=head.weight.shape))
    made = {
        "zero_shot": Projected(head, text, scale),
        "prolip": Projected(tuned, text, scale, tuned=True),
        "rla": Projected(head, text, scale, adapter=np.eye(512) + 0.1 * RNG.normal(size=(512, 512))),
        "linear": LinearClassifier(head, text, RNG.normal(size=(3, 512)), RNG.normal(size=3)),
        "linear, before": LinearClassifier(head, text, RNG.normal(size=(3, 1280)), np.zeros(3), "pre"),
        "cache": CacheClassifier(head, text, scale, keys, np.array([0, 1, 2]), 2.0, 5.5),
        "adapter": AdapterClassifier(
            head, text, scale, RNG.normal(size=(512, 8)), RNG.normal(size=(8, 512)), 0.2
        ),
        "text": TextProjected(head, text, scale, Head(RNG.normal(size=(512, 512)), offline.text_head.bias)),
    }
    return {**made, "combined": Combined((made["rla"], made["linear"]), (0.7, 0.4))}


def session(path):
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize(
    "kind",
    ["zero_shot", "prolip", "rla", "linear", "linear, before", "cache", "adapter", "text", "combined"],
)
def test_onnx_runtime_gives_the_same(offline, pixels, models, tmp_path, kind):
    fitted = models[kind]
    export(tmp_path / "out", offline, fitted, CONFIG, ["onnx"])
    x = offline.encode(pixels)
    classifier = session(tmp_path / "out" / "classifier.onnx")
    found = classifier.run(None, {"pixels": pixels})[0]
    np.testing.assert_allclose(found, softmax(fitted.logits(x) / 1.25), atol=1e-4)
    about = classifier.get_modelmeta().custom_metadata_map
    assert json.loads(about["classes"]) == list(COLOURS)
    assert json.loads(about["pixels"])["size"] == 224
    assert about["base_model"] == "offline"
    assert (tmp_path / "out" / "image.onnx").exists() == isinstance(fitted, Projected)
    if isinstance(fitted, Projected):
        found = session(tmp_path / "out" / "image.onnx").run(None, {"pixels": pixels[:1]})[0]
        np.testing.assert_allclose(found, fitted.embed(x[:1]), atol=1e-4)


def test_the_text_graph_reads_prompts_of_any_length_and_language(offline, models, tmp_path):
    export(tmp_path / "out", offline, models["zero_shot"], CONFIG, ["onnx"])
    graph = session(tmp_path / "out" / "text.onnx")
    prompts = ["cat", "", "ein Foto von einem sehr großen Hund auf einer Wiese", "猫の写真", "кот " * 300]
    expected = unit_rows(offline.text_head(offline.encode_text(prompts)))
    for some in ([0], [1], [4], [0, 1, 2, 3, 4]):  # alone, and padded
        tokens = offline.token_arrays([prompts[i] for i in some])
        np.testing.assert_allclose(graph.run(None, tokens)[0], expected[some], atol=1e-5)


@pytest.mark.every_environment
def test_no_torch_and_no_onnx_package_are_needed(offline, models, tmp_path, monkeypatch):
    for name in ("torch", "onnx", "onnxscript"):
        monkeypatch.setitem(sys.modules, name, None)  # importing it fails
    assert "classifier.onnx" in export(tmp_path / "out", offline, models["prolip"], CONFIG, ["onnx"])


def test_a_graph_that_computes_something_else_is_not_kept(offline, models, tmp_path, monkeypatch):
    wrong = models["zero_shot"]
    monkeypatch.setattr(type(wrong), "to_onnx", lambda self, graph, x: models["linear"].to_onnx(graph, x))
    with pytest.raises(ModelError):
        export(tmp_path / "out", offline, wrong, CONFIG, ["onnx"])
    monkeypatch.setattr(type(wrong), "to_onnx", lambda self, graph, x: graph.node("NoSuchThing", x))
    with pytest.raises(ModelError):
        export(tmp_path / "out", offline, wrong, CONFIG, ["onnx"])
    assert list(tmp_path.iterdir()) == []


def test_a_method_without_a_graph_is_refused(offline, models, tmp_path, monkeypatch):
    monkeypatch.setattr(CacheClassifier, "to_onnx", Fitted.to_onnx)
    with pytest.raises(UsageError):
        export(tmp_path / "out", offline, models["cache"], CONFIG, ["onnx"])
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_nothing(offline, models, tmp_path, monkeypatch):
    written, write = [], module.write_bytes

    def full(path, payload):
        written.append(path)
        if len(written) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, payload)

    monkeypatch.setattr(module, "write_bytes", full)
    with pytest.raises(WriteError):
        export(tmp_path / "out", offline, models["zero_shot"], CONFIG, ["onnx"])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("to", ["hf", "open_clip"])
def test_a_format_that_a_model_cannot_have_is_refused_before_anything_is_read_or_written(
    prolip, colour_model, tmp_path, to
):
    colour_model.save(tmp_path / "m")
    code, out, err = prolip(
        "export", tmp_path / "m", "--to", to, "-o", tmp_path / "out", "--eval", tmp_path / "no-such-folder"
    )
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert not (tmp_path / "out").exists()
