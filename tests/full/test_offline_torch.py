"""The offline encoder in torch: the same numbers, open to gradients."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from prolip.core import Head
from prolip.encoders import load
from prolip.encoders import offline as module
from prolip.encoders.offline_torch import EfficientNetLite0

PROMPTS = [
    "a photo of a cat.",
    "",
    "two dogs in the snow, a type of pet, seen from far away by somebody on a very tall mountain.",
    "ein Foto von einem Eichhörnchen.",
    "猫の写真",
    "x",
]


@pytest.fixture(scope="module")
def offline():
    return load("offline", "cpu")


@pytest.fixture(scope="module")
def pixels():
    return np.random.default_rng(0).integers(0, 256, (3, 224, 224, 3), dtype=np.uint8)


def test_weights_are_what_torch_reads(offline):
    expected = torch.load(module.IMAGE_WEIGHTS.path(), map_location="cpu", weights_only=True)
    assert list(offline.image_weights) == list(expected)
    assert any(not tensor.is_contiguous() for tensor in expected.values())
    for name, tensor in expected.items():
        np.testing.assert_array_equal(offline.image_weights[name], tensor.numpy(), strict=True)


def test_onnx_tower_equals_the_torch_module(offline, pixels):
    tower = EfficientNetLite0(offline.image_weights)
    with torch.inference_mode():
        expected = tower(offline.preprocess.normalise(torch.from_numpy(pixels)))
    np.testing.assert_allclose(offline.encode(pixels), expected.numpy(), atol=1e-4)
    np.testing.assert_allclose(offline.trace(torch.from_numpy(pixels)).numpy(), expected.numpy(), atol=1e-5)


def test_image_tower_equals_timm_s(offline, pixels):
    timm = pytest.importorskip("timm")
    theirs = timm.create_model("tf_efficientnet_lite0", pretrained=False).eval()
    ours = [torch.from_numpy(array) for array in offline.image_weights.values()]
    state = theirs.state_dict()
    assert [v.shape for v in state.values()] == [v.shape for v in ours]
    theirs.load_state_dict(dict(zip(state, ours, strict=True)))
    with torch.inference_mode():
        expected = theirs.forward_head(
            theirs.forward_features(offline.preprocess.normalise(torch.from_numpy(pixels))), pre_logits=True
        )
    np.testing.assert_allclose(offline.encode(pixels), expected.numpy(), atol=1e-4)


def test_sentence_tower_equals_the_package(offline):
    """All prompts in one padded batch, and each alone."""
    expected = offline.encode_text(PROMPTS)
    np.testing.assert_allclose(offline.trace_text(offline.tokens(PROMPTS)).numpy(), expected, atol=1e-5)
    for prompt, row in zip(PROMPTS, expected, strict=True):
        np.testing.assert_allclose(offline.trace_text(offline.tokens([prompt])).numpy()[0], row, atol=1e-5)


def test_towers_embed_as_the_encoder_does(offline, pixels):
    towers = offline.towers()
    image = towers.embed_image(offline.preprocess.normalise(torch.from_numpy(pixels)))
    np.testing.assert_allclose(image.numpy(), offline.head(offline.encode(pixels)), atol=1e-4)
    text = towers.embed_text(offline.tokens(PROMPTS))
    np.testing.assert_allclose(text.numpy(), offline.text_head(offline.encode_text(PROMPTS)), atol=1e-5)
    local = towers.embed_local(offline.preprocess.normalise(torch.from_numpy(pixels)))
    assert local.shape == (3, 49, 512)
    assert_close(local.mean(dim=1), image, atol=1e-4, rtol=1e-4)


def test_word_vectors_can_be_learned(offline):
    """The gradient through the sentence tower is the slope of what it computes."""
    towers, tokens = offline.towers(), offline.tokens(PROMPTS[:2])
    words = towers.words(tokens["input_ids"])
    assert words.shape[2] == towers.words.embedding_dim == 512
    words = words.clone().requires_grad_()
    goal = torch.randn(512, generator=torch.Generator().manual_seed(0))

    def value(embeddings):
        with towers.with_word_embeddings(embeddings):
            return (towers.embed_text(tokens) @ goal).sum()

    value(words).backward()
    step = 1e-3 * words.norm() * words.grad / words.grad.norm()
    with torch.no_grad():
        slope = value(words + step) - value(words - step)
    assert_close(slope, 2 * (words.grad * step).sum(), rtol=0.02, atol=0)
    padding = ~tokens["attention_mask"].bool()
    assert padding.any()
    assert not words.grad[padding].any()


def test_a_changed_copy_is_another_encoder(offline, pixels):
    before = offline.encode(pixels)
    towers = offline.towers(copy=True)
    with torch.no_grad():
        towers.model.image._bn1.weight *= 1.2
        towers.model.projection *= 2
    changed = offline.with_model(towers.model, "digest")
    assert changed.fingerprint == f"{offline.fingerprint}-digest"
    np.testing.assert_allclose(
        changed.encode(pixels), changed.trace(torch.from_numpy(pixels)).numpy(), atol=1e-4
    )
    np.testing.assert_allclose(changed.head.weight, 2 * offline.head.weight)
    assert np.abs(changed.encode(pixels) - before).max() > 0.1
    np.testing.assert_array_equal(offline.encode(pixels), before)
    np.testing.assert_array_equal(changed.encode_text(PROMPTS), offline.encode_text(PROMPTS))


def test_tensors_by_name_make_the_same_copy(offline, pixels):
    name = "image._bn1.weight"
    doubled = {name: 2 * offline.image_weights["_bn1.weight"]}
    changed = offline.with_tensors(doubled)
    np.testing.assert_array_equal(changed.image_weights["_bn1.weight"], doubled[name])
    assert changed.fingerprint != offline.with_tensors({name: doubled[name] + 1}).fingerprint
    with pytest.raises(Exception, match=r"has no tensor image\._bn9"):
        offline.with_tensors({"image._bn9": doubled[name]})


def test_towers_have_the_heads_of_the_moment(offline):
    other = load("offline", "cpu")
    head, text_head = Head(3 * offline.head.weight), Head(2 * np.eye(512), bias=np.ones(512))
    other = other.with_folded(offline.folded(head, text_head, 7.0))
    found = other.towers().embed_text(other.tokens(PROMPTS)).numpy()
    np.testing.assert_allclose(found, other.text_head(other.encode_text(PROMPTS)), atol=1e-5)
    np.testing.assert_allclose(other.towers().model.projection.numpy(), head.weight)
