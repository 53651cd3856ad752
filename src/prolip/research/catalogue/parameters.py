"""Trained parameters, from shapes: of methods on features, and of those inside RN50 and ViT-B/16."""

from dataclasses import dataclass
from typing import Any

from prolip import methods
from prolip.core.errors import ProlipError
from prolip.methods.base import Shape
from prolip.research.catalogue.published import PROJECTIONS, published

CLASSES, SHOTS = 1000, 16  # ImageNet, 16 shots

WIDTH, BLOCKS = 64, (3, 4, 6, 3)  # of RN50's stem, and residual blocks of its four stages
RN50_DIM, GRID, POOLED = 1024, 7, 32 * WIDTH  # D; the grid that attention pools, and its width
IMAGE_WIDTH, TEXT_WIDTH, LAYERS = 768, 512, 12  # of ViT-B/16's towers
MAPLE_WORDS, MAPLE_DEPTH = 2, 9


@dataclass(frozen=True)
class ResNetCount:
    """Parameters of CLIP's ResNet: of convolutions, of batch norms, and of the attention that pools."""

    convolutions: int
    norms: int
    pooling: int

    @property
    def total(self) -> int:
        """The number of all parameters."""
        return self.convolutions + self.norms + self.pooling


def rn50() -> ResNetCount:
    """Count the parameters of the image tower of CLIP RN50."""
    half = WIDTH // 2
    layers = [(3, half, 3), (half, half, 3), (half, WIDTH, 3)]  # inputs, outputs and size of each convolution
    inputs = WIDTH
    for stage, blocks in enumerate(BLOCKS):
        planes = WIDTH << stage
        layers.append((inputs, 4 * planes, 1))  # of the shortcut
        for _ in range(blocks):
            layers += [(inputs, planes, 1), (planes, planes, 3), (planes, 4 * planes, 1)]
            inputs = 4 * planes
    convolutions = sum(fan_in * fan_out * size**2 for fan_in, fan_out, size in layers)
    norms = sum(2 * fan_out for _, fan_out, _ in layers)  # one after each convolution
    keys = 3 * (POOLED + 1) * POOLED  # queries, keys and values
    pooling = (GRID**2 + 1) * POOLED + keys + (POOLED + 1) * RN50_DIM
    return ResNetCount(convolutions, norms, pooling)


def vit_norms() -> int:
    """Count the layer norms of both towers of ViT-B/16: two in a block, two more of images, one of texts."""
    return (2 * LAYERS + 2) * 2 * IMAGE_WIDTH + (2 * LAYERS + 1) * 2 * TEXT_WIDTH


def maple(shared: bool) -> int:
    """Count MaPLe's prompts at every depth and the maps to visual ones, or one map for all."""
    maps = 1 if shared else MAPLE_DEPTH
    return MAPLE_DEPTH * MAPLE_WORDS * TEXT_WIDTH + maps * (TEXT_WIDTH + 1) * IMAGE_WIDTH


def vit_tower() -> int:
    """Count the parameters of the image tower of ViT-B/16, its projection included."""
    width, patches = IMAGE_WIDTH, 14**2
    block = 4 * width * (width + 1) + 2 * 4 * width * width + 5 * width + 4 * width
    entry = 3 * 16**2 * width + width + (patches + 1) * width + 2 * width
    return entry + LAYERS * block + 2 * width + width * TEXT_WIDTH


def tower_parameters() -> dict[str, float]:
    """Return the counts by the names of the published rows."""
    resnet, ours = rn50(), IMAGE_WIDTH * TEXT_WIDTH
    return {
        "Full fine-tuning, RN50": resnet.total,
        "Last layer, RN50": resnet.pooling,
        "BatchNorm, RN50": resnet.norms,
        "LayerNorm, ViT-B/16": vit_norms(),
        "MaPLe ‡, ViT-B/16": maple(shared=False),
        "MaPLe †, ViT-B/16": maple(shared=True),
        "CLAP, ViT-B/16, ImageNet": 1000 * TEXT_WIDTH,
        "CLAP, ViT-B/16, Caltech101": 100 * TEXT_WIDTH,
        "ProLIP, in % of CLIPood, ViT-B/16": 1e6 * 100 * ours / vit_tower(),
    }


def counted() -> list[dict[str, Any]]:
    """Return trained parameters in millions, as cells of a table: ProLIP's for each backbone, every method's
    on 16-shot ImageNet, and those of methods inside a tower, beside the published counts.
    """
    paper, rows = published("parameters"), []
    for model, (dim, features) in PROJECTIONS.items():
        count = methods.create("prolip").count(Shape(features, dim, CLASSES, SHOTS * CLASSES))
        row = {"label": f"ProLIP, {model}: {dim} x {features}", "mean": count / 1e6}
        rows.append({"group": "", **row, "published": paper.value(model, "millions")})
    dim, features = PROJECTIONS["RN50"]
    shape = Shape(features, dim, CLASSES, SHOTS * CLASSES, text_features=512)
    group = f"RN50, {CLASSES} classes, {SHOTS} shots"
    for name, kind in methods.available().items():
        try:
            method = kind()
            count = method.count(shape)
        except (ProlipError, ImportError):
            continue  # it trains inside a tower, or is not installed
        rows.append({"group": group, "label": f"{name}: {method.size}", "mean": count / 1e6})
    inside = published("tower_parameters")
    for name, number in tower_parameters().items():
        row = {"label": name, "mean": number / 1e6, "published": inside.value(name, "millions")}
        rows.append({"group": "as the paper counts", **row})
    return rows
