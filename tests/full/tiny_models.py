"""Models of open_clip and transformers, tiny and with random weights, written as users have them on disk."""

import json

import numpy as np
import torch
from PIL import Image

from pictures import COLOURS, blotch

WORDS = ["[PAD]", "[UNK]", "a", "photo", "of", "cat", "dog"]


def random_model(config, seed=0):
    """A model of this architecture in which no parameter is at a special value."""
    import open_clip

    config = json.loads(json.dumps(config))
    custom = config.pop("custom_text", False) or "hf_model_name" in config["text_cfg"]
    torch.manual_seed(seed)
    model = (open_clip.CustomTextCLIP if custom else open_clip.CLIP)(**config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
        for name, buffer in model.named_buffers():
            if name.endswith("running_var"):
                buffer.uniform_(0.5, 1.5)
    return model.eval()


def write_folder(folder, config, preprocess=None, seed=0):
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    saved = {"model_cfg": config, "preprocess_cfg": preprocess or {}}
    (folder / "open_clip_config.json").write_text(json.dumps(saved))
    weights = {name: tensor.clone() for name, tensor in random_model(config, seed).state_dict().items()}
    save_file(weights, folder / "open_clip_model.safetensors")
    return folder


def unsettle(model):
    """Move every parameter away from special values such as zero biases."""
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return model.eval()


def write_clip(folder, **processor):
    import transformers

    letters = [chr(c) for c in range(97, 123)]
    symbols = ["<|startoftext|>", "<|endoftext|>", *letters, *(letter + "</w>" for letter in letters)]
    vocabulary = {symbol: number for number, symbol in enumerate(symbols)}
    transformers.CLIPTokenizer(vocab=vocabulary, merges=[]).save_pretrained(folder)
    text = {
        "vocab_size": len(vocabulary), "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2,
        "num_attention_heads": 2, "max_position_embeddings": 20, "bos_token_id": 0, "eos_token_id": 1,
    }  # fmt: skip
    vision = {
        "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2,
        "image_size": 32, "patch_size": 8,
    }  # fmt: skip
    config = transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=12)
    unsettle(transformers.CLIPModel(config)).save_pretrained(folder)
    sizes = {"size": {"shortest_edge": 36}, "crop_size": {"height": 32, "width": 32}}
    transformers.CLIPImageProcessorPil(**{**sizes, **processor}).save_pretrained(folder)
    return folder


def word_tokenizer():
    """A tokenizer that knows a few words."""
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]"
    )


def write_siglip(folder, **processor):
    import transformers

    word_tokenizer().save_pretrained(folder)
    shared = {
        "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2,
    }  # fmt: skip
    config = transformers.SiglipConfig(
        text_config={**shared, "vocab_size": len(WORDS), "max_position_embeddings": 8},
        vision_config={**shared, "image_size": 32, "patch_size": 16},
    )
    unsettle(transformers.SiglipModel(config)).save_pretrained(folder)
    size = {"size": {"height": 32, "width": 32}, "resample": 2}
    transformers.SiglipImageProcessorPil(**{**size, **processor}).save_pretrained(folder)
    return folder


TEXT = {"context_length": 24, "vocab_size": 49408, "width": 24, "heads": 2, "layers": 3}
TOWERS = {
    "vit": {
        "embed_dim": 20,
        "vision_cfg": {"image_size": 32, "layers": 3, "width": 32, "head_width": 16, "patch_size": 16},
        "text_cfg": TEXT,
    },
    "resnet": {
        "embed_dim": 20,
        "vision_cfg": {"image_size": 64, "layers": [1, 1, 1, 1], "width": 8, "head_width": 32},
        "text_cfg": TEXT,
    },
}
SHORT_TEXT = {"context_length": 16, "vocab_size": 49408, "width": 24, "heads": 2, "layers": 1}
CLIP_TEXT = {"embed_dim": 20, "text_cfg": SHORT_TEXT}
SIGLIP_TEXT = {**SHORT_TEXT, "no_causal_mask": True, "proj_bias": True, "pool_type": "last"}


def timm(name, **more):
    return {"timm_model_name": name, "image_size": 160, **more}


OPEN_CLIP = {
    "clip-resnet": {
        **CLIP_TEXT,
        "vision_cfg": {"image_size": 64, "layers": [1, 1, 1, 1], "width": 8, "head_width": 32},
    },
    "clip-vit": {
        **CLIP_TEXT,
        "vision_cfg": {"image_size": 48, "layers": 2, "width": 32, "head_width": 16, "patch_size": 16},
        "quick_gelu": True,
    },
    "siglip": {
        "embed_dim": 96,
        "init_logit_bias": -10,
        "custom_text": True,
        # timm's smallest tower with SigLIP's pooling head: r + fc2(act(fc1(norm(r))))
        "vision_cfg": timm("test_vit3", timm_pool="map", timm_proj="none"),
        "text_cfg": {**SIGLIP_TEXT, "width": 96},
    },
    "timm-linear": {**CLIP_TEXT, "vision_cfg": timm("test_convnext", timm_pool="", timm_proj="linear")},
    "timm-mlp": {
        **CLIP_TEXT,
        "vision_cfg": timm("test_convnext", timm_pool="", timm_proj="mlp", timm_proj_bias=True),
    },
    "timm-classifier": {**CLIP_TEXT, "vision_cfg": timm("test_vit", timm_pool="token", timm_proj=None)},
    "timm-bare": {
        "embed_dim": 64,
        "vision_cfg": timm("test_convnext", timm_pool="avg", timm_proj="none"),
        "text_cfg": SHORT_TEXT,
    },
}  # fmt: skip
CLASSES = ("red", "green", "blue")


def pictures():
    """Pictures of noise, of several sizes and shapes."""
    rng = np.random.default_rng(0)
    sizes = [(91, 67), (50, 203), (161, 160), (37, 36), (20, 29), (33, 400)]
    return [Image.fromarray(rng.integers(0, 256, (h, w, 3), np.uint8)) for h, w in sizes]


def as_pixels(encoder, images):
    return np.stack([encoder.preprocess.centre(image) for image in images])


def normalised(encoder, pixels):
    return encoder.preprocess.normalise(torch.from_numpy(pixels))


def colours(count=4):
    """Pictures of three colours, and their labels."""
    pictures = [blotch(colour, 10 * k + i) for k, colour in enumerate(COLOURS.values()) for i in range(count)]
    return pictures, np.arange(len(COLOURS)).repeat(count)


def tower_task(encoder, scale=10.0, template="a photo of a {}."):
    """Three colours as a task, beside the encoder; and the pixels of the pictures."""
    from prolip.research.towers.tower_method import TowerTask

    pictures, y = colours()
    pixels = np.stack([encoder.preprocess.centre(picture) for picture in pictures])
    text = encoder.text(CLASSES, [template])
    task = TowerTask(
        encoder.encode(pixels),
        y,
        text,
        encoder.head,
        scale,
        None,
        (template,),
        tuple(pictures),
        encoder=encoder,
    )
    return task, pixels
