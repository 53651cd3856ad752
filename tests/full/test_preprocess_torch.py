"""Pictures become squares of pixels as torchvision makes them, and tensors as torch takes them."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from test_preprocess import SIZES, make, picture


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize("resize_to", [None, 36, 37])
def test_shortest_side_and_centre_as_torchvision(size, interpolation, resize_to):
    transforms = pytest.importorskip("torchvision.transforms")
    mode = transforms.InterpolationMode(interpolation)
    theirs = transforms.Compose(
        [transforms.Resize(resize_to or 32, interpolation=mode), transforms.CenterCrop(32)]
    )
    image = picture(size)
    ours = make(interpolation=interpolation, resize_to=resize_to).centre(image)
    assert ours.dtype == np.uint8
    np.testing.assert_array_equal(ours, np.asarray(theirs(image)))


@pytest.mark.parametrize("size", SIZES)
def test_squash_as_torchvision(size):
    transforms = pytest.importorskip("torchvision.transforms")
    image = picture(size)
    theirs = transforms.Resize((32, 32), interpolation=transforms.InterpolationMode.BICUBIC)(image)
    difference = np.abs(make(resize="squash").centre(image).astype(int) - np.asarray(theirs))
    # An image of more than six times the size is averaged in blocks first; here it is noise, the worst case.
    assert difference.max() <= (0 if max(size) < 6 * 32 else 20)


def test_normalise():
    pixels = torch.randint(0, 256, (2, 32, 32, 3), dtype=torch.uint8)
    found = make().normalise(pixels)
    assert found.shape == (2, 3, 32, 32)
    for channel, (mean, std) in enumerate(zip((0.5, 0.4, 0.3), (0.2, 0.3, 0.4), strict=True)):
        assert_close(found[:, channel], (pixels[..., channel] / 255 - mean) / std)
