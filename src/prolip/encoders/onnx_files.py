"""Which files of a model folder are its towers, tokenizer and image processor: the layouts in use on the hub.

onnx/vision_model.onnx, onnx/text_model.onnx              transformers.js (Xenova, onnx-community)
visual/model.onnx, textual/model.onnx                     immich
onnx32-open_clip-RN50-openai-{visual,textual}.onnx        Marqo's open_clip towers
visual.onnx, textual.onnx                                 rclip
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from prolip.core.errors import ModelError, check_name
from prolip.io.onnx_runtime import runs_signed_convolutions

PRECISIONS = ("fp32", "fp16", "int8")

# Patterns of the image tower and of the text tower; {} is what a precision is called.
_LAYOUTS: tuple[tuple[str, str, dict[str, tuple[str, ...]]], ...] = (
    (
        r"(?:onnx/)?vision_model{}\.onnx",
        r"(?:onnx/)?text_model{}\.onnx",
        # Signed weights (_int8) are twice as fast as unsigned ones where ONNX Runtime can run them.
        {"fp32": ("",), "fp16": ("_fp16",), "int8": ("_int8", "_quantized", "_uint8")},
    ),
    (r"visual/{}model\.onnx", r"textual/{}model\.onnx", {"fp32": ("",), "fp16": ("fp16/",)}),
    (
        r"onnx{}-open_clip-[\w-]+-visual\.onnx",
        r"onnx{}-open_clip-[\w-]+-textual\.onnx",
        {"fp32": ("32",), "fp16": ("16",)},
    ),
    (r"visual{}\.onnx", r"textual{}\.onnx", {"fp32": ("",)}),
)
_PROCESSORS = ("preprocessor_config.json", "visual/preprocess_cfg.json")
_TOKENIZERS = ("tokenizer.json", "textual/tokenizer.json")
_OTHERS = ("config.json", "tokenizer_config.json", "textual/tokenizer_config.json")


@dataclass(frozen=True)
class ModelFiles:
    """The files of a model, relative to its folder."""

    image: str
    text: str
    tokenizer: str | None
    image_processor: str | None
    others: tuple[str, ...]  # small files of JSON
    data: tuple[str, ...] = ()  # tensors of a tower, beside it

    def all(self) -> tuple[str, ...]:
        """Return every file, towers first."""
        named = (self.image, self.text, self.tokenizer, self.image_processor, *self.others, *self.data)
        return tuple(name for name in named if name is not None)


def split_precision(name: str) -> tuple[str, str]:
    """Split NAME@PRECISION; without a precision it is fp32."""
    start, at, precision = name.rpartition("@")
    return (start, precision) if at and precision in PRECISIONS else (name, "fp32")


def choose_files(
    name: str, files: Iterable[str], precision: str = "fp32", *, strict: bool = False
) -> ModelFiles:
    """Find the towers of a precision among the files of a folder or a repository.

    A tower that is not there in this precision is taken in another one, in the order of `PRECISIONS`; if
    `strict`, the image tower is not.
    """
    check_name("precision", precision, PRECISIONS)
    known = sorted(set(files))
    order = [precision, *(each for each in PRECISIONS if each != precision)]
    for image_pattern, text_pattern, words in _LAYOUTS:
        image = _first(image_pattern, words, order[:1] if strict else order, known)
        text = _first(text_pattern, words, order, known)
        if image is not None and text is not None:
            beside = tuple(f"{tower}{end}" for tower in (image, text) for end in ("_data", ".data"))
            return ModelFiles(
                image,
                text,
                next((each for each in _TOKENIZERS if each in known), None),
                next((each for each in _PROCESSORS if each in known), None),
                tuple(each for each in _OTHERS if each in known),
                tuple(each for each in known if each.startswith(beside)),
            )
    raise ModelError(
        f"{name} has no pair of image and text towers in ONNX that prolip knows, like "
        "onnx/vision_model.onnx and onnx/text_model.onnx, or visual.onnx and textual.onnx"
    )


def _first(pattern: str, words: dict[str, tuple[str, ...]], order: list[str], files: list[str]) -> str | None:
    for precision in order:
        signed_last = sorted(
            words.get(precision, ()), key=lambda w: w == "_int8" and not runs_signed_convolutions()
        )
        for word in signed_last:
            for file in files:
                if re.fullmatch(pattern.replace("{}", re.escape(word)), file):
                    return file
    return None
