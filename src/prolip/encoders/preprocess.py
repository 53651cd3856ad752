"""Preprocessing: from an image to the square of pixels that a tower takes, for testing and for training."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from prolip.core.arrays import Array
from prolip.core.errors import ModelError
from prolip.io.onnx_graph import Graph, Values

if TYPE_CHECKING:
    from torch import Tensor


_RESAMPLE = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
# The same as attributes of ONNX's Resize.
_RESIZE: dict[str, dict[str, Any]] = {
    "bilinear": {"mode": "linear"},
    "bicubic": {"mode": "cubic", "cubic_coeff_a": -0.5},
}

CLIP_MEAN, CLIP_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)

# What the image processor of each model type does where its configuration says nothing.
_PROCESSORS: dict[str, dict[str, Any]] = {
    "clip": {
        "size": {"shortest_edge": 224},
        "crop_size": 224,
        "do_center_crop": True,
        "image_mean": CLIP_MEAN,
        "image_std": CLIP_STD,
    },
    "siglip": {
        "size": {"height": 224, "width": 224},
        "do_center_crop": False,
        "image_mean": (0.5, 0.5, 0.5),
        "image_std": (0.5, 0.5, 0.5),
    },
}

_PIL_NUMBERS = {2: "bilinear", 3: "bicubic"}

# Large photos become the means of blocks of pixels first, down to 2.5 times the size that is wanted: one of
# 12 megapixels is resized in a tenth of the time, and its pixels differ by 0.2 levels of 255. A JPEG decoder
# has blocks of these sides, too.
_REDUCING_GAP = 2.5
_BLOCKS = (2, 4, 8)


@dataclass(frozen=True)
class Preprocess:
    """Resize, crop and normalise."""

    size: int  # side of the square that the tower takes
    mean: tuple[float, float, float]  # per channel, of pixels in 0 .. 1
    std: tuple[float, float, float]
    interpolation: str = "bicubic"  # or "bilinear"
    # "shortest": the shorter side to `resize_to`, then the centre. "squash": straight to the square, whatever
    # the aspect.
    resize: str = "shortest"
    resize_to: int | None = None  # for "shortest"; None is `size`
    # For "shortest", where the margins on two sides cannot be equal: "round" moves the centre to the even
    # pixel, as torchvision does; "floor" always up and left, as transformers does.
    crop: str = "round"
    view_area: float = 0.5  # of training views: the least share of the image that one shows
    view_interpolation: str = "bicubic"

    @classmethod
    def from_processor(cls, config: dict[str, Any], model_type: str, name: str) -> Preprocess:
        """Return what the configuration of an image processor of transformers says."""
        config = _PROCESSORS[model_type] | {key: value for key, value in config.items() if value is not None}
        size = _sides(config["size"], "shortest_edge")
        crop = _sides(config.get("crop_size", {}), "height", "width")
        cropped = config["do_center_crop"]
        shape = crop if cropped else size
        squash = not cropped or size == crop
        known = (
            config.get("do_resize", True)
            and shape.keys() == {"height", "width"}
            and shape["height"] == shape["width"]
            and (squash or size.keys() == {"shortest_edge"})
            and math.isclose(config.get("rescale_factor", 1 / 255), 1 / 255, rel_tol=1e-6)
            and config.get("resample", 3) in _PIL_NUMBERS
        )
        if not known:
            raise ModelError(f"{name}: its image processor is not supported: {config}")
        normalise = config.get("do_normalize", True)
        return cls(
            size=shape["height"],
            mean=_triple(config["image_mean"]) if normalise else (0.0, 0.0, 0.0),
            std=_triple(config["image_std"]) if normalise else (1.0, 1.0, 1.0),
            interpolation=_PIL_NUMBERS[config.get("resample", 3)],
            resize="squash" if squash else "shortest",
            resize_to=None if squash or size["shortest_edge"] == shape["height"] else size["shortest_edge"],
            crop="floor",
        )

    @classmethod
    def from_open_clip(cls, config: dict[str, Any], name: str) -> Preprocess:
        """Return what open_clip's preprocess_cfg says."""
        height, width = (config["size"],) * 2 if isinstance(config["size"], int) else config["size"]
        if height != width or config["resize_mode"] not in ("shortest", "squash"):
            raise ModelError(f"{name}: its preprocessing is not supported: {config}")
        return cls(
            size=height,
            mean=_triple(config["mean"]),
            std=_triple(config["std"]),
            interpolation="bilinear" if config["interpolation"] == "bilinear" else "bicubic",
            resize=config["resize_mode"],
        )

    @property
    def sufficient_side(self) -> int:
        """The shorter side from which on an image may be decoded smaller: it has all the detail that is used.

        The smaller the parts of an image that training views show, the more detail they use.
        """
        return round(
            _REDUCING_GAP * max(self.size, self.resize_to or 0) * max(1.0, math.sqrt(0.5 / self.view_area))
        )

    def centre(self, image: Image.Image) -> np.ndarray:
        """Return the evaluation view of an RGB image: uint8 [size, size, 3]."""
        size, (width, height) = self.size, image.size
        if self.resize == "squash":
            sides = size, size
        else:
            target, shortest = self.resize_to or size, min(width, height)
            sides = max(target, width * target // shortest), max(target, height * target // shortest)
        blocks = image.reduce(block_side(image.size, self.sufficient_side))
        small = blocks.resize(sides, _RESAMPLE[self.interpolation])
        whole = math.floor if self.crop == "floor" else round
        left, top = whole((small.width - size) / 2), whole((small.height - size) / 2)
        return np.asarray(small.crop((left, top, left + size, top + size)))

    def to_onnx(self, graph: Graph, image: str) -> str:
        """Add `centre` to a graph: uint8 [H, W, 3] of any size to [1, size, size, 3].

        ONNX Runtime resizes uint8 as Pillow does, with integer weights and a rounding after the rows and
        after the columns. Newer versions of Pillow begin with the columns of tall images, which changes one
        pixel value of five there, by one level.
        """
        node = graph.node
        old = node("Shape", image, end=2)  # height, width
        if self.resize == "squash":
            new = graph.constant(np.array([self.size] * 2))
        else:
            target = np.array([self.resize_to or self.size])
            shortest = node("ReduceMin", old, keepdims=1)
            new = node("Max", node("Div", node("Mul", old, target), shortest), target)
        x = node("Unsqueeze", node("Transpose", image, perm=[2, 0, 1]), np.array([0]))  # [1, 3, H, W]
        blocks = np.array(_BLOCKS)
        large = node("GreaterOrEqual", node("ReduceMin", old), self.sufficient_side * blocks)
        rest = node("ReduceMax", node("Mod", old, blocks[:, None]), np.array([1]), keepdims=0)
        halve = node("And", large, node("Equal", rest, np.array(0)))
        halvings = node("ReduceSum", node("Cast", halve, to=7), keepdims=0)
        x = node("Loop", halvings, "", node("Cast", x, to=1), body=_halve_to_onnx())  # 1: float32
        x = node("Cast", node("Round", x), to=2)  # once, without a bias, as JPEG decoders do; 2: uint8
        sides = node("Concat", np.array([1, 3]), new, axis=0)
        kind = _RESIZE[self.interpolation]
        x = node("Resize", x, "", "", sides, antialias=1, exclude_outside=1, **kind)
        if self.resize == "shortest":
            margin = node("Sub", new, np.array([self.size] * 2))
            start = node("Div", margin, np.array([2]))
            if self.crop == "round":  # of a half, to the even pixel
                odd = node("Mul", node("Mod", margin, np.array([2])), node("Mod", start, np.array([2])))
                start = node("Add", start, odd)
            stop = node("Add", start, np.array([self.size] * 2))
            x = node("Slice", x, start, stop, np.array([2, 3]))
        return node("Transpose", x, perm=[0, 2, 3, 1])

    def augment(self, image: Image.Image, rng: random.Random) -> np.ndarray:
        """Return a training view, uint8 [size, size, 3]; by default the paper's.

        A crop of `view_area` to 1 of the area, aspect 3/4 to 4/3, resized, and flipped half the time.
        """
        # Crop, then resize: `resize(box=...)` would let pixels from outside the crop bleed in.
        crop = image.crop(_random_crop(image.size, rng, self.view_area))
        resample = _RESAMPLE[self.view_interpolation]
        view = crop.resize((self.size, self.size), resample, reducing_gap=_REDUCING_GAP)
        if rng.random() < 0.5:
            view = view.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        return np.asarray(view)

    def normalise(self, pixels: Tensor) -> Tensor:
        """Normalise uint8 [B, S, S, 3] to float32 [B, 3, S, S]; for towers in torch."""
        import torch

        mean = torch.tensor(self.mean, device=pixels.device)
        std = torch.tensor(self.std, device=pixels.device)
        return ((pixels.to(torch.float32) / 255 - mean) / std).permute(0, 3, 1, 2).contiguous()

    def normalise_arrays(self, pixels: Array) -> Array:
        """Return the same in NumPy, for towers on ONNX Runtime."""
        factor = (1 / (255 * np.array(self.std))).astype(np.float32)
        offset = (np.array(self.mean) / np.array(self.std)).astype(np.float32)
        return np.ascontiguousarray((pixels * factor - offset).transpose(0, 3, 1, 2))

    def config(self) -> dict[str, Any]:
        """Return everything that determines the pixels: part of the key of stored features."""
        return asdict(self)


def block_side(size: tuple[int, int], sufficient: int) -> int:
    """Return the side of blocks that divide an image and leave a sufficient shorter side; 1 for none."""
    width, height = size
    divide = (block for block in reversed(_BLOCKS) if width % block == height % block == 0)
    return next((block for block in divide if min(size) >= block * sufficient), 1)


def _halve_to_onnx() -> Any:
    """Return the body of a loop that replaces an image [1, 3, H, W] by the means of blocks of 2 x 2."""
    graph = Graph("halve")
    halves = np.array([1, 1, 0.5, 0.5])  # halfway between two pixels linear interpolation is their mean
    graph.node("Resize", "image", "", halves, mode="linear", output="half")
    graph.node("Identity", "go_on", output="goes_on")
    inputs: Values = {"count": ("int64", ()), "go_on": ("bool", ()), "image": ("float32", (1, 3, "h", "w"))}
    return graph.to_proto(inputs, {"goes_on": ("bool", ()), "half": ("float32", (1, 3, "rows", "columns"))})


def _sides(size: int | dict[str, int | None], *bare: str) -> dict[str, int]:
    """Return the sides of a size: a dictionary, or in older processors a number that stands for `bare`."""
    if isinstance(size, int):
        return dict.fromkeys(bare, size)
    return {side: value for side, value in size.items() if value}


def _triple(values: Sequence[float] | float) -> tuple[float, float, float]:
    red, green, blue = (values,) * 3 if isinstance(values, (int, float)) else values
    return float(red), float(green), float(blue)


def _random_crop(size: tuple[int, int], rng: random.Random, least: float = 0.5) -> tuple[int, int, int, int]:
    """Draw a box of `least` to 1 of the area, aspect 3/4 to 4/3; the centre if ten do not fit."""
    width, height = size
    for _ in range(10):
        area = width * height * rng.uniform(least, 1.0)
        aspect = math.exp(rng.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            left, top = rng.randint(0, width - w), rng.randint(0, height - h)
            return left, top, left + w, top + h
    w, h = min(width, round(height * 4 / 3)), min(height, round(width * 4 / 3))
    left, top = (width - w) // 2, (height - h) // 2
    return left, top, left + w, top + h
