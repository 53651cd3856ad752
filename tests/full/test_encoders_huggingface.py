"""Models of transformers, tiny and with random weights, loaded as a user loads them: by folder or by id."""

import json
import shutil
import sys

import pytest
import torch

from closeness import assert_close
from prolip.core.errors import ModelError, UsageError
from prolip.encoders import load
from prolip.io.environment import MissingPackageError
from tiny_models import as_pixels, normalised, pictures, write_clip, write_siglip

transformers = pytest.importorskip("transformers")

COMMIT = "0123456789abcdef0123456789abcdef01234567"
PROMPTS = ["a photo of a cat", "a dog", "cat"]


@pytest.fixture(autouse=True)
def hub_is_away(monkeypatch):
    """Nothing listens there: whoever asks the hub is refused at once."""
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    return write_clip(tmp_path_factory.mktemp("clip"))


@pytest.fixture(scope="module")
def siglip(tmp_path_factory):
    return write_siglip(tmp_path_factory.mktemp("siglip"))


@pytest.mark.parametrize("kind", ["clip", "siglip"])
def test_features_and_heads_make_the_models_own_embeddings(request, kind):
    folder = request.getfixturevalue(kind)
    encoder, model = load(f"hf:{folder}", "cpu"), transformers.AutoModel.from_pretrained(folder).eval()
    images = [image.resize((60, 50)) for image in pictures()]  # larger ones are averaged in blocks first
    processor = transformers.AutoImageProcessor.from_pretrained(folder, backend="pil")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    length = model.config.text_config.max_position_embeddings
    with torch.no_grad():
        pixels = processor(images, return_tensors="pt")["pixel_values"]
        expected = model.get_image_features(pixel_values=pixels).pooler_output
        tokens = tokenizer(PROMPTS, padding="max_length", max_length=length, return_tensors="pt")["input_ids"]
        expected_text = model.get_text_features(input_ids=tokens).pooler_output
    features = encoder.encode(as_pixels(encoder, images))
    assert_close(encoder.head(features), expected, atol=1e-5, rtol=1e-5)
    assert_close(encoder.text_head(encoder.encode_text(PROMPTS)), expected_text, atol=1e-5, rtol=1e-5)
    linear = model.visual_projection if kind == "clip" else model.vision_model.head.mlp.fc2
    assert_close(encoder.head.weight, linear.weight.detach().T)
    assert (encoder.head.residual, encoder.black_box_reason) == (kind == "siglip", None)
    assert encoder.scale == pytest.approx(model.logit_scale.detach().exp().item())


def test_a_folder_is_named_by_its_whole_path(clip, monkeypatch):
    monkeypatch.chdir(clip.parent)
    assert load(f"hf:{clip.name}", "cpu").name == f"hf:{clip.resolve()}"


@pytest.mark.parametrize(
    "stated",
    [
        {},
        {"resample": 2},
        {"size": {"shortest_edge": 32}},
        {"image_mean": [0.1, 0.2, 0.3], "image_std": [0.4, 0.5, 0.6]},
        {"do_normalize": False},
    ],
)
def test_pictures_are_prepared_as_transformers_does(tmp_path, stated):
    encoder = load(f"hf:{write_clip(tmp_path, **stated)}", "cpu")
    processor = transformers.CLIPImageProcessorPil.from_pretrained(tmp_path)
    ours = normalised(encoder, as_pixels(encoder, pictures()))
    theirs = processor(pictures(), return_tensors="pt")["pixel_values"]
    assert_close(ours, theirs.to(torch.float32), atol=1e-5, rtol=0)


def test_old_processor_files_write_sizes_as_numbers(clip, tmp_path):
    folder = shutil.copytree(clip, tmp_path / "old")
    old = {"feature_extractor_type": "CLIPFeatureExtractor", "size": 36, "crop_size": 32, "resample": 3}
    (folder / "preprocessor_config.json").write_text(json.dumps(old))
    assert load(f"hf:{folder}", "cpu").preprocess == load(f"hf:{clip}", "cpu").preprocess


@pytest.mark.parametrize(
    "stated",
    [
        {"do_resize": False},
        {"crop_size": {"height": 32, "width": 24}},
        {"rescale_factor": 1.0},
        {"crop_size": {"height": 24, "width": 24}},  # the model takes 32
    ],
)
def test_processors_that_cannot_be_followed(clip, tmp_path, stated):
    folder = shutil.copytree(clip, tmp_path / "odd")
    path = folder / "preprocessor_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **stated}))
    with pytest.raises(ModelError):
        load(f"hf:{folder}", "cpu")


def test_fingerprint_follows_weights_and_activation(clip, tmp_path):
    again = shutil.copytree(clip, tmp_path / "again")
    assert load(f"hf:{again}", "cpu").fingerprint == load(f"hf:{clip}", "cpu").fingerprint
    config = json.loads((again / "config.json").read_text())
    config["vision_config"]["hidden_act"] = "gelu"
    (again / "config.json").write_text(json.dumps(config))
    assert load(f"hf:{again}", "cpu").fingerprint != load(f"hf:{clip}", "cpu").fingerprint


@pytest.fixture
def cached(clip, tmp_path, monkeypatch):
    """The model as the hub's cache keeps it, under the id someone/tiny-clip."""
    repository = tmp_path / "models--someone--tiny-clip"
    shutil.copytree(clip, repository / "snapshots" / COMMIT)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))


def test_cached_model_loads_while_the_hub_is_away(cached, clip):
    encoder = load("hf:someone/tiny-clip", "cpu")
    assert (encoder.name, encoder.revision) == ("hf:someone/tiny-clip", COMMIT)
    assert encoder.fingerprint == load(f"hf:{clip}", "cpu").fingerprint


def test_hub_that_cannot_be_reached(cached, capfd):
    with pytest.raises(ModelError) as error:
        load("hf:someone/other-clip", "cpu")
    assert "\n" not in str(error.value)
    assert error.value.__cause__ is not None
    assert capfd.readouterr().err == ""


def test_folders_that_are_not_models(clip, tmp_path):
    with pytest.raises(ModelError):
        load(f"hf:{tmp_path / 'none'}", "cpu")
    folder = shutil.copytree(clip, tmp_path / "part")
    weights = folder / "model.safetensors"
    weights.rename(folder / "pytorch_model.bin")
    with pytest.raises(ModelError):
        load(f"hf:{folder}", "cpu")
    weights.write_bytes((folder / "pytorch_model.bin").read_bytes()[:-1000])
    with pytest.raises(ModelError):
        load(f"hf:{folder}", "cpu")


def test_other_kinds_of_model(clip, tmp_path):
    folder = shutil.copytree(clip, tmp_path / "bert")
    (folder / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(ModelError):
        load(f"hf:{folder}", "cpu")


def test_no_name_and_no_library(monkeypatch):
    with pytest.raises(UsageError):
        load("hf:", "cpu")
    for missing in ("transformers", "torch"):
        monkeypatch.setitem(sys.modules, missing, None)
        with pytest.raises(MissingPackageError, match=missing):
            load("hf:openai/clip-vit-base-patch32", "cpu")
