"""Trained parameters, from shapes: of methods on features, and of those inside RN50 and ViT-B/16."""

from typing import Any

from prolip import methods
from prolip.methods.base import Shape
from prolip.research.catalogue.published import PROJECTIONS, published

CLASSES, SHOTS = 1000, 16  # ImageNet, 16 shots

# Of methods inside RN50 and ViT-B/16, by the names of the published rows.
WORDS, IMAGE_WIDTH, LAYERS = 512, 768, 12  # widths of ViT-B/16's towers (De = D), and their blocks
VIT_TOWER = 86_192_640  # its image tower with the projection
_MAPLE_PROMPTS, _MAPLE_MAP = 9 * 2 * WORDS, (WORDS + 1) * IMAGE_WIDTH
TOWER_PARAMETERS = {
    "Full fine-tuning, RN50": 38_316_896,
    "Last layer, RN50": 14_789_632,
    "BatchNorm, RN50": 53_248,
    # Two in a block, two more of images, one of texts.
    "LayerNorm, ViT-B/16": 2 * ((2 * LAYERS + 2) * IMAGE_WIDTH + (2 * LAYERS + 1) * WORDS),
    "MaPLe ‡, ViT-B/16": _MAPLE_PROMPTS + 9 * _MAPLE_MAP,
    "MaPLe †, ViT-B/16": _MAPLE_PROMPTS + _MAPLE_MAP,
    "CLAP, ViT-B/16, ImageNet": 1000 * WORDS,
    "CLAP, ViT-B/16, Caltech101": 100 * WORDS,
    "ProLIP, in % of CLIPood, ViT-B/16": 1e8 * IMAGE_WIDTH * WORDS / VIT_TOWER,
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
        if not kind.trains_tower:
            count = kind().count(shape)
            rows.append({"group": group, "label": f"{name}: {kind.size}", "mean": count / 1e6})
    inside = published("tower_parameters")
    for name, number in TOWER_PARAMETERS.items():
        row = {"label": name, "mean": number / 1e6, "published": inside.value(name, "millions")}
        rows.append({"group": "as the paper counts", **row})
    return rows
