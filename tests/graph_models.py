"""A CLIP-like model as two small ONNX graphs, in the layout of transformers.js; needs no torch."""

import json

import numpy as np

from prolip.io.onnx_graph import Graph

SIZE, WIDTH, DIM = 16, 24, 8
WORDS = ["[PAD]", "[UNK]", "a", "photo", "of", "red", "green", "blue"]


def write_graphs(folder, seed=0, layout="onnx/{}_model.onnx", padding=0):
    """Write towers that average colours: images of a colour are near each other."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    rng = np.random.default_rng(seed)
    (folder / layout.format("vision")).parent.mkdir(parents=True, exist_ok=True)
    image = Graph("image")
    pooled = image.node("ReduceMean", "pixel_values", np.array([2, 3]), keepdims=0)
    hidden = image.node("Relu", image.node("MatMul", pooled, rng.normal(size=(3, WIDTH))))
    image.node("MatMul", hidden, rng.normal(size=(WIDTH, DIM)), output="image_embeds")
    image.constant(np.zeros(padding, np.float32))
    inputs = {"pixel_values": ("float32", ("batch", 3, SIZE, SIZE))}
    content = image.to_bytes(inputs, {"image_embeds": ("float32", ("batch", DIM))})
    (folder / layout.format("vision")).write_bytes(content)
    text = Graph()
    words = text.node("Gather", rng.normal(size=(len(WORDS), WIDTH)), "input_ids", axis=0)
    pooled = text.node("ReduceMean", words, np.array([1]), keepdims=0)
    text.node("MatMul", pooled, rng.normal(size=(WIDTH, DIM)), output="text_embeds")
    inputs = {"input_ids": ("int64", ("batch", "length"))}
    content = text.to_bytes(inputs, {"text_embeds": ("float32", ("batch", DIM))})
    (folder / layout.format("text")).write_bytes(content)
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps({"model_type": "clip"}))
    (folder / "preprocessor_config.json").write_text(json.dumps({"size": SIZE, "crop_size": SIZE}))
    return folder
