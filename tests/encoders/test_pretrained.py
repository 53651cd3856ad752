"""Models of a hub: downloaded when that was asked for, checked, and opened without torch."""

import json
import re
import shutil

import numpy as np
import onnx
import onnxruntime
import pytest

import prolip
from graph_models import DIM, SIZE, WIDTH, write_graphs
from hub_server import COMMIT, serving
from pictures import COLOURS, blotch
from prolip.core import ModelError, ProlipError, UsageError
from prolip.encoders import MODELS, check_model, load
from prolip.encoders.onnx import choose_onnx_device
from prolip.encoders.onnx_files import choose_files
from prolip.encoders.pretrained import (
    DownloadRequiredError,
    PretrainedModel,
    find_files,
    find_source,
)

NAME = "onnx:owner/model"


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A hub with one repository, and an empty cache for what comes from it."""
    write_graphs(tmp_path / "hub" / "owner" / "model")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hf"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
    with serving(tmp_path / "hub") as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.address)
        yield hub


def test_nothing_is_downloaded_unasked(hub):
    with pytest.raises(DownloadRequiredError) as refused:
        load(NAME)
    assert refused.value.name == NAME
    with pytest.raises(DownloadRequiredError):
        check_model("clip", require_here=True)
    assert hub.requests == []


def test_a_model_is_downloaded_once(hub, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_mine")
    steps = []
    encoder = load(NAME, download=True, progress=lambda done, total: steps.append((done, total)))
    assert encoder.head.weight.shape == (WIDTH, DIM)
    assert encoder.black_box_reason is None
    assert steps[-1][0] == steps[-1][1]
    assert hub.tokens == {"Bearer hf_mine"}
    hub.requests.clear()
    again = load(NAME, download=True)
    assert hub.requests == []  # neither asked for nor fetched
    pixels = np.random.default_rng(0).integers(0, 256, (5, 16, 16, 3), np.uint8)
    np.testing.assert_allclose(encoder.encode(pixels), again.encode(pixels), rtol=1e-5)
    np.testing.assert_allclose(load(NAME).encode(pixels), again.encode(pixels), rtol=1e-5)


def test_features_and_heads_are_the_graphs_own(hub):
    encoder = load(NAME, download=True)
    weights = np.random.default_rng(0)
    first, last = weights.normal(size=(3, WIDTH)), weights.normal(size=(WIDTH, DIM))
    pixels = np.random.default_rng(1).integers(0, 256, (3, 16, 16, 3), np.uint8)
    mean, std = np.array(encoder.preprocess.mean), np.array(encoder.preprocess.std)
    colours = ((pixels / 255 - mean) / std).mean(axis=(1, 2))
    features = np.maximum(colours @ first, 0)
    np.testing.assert_allclose(encoder.encode(pixels), features, atol=1e-4)
    np.testing.assert_allclose(encoder.head.weight, last, atol=1e-6)
    assert encoder.text_head(encoder.encode_text(["a red photo", "blue"])).shape == (2, DIM)


def test_a_file_of_another_content_is_refused_and_removed(hub):
    hub.faults.add("other")
    with pytest.raises(ModelError, match=r"SHA-256"):
        load(NAME, download=True)
    with pytest.raises(DownloadRequiredError):
        load(NAME)
    hub.faults.clear()
    assert load(NAME, download=True).head.dim == DIM


def test_a_hash_of_the_table_is_compared(hub, monkeypatch):
    known = PretrainedModel(
        "Tiny", "owner/model", "fp32", 1, "MIT", sha256={"onnx/vision_model.onnx": "0" * 64}
    )
    monkeypatch.setitem(MODELS, "tiny", known)
    with pytest.raises(ModelError, match="SHA-256"):
        load("tiny", download=True)
    monkeypatch.setitem(MODELS, "tiny", PretrainedModel("Tiny", "owner/model", "fp32", 1, "MIT"))
    encoder = load("tiny", download=True)
    assert (encoder.name, encoder.licence, encoder.scale) == ("tiny", "MIT", 100.0)


def test_what_cannot_be_downloaded_is_one_line(hub, monkeypatch):
    with pytest.raises(ModelError, match="check the name"):
        load("onnx:owner/absent", download=True)
    (hub.folder / "owner" / "model" / "onnx" / "text_model.onnx").unlink()
    with pytest.raises(ModelError):
        load(NAME, download=True)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(ModelError) as refused:
        load(NAME, download=True)
    assert not isinstance(refused.value, DownloadRequiredError)
    assert "\n" not in str(refused.value)


def test_a_copy_of_the_cache_is_enough_without_a_network(hub, monkeypatch, tmp_path):
    load(NAME, download=True)
    elsewhere = shutil.copytree(tmp_path / "hf", tmp_path / "copy", symlinks=True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(elsewhere / "hub"))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(ModelError) as refused:
        load(NAME, download=True)
    assert str(elsewhere / "hub") in str(refused.value)
    folder = "models--owner--model"
    assert folder in str(refused.value)
    shutil.move(elsewhere / folder, elsewhere / "hub" / folder)
    assert load(NAME, download=True).head.dim == DIM


def test_towers_in_a_folder_with_a_tokenizer_elsewhere(hub, monkeypatch):
    """The layout of `clip`: no configuration, and the input of the graph says the size."""
    root = hub.folder / "owner" / "model"
    (root / "vit").mkdir()
    names = {"vision": "visual.onnx", "text": "textual.onnx"}
    for tower in names:
        (root / "onnx" / f"{tower}_model.onnx").rename(root / "vit" / names[tower])
    (root / "preprocessor_config.json").unlink()
    (root / "config.json").unlink()
    (hub.folder / "owner" / "words").mkdir()
    (root / "tokenizer.json").rename(hub.folder / "owner" / "words" / "words.json")
    known = PretrainedModel(
        "Tiny", "owner/model", "fp32", 1, "MIT", subfolder="vit",
        tokenizer=("owner/words", "words.json", COMMIT),
    )  # fmt: skip
    monkeypatch.setitem(MODELS, "tiny", known)
    encoder = load("tiny", download=True)
    assert (encoder.preprocess.size, encoder.preprocess.crop) == (16, "round")
    assert encoder.text_head(encoder.encode_text(["red"])).shape == (1, DIM)


def test_a_damaged_cache_is_found(hub, tmp_path):
    load(NAME, download=True)
    find_files(find_source(NAME))["onnx/vision_model.onnx"].resolve().write_bytes(b"no graph")
    with pytest.raises(ProlipError):
        load(NAME)


def test_a_fingerprint_is_of_all_that_decides_the_features(tmp_path):
    """Also of tensors beside the graph, which an export has inside, and of the preprocessing."""
    write_graphs(tmp_path)
    graph = tmp_path / "onnx" / "vision_model.onnx"
    onnx.save(onnx.load(graph), graph, save_as_external_data=True, location="weights", size_threshold=100)
    seen = [load(f"onnx:{tmp_path}").fingerprint]
    clf = prolip.FewShotClassifier(f"onnx:{tmp_path}", store=False)
    clf.fit([blotch(colour, 0) for colour in COLOURS.values()], list(COLOURS))
    clf.export(tmp_path / "out", to="onnx")
    weights = graph.with_name("weights")
    weights.write_bytes(np.negative(np.frombuffer(weights.read_bytes(), np.float32)).tobytes())
    seen.append(load(f"onnx:{tmp_path}").fingerprint)
    about = {"size": SIZE, "crop_size": SIZE, "image_mean": [0.1, 0.2, 0.3]}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(about))
    seen.append(load(f"onnx:{tmp_path}").fingerprint)
    assert len(set(seen)) == 3


@pytest.mark.parametrize("name", ["onnx:nosuch", "onnx:a/b/c", "onnx:/nosuch/folder", "onnx:"])
def test_names_that_are_not_models(name):
    with pytest.raises((UsageError, ModelError)):
        load(name, download=True)


def test_short_names_have_what_people_choose_by():
    for name, model in MODELS.items():
        assert model.megabytes > 1, name
        assert model.licence, name
        assert model.precision in ("fp32", "int8"), name
        assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in model.sha256.values()), name
        assert sum(each.recommended for each in MODELS.values()) == 1
        assert model.revision is None or re.fullmatch("[0-9a-f]{40}", model.revision), name


@pytest.mark.parametrize(
    ("version", "kind"), [("1.23.2", "quantized"), ("1.24.2", "int8"), ("2.0.0", "int8")]
)
def test_an_older_runtime_takes_graphs_of_unsigned_weights(monkeypatch, version, kind):
    kinds = ("int8", "quantized")
    names = [f"onnx/{tower}_model_{kind}.onnx" for tower in ("vision", "text") for kind in kinds]
    monkeypatch.setattr(onnxruntime, "__version__", version)
    assert choose_files("a/b", names, "int8")[0] == f"onnx/vision_model_{kind}.onnx"


def test_models_are_listed_and_downloaded_by_commands(hub, prolip, monkeypatch, photos, tmp_path):
    monkeypatch.setitem(MODELS, "tiny", PretrainedModel("Tiny", "owner/model", "fp32", 1, "MIT"))
    code, out, _ = prolip("models", "--json")
    assert code == 0
    (tiny,) = [model for model in json.loads(out) if model["name"] == "tiny"]
    assert not tiny["downloaded"]
    assert prolip("fit", photos, "-o", tmp_path / "m", "--model", "tiny")[0] == 1
    assert hub.requests == []
    assert prolip("models", "get", "tiny")[0] == 0
    (tiny,) = [model for model in json.loads(prolip("models", "--json")[1]) if model["name"] == "tiny"]
    assert tiny["downloaded"]
    code, out, err = prolip("fit", photos, "-o", tmp_path / "m", "--model", "tiny", "--json")
    assert code == 0, err
    assert json.loads(out)["model"] == "tiny"
    picture = next((photos / "test" / "red").iterdir())
    code, out, err = prolip("predict", tmp_path / "m", picture, "--json")
    assert code == 0, err
    assert json.loads(out)[0]["class"] == "red"


def test_devices_by_name(tmp_path, monkeypatch):
    write_graphs(tmp_path)
    assert load(f"onnx:{tmp_path}", "auto").device == "cpu"
    for device in ("cuda", "mps", "tpu"):
        with pytest.raises(UsageError):
            load(f"onnx:{tmp_path}", device)
    there = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: there)
    devices = ("auto", "cuda:1", "cpu")
    assert tuple(map(choose_onnx_device, devices)) == ("cuda", "cuda:1", "cpu")
    real = onnxruntime.InferenceSession
    monkeypatch.setattr(onnxruntime, "InferenceSession", lambda *a, providers: real(*a, providers=there[1:]))
    assert load(f"onnx:{tmp_path}", "cuda").device == "cpu"
