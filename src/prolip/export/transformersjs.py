"""A folder that the pipelines of transformers.js load, of a model of ONNX graphs.

    onnx/model.onnx           input_ids, pixel_values  ->  logits_per_image, logits_per_text, text_embeds,
                                                           image_embeds: unit rows
    onnx/vision_model.onnx    pixel_values             ->  image_embeds, before normalisation
    onnx/text_model.onnx      input_ids                ->  text_embeds, likewise

and the configurations and the tokenizer of the base model. The pipeline zero-shot-image-classification loads
the first graph, image-feature-extraction the second. A text tower with an attention_mask takes that, too. The
graphs have the file names of float32, whatever the precision of the towers, and config.json says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prolip.core.arrays import unit_rows
from prolip.core.errors import ModelError
from prolip.encoders.base import Encoder
from prolip.export.fold import Folded
from prolip.export.onnx import PROMPTS, noise_pixels, require_close, run_graph
from prolip.io.onnx_graph import Graph, Values
from prolip.io.reading import read_bytes, read_json
from prolip.io.writing import write_bytes, write_json

_FILES = ("config.json", "preprocessor_config.json", "tokenizer.json", "tokenizer_config.json")
_GRAPHS = {"model": ("image", "text"), "vision_model": ("image",), "text_model": ("text",)}


def require_files(encoder: Encoder) -> dict[str, Path]:
    """Return the files beside the graphs that transformers.js needs; refuse a model that lacks one."""
    otherwise = 'export it to="onnx" or to="web"'
    if encoder.files is None:
        raise ModelError(
            f"{encoder.name} is not a CLIP in ONNX graphs, such as clip or onnx:OWNER/NAME: {otherwise}"
        )
    if missing := [name for name in _FILES if name not in encoder.files]:
        raise ModelError(f"{encoder.name} has no {missing[0]}, which transformers.js needs: {otherwise}")
    if read_json(encoder.files["config.json"]).get("model_type") != "clip":
        raise ModelError(f"{encoder.name} is not a CLIP by its config.json: {otherwise}")
    return {name: encoder.files[name] for name in _FILES}


def write_transformersjs(folder: Path, encoder: Encoder, files: Mapping[str, Path], folded: Folded) -> None:
    """Write the files into an existing folder; every graph is run, and compared with the model."""
    for name, path in files.items():
        write_bytes(folder / name, read_bytes(path))
    # Otherwise browsers would look for model_quantized.onnx.
    config = {**read_json(files["config.json"]), "transformers.js_config": {"dtype": "fp32"}}
    write_json(folder / "config.json", config)
    (folder / "onnx").mkdir()
    pixels, tokens = noise_pixels(encoder), encoder.token_arrays(PROMPTS[:1])
    image = unit_rows(folded.head(encoder.encode(pixels)))
    text = unit_rows(folded.text_head(encoder.encode_text(PROMPTS[:1])))
    logits = folded.scale * image @ text.T
    expected = {
        "image_embeds": image, "text_embeds": text, "logits_per_image": logits, "logits_per_text": logits.T,
    }  # fmt: skip
    for name, towers in _GRAPHS.items():
        path = folder / "onnx" / f"{name}.onnx"
        content, inputs, outputs = _graph(encoder, folded, towers)
        write_bytes(path, content)
        arrays = {"pixel_values": encoder.preprocess.normalise_arrays(pixels)}
        arrays |= {key if key == "attention_mask" else "input_ids": array for key, array in tokens.items()}
        (found,) = run_graph(path, [{key: arrays[key] for key in inputs}], list(outputs))
        for output, array in zip(outputs, found, strict=True):
            of_logits = output.startswith("logits")
            tolerance = encoder.graph_tolerance * (folded.scale if of_logits else 1)
            require_close(path, array if of_logits else unit_rows(array), expected[output], tolerance)


def _graph(encoder: Any, folded: Folded, towers: tuple[str, ...]) -> tuple[bytes, Values, Values]:
    """Return a graph of one tower or both, with its inputs and outputs."""
    graph = Graph()
    size, dim = encoder.preprocess.size, folded.head.dim
    inputs: dict[str, tuple[str, tuple[int | str, ...]]] = {}
    embeds: dict[str, str] = {}
    for tower in towers:
        features, names = encoder.tower_to_onnx(graph, tower)
        embeds[tower] = graph.head(folded.head if tower == "image" else folded.text_head, features)
        for name in names:
            images = ("float32", ("image_batch", 3, size, size))
            inputs[name] = images if name == "pixel_values" else ("int64", ("text_batch", "length"))
    outputs: dict[str, tuple[str, tuple[int | str, ...]]] = {}
    if len(towers) == 2:
        embeds = {tower: graph.unit_rows(x) for tower, x in embeds.items()}
        scaled = graph.node("Mul", embeds["image"], folded.scale)
        turned = graph.node("Transpose", embeds["text"], perm=[1, 0])
        graph.node("MatMul", scaled, turned, output="logits_per_image")
        graph.node("Transpose", "logits_per_image", perm=[1, 0], output="logits_per_text")
        outputs["logits_per_image"] = ("float32", ("image_batch", "text_batch"))
        outputs["logits_per_text"] = ("float32", ("text_batch", "image_batch"))
    for tower, x in embeds.items():
        graph.node("Identity", x, output=f"{tower}_embeds")
        outputs[f"{tower}_embeds"] = ("float32", (f"{tower}_batch", dim))
    return graph.to_bytes(inputs, outputs), inputs, outputs
