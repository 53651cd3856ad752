"""open_clip models, tiny and with random weights, loaded as a user loads them: from a folder or a file."""

import json
import sys

import numpy as np
import pytest
import torch

from closeness import assert_close
from hub_server import point_to
from prolip.core.errors import ModelError, UsageError
from prolip.encoders import load
from prolip.encoders.split_tower_torch import split_at_linear
from prolip.io.environment import MissingPackageError
from tiny_models import OPEN_CLIP, as_pixels, normalised, pictures, random_model, word_tokenizer, write_folder

open_clip = pytest.importorskip("open_clip")

# Columns of the features; rows of the head; whether it has a bias, and a residual.
HEADS = {
    "clip-resnet": (256, 256, True, False),
    "clip-vit": (32, 32, False, False),
    "siglip": (192 + 96, 192, True, True),
    "timm-linear": (64, 64, False, False),
    "timm-mlp": (40, 40, True, False),
    "timm-classifier": (64, 64, True, False),
}


@pytest.fixture(autouse=True)
def hub_is_away(monkeypatch):
    """Nothing listens there: whoever asks the hub is refused at once."""
    point_to("http://127.0.0.1:9", monkeypatch)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("open_clip")
    return {name: write_folder(root / name, config) for name, config in OPEN_CLIP.items()}


@pytest.mark.parametrize("name", OPEN_CLIP)
def test_features_and_head_make_the_models_own_embedding(folders, name):
    encoder = load(f"open_clip:local-dir:{folders[name]}", "cpu")
    model, transform = open_clip.create_model_from_pretrained(f"local-dir:{folders[name]}")
    model.eval()
    images, prompts = pictures(), ["a photo of a cat.", "a photo of a very small dog.", "x"]
    with torch.no_grad():
        expected = model.encode_image(torch.stack([transform(image) for image in images]))
        expected_text = model.encode_text(open_clip.SimpleTokenizer(context_length=16)(prompts))

    features = encoder.encode(as_pixels(encoder, images))
    assert_close(encoder.head(features), expected, atol=1e-5, rtol=1e-5)
    assert_close(encoder.text_head(encoder.encode_text(prompts)), expected_text, atol=1e-5, rtol=1e-5)
    assert encoder.scale == pytest.approx(model.logit_scale.detach().exp().item())
    assert isinstance(features, np.ndarray)
    assert (features.dtype, encoder.device) == (np.float32, "cpu")


@pytest.mark.parametrize("name", HEADS)
def test_the_head_is_the_last_linear_map(folders, name):
    encoder = load(f"open_clip:local-dir:{folders[name]}", "cpu")
    head, features = encoder.head, encoder.encode(as_pixels(encoder, pictures()[:1]))
    assert (features.shape[1], head.weight.shape[0], head.bias is not None, head.residual) == HEADS[name]
    assert encoder.black_box_reason is None


def test_tower_that_ends_in_a_norm_is_a_black_box(folders):
    encoder = load(f"open_clip:local-dir:{folders['timm-bare']}", "cpu")
    assert np.array_equal(encoder.head.weight, np.eye(64))
    assert "last linear map" in encoder.black_box_reason


def test_model_is_left_as_it_was(folders):
    encoder = load(f"open_clip:local-dir:{folders['clip-resnet']}", "cpu")
    fresh = open_clip.create_model_from_pretrained(f"local-dir:{folders['clip-resnet']}")[0].state_dict()
    encoder.encode(as_pixels(encoder, pictures()[:1]))
    kept = encoder.model.state_dict()
    assert list(kept) == list(fresh)
    assert all(torch.equal(kept[name], fresh[name]) for name in fresh)


def test_fingerprint_follows_weights_and_activation(tmp_path):
    config = OPEN_CLIP["clip-vit"]
    same, again = write_folder(tmp_path / "a", config), write_folder(tmp_path / "b", config)
    other_weights = write_folder(tmp_path / "c", config, seed=1)
    other_activation = write_folder(tmp_path / "d", {**config, "quick_gelu": False})
    prints = [
        load(f"open_clip:local-dir:{folder}", "cpu").fingerprint
        for folder in (same, again, other_weights, other_activation)
    ]
    assert prints[0] == prints[1]
    assert len(set(prints)) == 3


@pytest.mark.parametrize("resize", ["shortest", "squash"])
@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear"])
def test_pictures_are_prepared_as_open_clip_does(tmp_path, resize, interpolation):
    stated = {
        "mean": [0.5, 0.4, 0.3], "std": [0.2, 0.3, 0.4],
        "resize_mode": resize, "interpolation": interpolation,
    }  # fmt: skip
    folder = write_folder(tmp_path, OPEN_CLIP["clip-vit"], stated)
    encoder = load(f"open_clip:local-dir:{folder}", "cpu")
    _, transform = open_clip.create_model_from_pretrained(f"local-dir:{folder}")
    for image in pictures():
        ours = normalised(encoder, as_pixels(encoder, [image]))[0]
        assert_close(ours, transform(image), atol=1e-6, rtol=0)


def test_text_tower_of_transformers(tmp_path):
    transformers = pytest.importorskip("transformers")
    transformers.BertConfig(
        vocab_size=7, hidden_size=24, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=16,
    ).save_pretrained(tmp_path / "text")  # fmt: skip
    text = {
        "hf_model_name": str(tmp_path / "text"), "hf_tokenizer_name": "here", "context_length": 16,
        "hf_proj_type": "mlp", "hf_pooler_type": "mean_pooler", "hf_model_pretrained": False,
    }  # fmt: skip
    config = {**OPEN_CLIP["clip-vit"], "text_cfg": text}
    folder = write_folder(tmp_path / "model", config)
    with pytest.raises(ModelError):
        load(f"open_clip:local-dir:{folder}", "cpu")
    word_tokenizer().save_pretrained(folder)
    encoder = load(f"open_clip:local-dir:{folder}", "cpu")
    tokens = word_tokenizer()(["a photo of a cat"], padding="max_length", max_length=16, return_tensors="pt")
    with torch.no_grad():
        expected = random_model(config).encode_text(tokens["input_ids"])
    found = encoder.text_head(encoder.encode_text(["a photo of a cat"]))
    assert_close(found, expected, atol=1e-5, rtol=1e-5)
    assert encoder.text_head.width == 22


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """An architecture `tiny-vit` with a published tag."""
    monkeypatch.setattr(open_clip.factory, "_MODEL_CONFIGS", dict(open_clip.factory._MODEL_CONFIGS))
    monkeypatch.setattr(open_clip.factory, "_MODEL_CONFIG_PATHS", list(open_clip.factory._MODEL_CONFIG_PATHS))
    config = {**OPEN_CLIP["clip-vit"], "quick_gelu": False}
    (tmp_path / "tiny-vit.json").write_text(json.dumps(config))
    open_clip.add_model_config(tmp_path / "tiny-vit.json")
    weights = write_folder(tmp_path / "folder", config) / "open_clip_model.safetensors"
    published = {"webtext_e1": {"file": str(weights), "quick_gelu": True, "mean": (0.5, 0.5, 0.5)}}
    monkeypatch.setitem(open_clip.pretrained._PRETRAINED, "tiny-vit", published)


def test_checkpoint_of_tensors_loads_and_one_of_code_does_not(tmp_path):
    folder, model = write_folder(tmp_path, OPEN_CLIP["clip-vit"]), random_model(OPEN_CLIP["clip-vit"])
    (folder / "open_clip_model.safetensors").unlink()
    torch.save(model.state_dict(), folder / "open_clip_pytorch_model.bin")
    assert load(f"open_clip:local-dir:{folder}", "cpu").head.dim == 20
    torch.save(model, folder / "open_clip_pytorch_model.bin")
    with pytest.raises(ModelError, match="Weights only load failed"):
        load(f"open_clip:local-dir:{folder}", "cpu")


def test_tag_decides_the_activation(tiny):
    encoder = load("open_clip:tiny/vit/webtext-e1", "cpu")
    pixels = as_pixels(encoder, pictures())
    assert encoder.preprocess.mean == (0.5, 0.5, 0.5)
    with torch.no_grad():
        quick = random_model(OPEN_CLIP["clip-vit"]).encode_image(normalised(encoder, pixels))
    assert_close(encoder.head(encoder.encode(pixels)), quick, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("", None),
        ("tiny-vat/openai", "tiny-vit"),
        ("tiny-vit", None),
        ("tiny-vit/webtext_e2", "webtext_e1"),
        ("coca_ViT-B-32/laion2b_s13b_b90k", None),
    ],
)
def test_wrong_names(tiny, name, suggestion):
    with pytest.raises(UsageError) as error:
        load(f"open_clip:{name}", "cpu")
    assert getattr(error.value, "suggestions", [None])[0] == suggestion


def test_incomplete_folders(tmp_path, folders):
    with pytest.raises(ModelError):
        load(f"open_clip:local-dir:{tmp_path / 'none'}", "cpu")
    with pytest.raises(ModelError):
        load(f"open_clip:local-dir:{tmp_path}", "cpu")
    whole = write_folder(tmp_path / "cut", OPEN_CLIP["clip-vit"])
    weights = whole / "open_clip_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    with pytest.raises(ModelError):
        load(f"open_clip:local-dir:{whole}", "cpu")
    (whole / "open_clip_config.json").write_text("{}")
    with pytest.raises(ModelError):
        load(f"open_clip:local-dir:{whole}", "cpu")


def test_hub_that_cannot_be_reached(capfd):
    with pytest.raises(ModelError) as error:
        load("open_clip:ViT-B-32/openai", "cpu")
    assert "\n" not in str(error.value)
    assert error.value.__cause__ is not None
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("missing", ["torch", "open_clip"])
def test_libraries_that_are_not_installed(monkeypatch, missing):
    for module in [name for name in sys.modules if name.partition(".")[0] == "open_clip"]:
        monkeypatch.delitem(sys.modules, module)  # so that it is imported again, and misses what it needs
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(MissingPackageError) as error:
        load("open_clip:ViT-B-32/openai", "cpu")
    assert "\n" not in str(error.value)


class Ends(torch.nn.Module):
    """A linear map with something after it."""

    def __init__(self, end):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last, self.end = torch.nn.Linear(6, 5), torch.nn.Linear(5, 4), end

    def forward(self, x):
        return self.end(self.last(self.first(x).tanh()), x)


@pytest.mark.parametrize(
    ("end", "kind"),
    [
        (lambda u, x: u, "plain"),
        (lambda u, x: x[:, :4] + u, "residual"),
        (lambda u, x: u.relu(), "black box"),
        (lambda u, x: u / u.norm(), "black box"),
        (lambda u, x: 2 * u, "black box"),
        (lambda u, x: u[:, :3], "black box"),
    ],
)
def test_where_a_tower_is_split(end, kind):
    tower = Ends(end)
    x = torch.randn(3, 6, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        split = split_at_linear(tower, tower, x[:1])
        assert_close(split.head(split.features(x).numpy()), tower(x))
    assert (split.black_box_reason is not None) == (kind == "black box")
    assert split.head.residual == (kind == "residual")
    if kind == "plain":
        assert_close(split.features(x), tower.first(x).tanh())
