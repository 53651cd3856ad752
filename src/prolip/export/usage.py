"""Example programs that load an exported folder, for the model card."""

import json
from collections.abc import Collection
from string import Template
from typing import Any

# A file that identifies the format: the name of the library, and the program.
PROGRAMS: dict[str, tuple[str, str]] = {
    "config.json": (
        "transformers",
        """
from transformers import pipeline

classify = pipeline("zero-shot-image-classification", model="path/to/this/folder")
classify("image.jpg", candidate_labels=$labels, hypothesis_template=$template)
""",
    ),
    "open_clip_config.json": (
        "open_clip",
        """
import open_clip, torch
from PIL import Image

model, preprocess = open_clip.create_model_from_pretrained("local-dir:path/to/this/folder")
tokenizer = open_clip.get_tokenizer("local-dir:path/to/this/folder")
prompts = [$template.format(name) for name in $labels]
with torch.no_grad():
    image = model.encode_image(preprocess(Image.open("image.jpg"))[None], normalize=True)
    text = model.encode_text(tokenizer(prompts), normalize=True)
    probabilities = (model.logit_scale.exp() * image @ text.T).softmax(dim=-1)
""",
    ),
    "classifier.onnx": (
        "ONNX Runtime",
        """
import json, numpy as np, onnxruntime
from PIL import Image, ImageOps

session = onnxruntime.InferenceSession("classifier.onnx")
image = ImageOps.exif_transpose(Image.open("image.jpg")).convert("RGB")
$prepare
probabilities = session.run(None, {"pixels": np.asarray(image)[None]})[0][0]
classes = json.loads(session.get_modelmeta().custom_metadata_map["classes"])
print(classes[probabilities.argmax()], probabilities.max())
""",
    ),
    "prolip_adapter.json": (
        "prolip, which loads the adapter with its base model",
        """
from prolip.export import load_adapter

encoder = load_adapter("path/to/this/folder")    # encoder.head is the adapted projection
""",
    ),
    "prolip.json": (
        "prolip",
        """
import prolip

clf = prolip.FewShotClassifier.load("path/to/this/folder")
clf.predict(["image.jpg"])
""",
    ),
}

SIGMOID = (
    "\n\nThe pipeline shows a sigmoid of each score, as it does for every SigLIP. The probabilities above "
    "are a softmax over the classes."
)


def programs(config: dict[str, Any], files: Collection[str]) -> list[str]:
    """Return Markdown for each library that can load a folder with these files."""
    labels = json.dumps([str(name).replace("_", " ") for name in config["classes"]], ensure_ascii=False)
    template = json.dumps((config.get("templates") or ["a photo of a {}."])[0], ensure_ascii=False)
    values = {"labels": labels, "template": template, "prepare": _prepare(config.get("preprocess"))}
    found = {
        file: f"With {title}:\n\n```python\n{Template(text).substitute(values).strip()}\n```"
        for file, (title, text) in PROGRAMS.items()
        if file in files
    }
    if config.get("sigmoid") and "config.json" in found:
        found["config.json"] += SIGMOID
    return list(found.values())


def _prepare(preprocess: dict[str, Any] | None) -> str:
    """Return lines of Python that resize and crop `image` as `Preprocess.centre` does."""
    if preprocess is None:
        return ""
    size, filter_ = preprocess["size"], f"Image.{preprocess['interpolation'].upper()}"
    if preprocess["resize"] == "squash":
        return f"image = image.resize(({size}, {size}), {filter_})"
    if preprocess["resize"] == "longest":
        lines = [
            f"ratio = max(image.size) / {size}",
            f"small = image.resize([max(1, round(side / ratio)) for side in image.size], {filter_})",
            f'image = Image.new("RGB", ({size}, {size}), {(preprocess["fill"],) * 3})',
            f"image.paste(small, (({size} - small.width) // 2, ({size} - small.height) // 2))",
        ]
        return "\n".join(lines)
    target = preprocess["resize_to"] or size
    margin = "({} - {}) // 2" if preprocess["crop"] == "floor" else "round(({} - {}) / 2)"
    left, top = (margin.format(side, size) for side in ("width", "height"))
    lines = [
        f"width, height = (int({target} * side / min(image.size)) for side in image.size)",
        f"image = image.resize((width, height), {filter_})",
        f"left, top = {left}, {top}",
        f"image = image.crop((left, top, left + {size}, top + {size}))",
    ]
    return "\n".join(lines)
