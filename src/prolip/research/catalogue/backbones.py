"""The paper's backbones: what they are called here, and the shape of their projection (D, Do)."""

MODELS = {
    "RN50": "open_clip:RN50/openai",
    "RN101": "open_clip:RN101/openai",
    "ViT-B/16": "open_clip:ViT-B-16/openai",
    "ViT-B/32": "open_clip:ViT-B-32/openai",
    "SigLIP ViT-B/16": "open_clip:ViT-B-16-SigLIP/webli",
}
PROJECTIONS = {"RN50": (1024, 2048), "RN101": (512, 2048), "ViT-B/32": (512, 768), "ViT-B/16": (512, 768)}
