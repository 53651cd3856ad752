"""Pictures become squares of pixels: the middle for testing, at random for training."""

import random

import numpy as np
import pytest
from PIL import Image

from prolip.encoders import Preprocess
from prolip.encoders.preprocess import _random_crop
from prolip.io.onnx_graph import Graph

SIZES = [(64, 64), (91, 67), (67, 91), (50, 203), (203, 51), (33, 32), (32, 35), (20, 29), (7, 400), (1, 1)]


def picture(size, seed=0):
    height, width = size
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8))


def make(**changes):
    return Preprocess(**{"size": 32, "mean": (0.5, 0.4, 0.3), "std": (0.2, 0.3, 0.4), **changes})


def test_shortest_side_to_size_then_the_centre():
    """A ramp twice as wide as high: each column of the centre is the mean of the two that it stands for."""
    ramp = np.tile(np.arange(128, dtype=np.uint8)[None, :, None], (64, 1, 3))
    found = make(interpolation="bilinear").centre(Image.fromarray(ramp))
    assert found.shape == (32, 32, 3)
    assert found.dtype == np.uint8
    np.testing.assert_allclose(found[0, :, 0], 32 + 2 * np.arange(32) + 0.5, atol=0.51)


@pytest.mark.parametrize(
    "options",
    [
        {"resize_to": 37},
        {"resize_to": 37, "crop": "floor", "interpolation": "bilinear"},
        {"resize": "squash"},
    ],
)
def test_a_graph_prepares_images_alike(options):
    import onnxruntime

    preprocess, graph = make(**options), Graph()
    graph.node("Identity", preprocess.to_onnx(graph, "image"), output="pixels")
    values = {"image": ("uint8", ("height", "width", 3))}, {"pixels": ("uint8", (1, 32, 32, 3))}
    session = onnxruntime.InferenceSession(graph.to_bytes(*values))
    for size in [*SIZES, (300, 77), (400, 500), (999, 400), (800, 1203), (71, 30)]:
        image = picture(size)
        (found,) = session.run(None, {"image": np.asarray(image)})
        difference = np.abs(found[0].astype(int) - preprocess.centre(image))
        assert difference.mean() < 0.5, size  # of 255 levels


def test_crop_rounds_or_floors_odd_margins():
    ramp = Image.fromarray(
        np.repeat(np.arange(35, dtype=np.uint8)[None, :, None], 32, axis=0).repeat(3, axis=2)
    )
    assert make().centre(ramp)[0, 0, 0] == 2  # a margin of 1.5 pixels, to the even one
    assert make(crop="floor").centre(ramp)[0, 0, 0] == 1


@pytest.mark.parametrize("size", SIZES)
def test_views_and_centres_of_any_shape_have_the_right_size(size):
    image, rng = picture(size), random.Random(0)
    views = [make(size=24).augment(image, rng) for _ in range(20)]
    views += [make(size=24, resize=resize).centre(image) for resize in ("shortest", "squash")]
    assert {view.shape for view in views} == {(24, 24, 3)}


def test_crops_hold_half_to_all_of_the_picture():
    rng = random.Random(0)
    boxes = np.array([_random_crop((240, 200), rng) for _ in range(4000)])
    width, height = boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]
    area, aspect = width * height / 48000, width / height
    assert boxes.min() >= 0
    assert (boxes[:, 2:] <= (240, 200)).all()
    extremes = area.min(), area.max(), aspect.min(), aspect.max()
    np.testing.assert_allclose(extremes, (0.5, 1, 0.75, 4 / 3), atol=0.03)
    assert len(np.unique(boxes[:, 0])) > 50


def test_picture_too_long_for_any_crop_gives_its_middle():
    assert _random_crop((1000, 90), random.Random(0)) == (440, 0, 560, 90)


def test_half_of_the_views_are_flipped():
    halves = np.zeros((64, 64, 3), np.uint8)
    halves[:, 32:] = 255
    image, rng = Image.fromarray(halves), random.Random(0)
    views = [make().augment(image, rng) for _ in range(400)]
    flipped = np.mean([view[:, 0].mean() > view[:, -1].mean() for view in views])
    assert 0.42 < flipped < 0.58
