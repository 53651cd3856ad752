"""Trained parameters of methods that train inside CLIP's towers, from the sizes of RN50 and ViT-B/16."""

from dataclasses import dataclass

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


def tower_parameters() -> dict[str, int]:
    """Return the counts by the names of the published rows."""
    resnet = rn50()
    return {
        "Full fine-tuning, RN50": resnet.total,
        "Last layer, RN50": resnet.pooling,
        "BatchNorm, RN50": resnet.norms,
        "LayerNorm, ViT-B/16": vit_norms(),
        "MaPLe ‡, ViT-B/16": maple(shared=False),
        "MaPLe †, ViT-B/16": maple(shared=True),
    }
