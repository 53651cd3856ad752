"""The image tower of the offline encoder beside torch's reading of its weights and timm's network."""

import numpy as np
import pytest
import torch

from prolip.encoders import load
from prolip.encoders import offline as module


@pytest.fixture(scope="module")
def offline():
    return load("offline", "cpu")


def test_weights_are_what_torch_reads(offline):
    expected = torch.load(module.IMAGE_WEIGHTS.path(), map_location="cpu", weights_only=True)
    assert list(offline.image_weights) == list(expected)
    assert any(not tensor.is_contiguous() for tensor in expected.values())
    for name, tensor in expected.items():
        np.testing.assert_array_equal(offline.image_weights[name], tensor.numpy(), strict=True)


def test_image_tower_equals_timm_s(offline):
    timm = pytest.importorskip("timm")
    pixels = np.random.default_rng(0).integers(0, 256, (3, 224, 224, 3), dtype=np.uint8)
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
