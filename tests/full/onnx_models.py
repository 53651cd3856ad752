"""Small models of the real architectures, written as ONNX in the layouts that are in use on the hub."""

import json

import torch
from torch import nn

from tiny_models import write_clip, write_siglip


class _Image(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.vision_model = model.vision_model
        if hasattr(model, "visual_projection"):
            self.visual_projection = model.visual_projection

    def forward(self, pixel_values):
        pooled = self.vision_model(pixel_values=pixel_values).pooler_output
        return self.visual_projection(pooled) if hasattr(self, "visual_projection") else pooled


class _Text(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.text_model = model.text_model
        if hasattr(model, "text_projection"):
            self.text_projection = model.text_projection

    def forward(self, input_ids):
        pooled = self.text_model(input_ids=input_ids).pooler_output
        return self.text_projection(pooled) if hasattr(self, "text_projection") else pooled


def export(module, example, path, names):
    """Write a tower by torch's exporter of TorchScript, whose names of nodes are those on the hub."""
    axes = {names[0]: {0: "batch", **({1: "length"} if example.ndim == 2 else {})}, names[1]: {0: "batch"}}
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.onnx.export(
        module.eval(), (example,), str(path), input_names=[names[0]], output_names=[names[1]],
        dynamic_axes=axes, opset_version=17, dynamo=False,
    )  # fmt: skip


def write_transformers_js(folder, kind="clip"):
    """Write onnx/vision_model.onnx and onnx/text_model.onnx beside transformers' own files."""
    import transformers

    write = {"clip": write_clip, "siglip": write_siglip}[kind]
    source = write(folder)
    classes = {"clip": transformers.CLIPModel, "siglip": transformers.SiglipModel}
    model = classes[kind].from_pretrained(source, attn_implementation="eager").eval()
    size = model.config.vision_config.image_size
    names = ("image_embeds", "text_embeds") if kind == "clip" else ("pooler_output", "pooler_output")
    length = model.config.text_config.max_position_embeddings
    with torch.no_grad():
        export(
            _Image(model),
            torch.rand(2, 3, size, size),
            folder / "onnx" / "vision_model.onnx",
            ("pixel_values", names[0]),
        )
        export(
            _Text(model),
            torch.randint(0, 5, (2, length)),
            folder / "onnx" / "text_model.onnx",
            ("input_ids", names[1]),
        )
    return folder


def to_int8(source, target):
    """Write a graph with dynamically quantised products, as the hub's int8 files are."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantize_dynamic(
        source, target, weight_type=QuantType.QInt8, per_channel=True, op_types_to_quantize=["MatMul"]
    )


def write_tokenizer(folder):
    """Write open_clip's own words as a tokenizer.json, which is CLIP's."""
    import open_clip
    import transformers

    words = open_clip.tokenizer.SimpleTokenizer()
    merges = sorted(words.bpe_ranks, key=words.bpe_ranks.get)
    names = {"<start_of_text>": "<|startoftext|>", "<end_of_text>": "<|endoftext|>"}
    vocabulary = {names.get(word, word): number for word, number in words.encoder.items()}
    transformers.CLIPTokenizer(vocab=vocabulary, merges=merges).save_pretrained(folder)
    return folder


class _OpenClipText(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, text):
        return self.model.encode_text(text.long())


def write_open_clip_pair(folder, model, context):
    """Write the towers as rclip has them."""
    size = model.visual.image_size
    size = size[0] if isinstance(size, tuple) else size
    image, text = torch.rand(2, 3, size, size), torch.ones(2, context, dtype=torch.int64)
    export(model.visual, image, folder / "visual.onnx", ("input", "output"))
    export(_OpenClipText(model), text, folder / "textual.onnx", ("input", "output"))
    (folder / "preprocessor_config.json").write_text(json.dumps({"size": size, "crop_size": size}))
    (folder / "config.json").write_text(json.dumps({"text_config": {"max_position_embeddings": context}}))
    write_tokenizer(folder)
    return folder
