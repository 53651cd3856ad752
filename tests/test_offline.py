import numpy as np
import pytest
import torch

from prolip.core import ModelError, UsageError
from prolip.encoders import load
from prolip.encoders import offline as module
from prolip.encoders.offline import fit_projection


@pytest.fixture(scope="module")
def pixels():
    return torch.from_numpy(np.random.default_rng(0).integers(0, 256, (3, 224, 224, 3), dtype=np.uint8))


def test_onnx_tower_equals_the_torch_module(offline, pixels):
    with torch.inference_mode():
        expected = offline.image_tower(offline.preprocess.normalise(pixels))
    features = offline.encode(pixels)
    assert features.shape == (3, 1280)
    assert torch.allclose(features, expected, atol=1e-4)


def test_image_tower_equals_timm_s(offline, pixels):
    timm = pytest.importorskip("timm")
    theirs = timm.create_model("tf_efficientnet_lite0", pretrained=False).eval()
    ours = list(offline.image_tower.state_dict().values())
    state = theirs.state_dict()
    assert [v.shape for v in state.values()] == [v.shape for v in ours]
    theirs.load_state_dict(dict(zip(state, ours, strict=True)))
    with torch.inference_mode():
        expected = theirs.forward_head(
            theirs.forward_features(offline.preprocess.normalise(pixels)), pre_logits=True
        )
    assert torch.allclose(offline.encode(pixels), expected, atol=1e-4)


def test_text_tower_equals_transformers_bert(offline):
    transformers = pytest.importorskip("transformers")
    folder = offline_folder()
    bert = transformers.BertModel.from_pretrained(folder, add_pooling_layer=False).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    prompts = ["a photo of a cat.", "two dogs in the snow, a type of pet."]
    batch = tokenizer(prompts, padding=True, return_tensors="pt")
    with torch.inference_mode():
        hidden = bert(**batch).last_hidden_state
    weight = batch["attention_mask"][..., None]
    expected = torch.nn.functional.normalize((hidden * weight).sum(1) / weight.sum(1), dim=-1)
    assert torch.allclose(offline.encode_text(prompts), expected, atol=1e-5)


def offline_folder():
    return module._checked(*module.TEXT_WEIGHTS).parent


def test_projection_is_the_ridge_solution():
    rng = np.random.default_rng(0)
    classifier, texts = rng.normal(size=(20, 6)), rng.normal(size=(20, 4)) + 3
    weight, mean = fit_projection(torch.tensor(classifier), torch.tensor(texts), ridge=2.0)
    a = classifier - classifier.mean(0)
    t = texts - texts.mean(0)
    t /= np.linalg.norm(t, axis=1, keepdims=True)
    # Ridge as least squares on stacked rows.
    stacked = np.vstack([a, np.sqrt(2.0) * np.eye(6)])
    expected = np.linalg.lstsq(stacked, np.vstack([t, np.zeros((6, 4))]), rcond=None)[0]
    np.testing.assert_allclose(weight.numpy(), expected, atol=1e-5)
    np.testing.assert_allclose(mean.numpy(), texts.mean(0), atol=1e-6)


def test_it_knows_what_it_was_never_told_with_an_image(offline):
    """Classifier rows go through the projection to the right texts: the join works."""
    from prolip.core.imagenet import imagenet_names

    chosen = [207, 281, 508, 779, 950]  # golden retriever, tabby cat, computer keyboard, school bus, orange
    text = offline.text([imagenet_names()[k] for k in chosen], ["a photo of a {}."])
    rows = offline.image_tower._fc.weight[chosen]
    answers = (offline.head(rows) @ text.rows.T).argmax(dim=1)
    assert answers.tolist() == [0, 1, 2, 3, 4]


def test_the_join_is_kept_and_a_damaged_one_is_made_again(cache, offline):
    kept = next(cache.glob("offline-*.safetensors"))
    kept.write_bytes(b"damaged")
    again = load("offline", "cpu")
    assert torch.allclose(again.head.weight, offline.head.weight, atol=1e-5)
    assert kept.stat().st_size > 1_000_000


def test_altered_weights_are_refused(monkeypatch):
    package, inside, digest = module.IMAGE_WEIGHTS
    monkeypatch.setattr(module, "IMAGE_WEIGHTS", (package, inside, "0" * 64))
    with pytest.raises(ModelError, match=f"was altered: expected SHA-256 {'0' * 64}, found {digest}"):
        load("offline", "cpu")


def test_unknown_models_and_devices_get_the_nearest_names():
    with pytest.raises(UsageError, match="did you mean 'offline'"):
        load("ofline")
    with pytest.raises(UsageError, match="nothing after it"):
        load("offline:big")
    with pytest.raises(UsageError, match="choose auto, cpu, cuda or mps"):
        load("offline", "tpu")


def test_a_cache_that_cannot_be_written_is_gone_without(offline, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("PROLIP_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.warns(UserWarning, match="made again at every start; PROLIP_CACHE names another folder"):
        again = load("offline", "cpu")
    assert torch.allclose(again.head.weight, offline.head.weight, atol=1e-5)


def test_arrays_are_a_model_that_encodes_nothing():
    with pytest.raises(UsageError, match="known: arrays, hf"):
        load("zzz")
    with pytest.raises(UsageError, match="encodes no image"):
        load("arrays")
