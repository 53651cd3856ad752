"""ONNX graphs of towers in torch: the tower is traced, and what follows it is added to the file."""

import numpy as np
import onnxruntime
import pytest

from prolip.core import ModelError, Projected
from prolip.core.arrays import softmax
from prolip.encoders import load
from prolip.export import onnx_torch
from prolip.export.onnx import write_graphs
from tiny_models import CLASSES, TOWERS, tower_task, write_folder

pytest.importorskip("open_clip")
onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxscript")


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return load(f"open_clip:local-dir:{write_folder(tmp_path_factory.mktemp('vit'), TOWERS['vit'])}", "cpu")


@pytest.fixture(scope="module")
def fitted(encoder):
    adapter = np.eye(20) + 0.1 * np.random.default_rng(0).normal(size=(20, 20))
    return Projected(encoder.head, encoder.text(CLASSES, ["a photo of a {}."]), 20.0, adapter)


def test_weights_too_large_for_one_file_go_to_a_file_beside(encoder, fitted, tmp_path, monkeypatch):
    monkeypatch.setattr(onnx_torch, "_ONE_FILE", 0)
    write_graphs(tmp_path, encoder, fitted, 1.25, {"classes": list(CLASSES)}, all_graphs=True)
    assert any(file.suffix == ".data" for file in tmp_path.iterdir())
    _, pixels = tower_task(encoder)
    for name in ("classifier.onnx", "classifier_batch.onnx", "image.onnx"):
        onnx.checker.check_model(str(tmp_path / name), full_check=True)
    session = onnxruntime.InferenceSession(tmp_path / "classifier_batch.onnx")
    found = session.run(["probabilities"], {"pixels": pixels})[0]
    np.testing.assert_allclose(found, softmax(fitted.logits(encoder.encode(pixels)) / 1.25), atol=1e-4)


def test_a_tower_that_cannot_be_traced_says_so_in_one_line(encoder, fitted, tmp_path, monkeypatch):
    def broken(pixels):
        raise RuntimeError("this tower\nhas a story to tell")

    monkeypatch.setattr(encoder, "trace", broken)
    monkeypatch.setattr(encoder, "encode", lambda pixels: np.ones((len(pixels), 32), np.float32))
    with pytest.raises(ModelError) as outcome:
        write_graphs(tmp_path, encoder, fitted, 1.0, {})
    assert str(outcome.value) == "the tower cannot be traced: this tower"
