"""Which files of a model folder are its towers, tokenizer and configuration: the layouts that are read.

onnx/vision_model.onnx, onnx/text_model.onnx      transformers.js (Xenova, onnx-community)
visual.onnx, textual.onnx                         rclip
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from prolip.core.errors import ModelError, check_name
from prolip.io.onnx_runtime import runs_signed_convolutions

# Endings of a tower's name. Signed weights (_int8) are twice as fast as unsigned ones where ONNX Runtime can
# run them.
PRECISIONS = {"fp32": ("",), "int8": ("_int8", "_quantized", "_uint8")}
# Patterns of the image tower and of the text tower; {} is the ending.
_LAYOUTS = (
    (r"(?:onnx/)?vision_model{}\.onnx", r"(?:onnx/)?text_model{}\.onnx"),
    (r"visual{}\.onnx", r"textual{}\.onnx"),
)
_OTHERS = ("tokenizer.json", "preprocessor_config.json", "config.json", "tokenizer_config.json")


@dataclass(frozen=True)
class ModelFiles:
    """The files of a model, relative to its folder."""

    image: str
    text: str
    others: tuple[str, ...]  # tokenizer and configurations, and tensors of a tower beside it

    def all(self) -> tuple[str, ...]:
        """Return every file, towers first."""
        return self.image, self.text, *self.others


def split_precision(name: str) -> tuple[str, str]:
    """Split NAME@PRECISION; without a precision it is fp32."""
    start, at, precision = name.rpartition("@")
    return (start, precision) if at and precision in PRECISIONS else (name, "fp32")


def choose_files(
    name: str, files: Iterable[str], precision: str = "fp32", *, strict: bool = False
) -> ModelFiles:
    """Find the towers of a precision among the files of a folder or a repository.

    A tower that is not there in this precision is taken in another one; if `strict`, the image tower is not.
    """
    check_name("precision", precision, PRECISIONS)
    known = sorted(set(files))
    wanted = _endings(precision)
    any_other = [
        *wanted,
        *(ending for other in PRECISIONS if other != precision for ending in _endings(other)),
    ]
    for image_pattern, text_pattern in _LAYOUTS:
        image = _first(image_pattern, wanted if strict else any_other, known)
        text = _first(text_pattern, any_other, known)
        if image is not None and text is not None:
            beside = tuple(f"{tower}{end}" for tower in (image, text) for end in ("_data", ".data"))
            others = (file for file in known if file in _OTHERS or file.startswith(beside))
            return ModelFiles(image, text, tuple(others))
    raise ModelError(
        f"{name} has no pair of image and text towers in ONNX that prolip knows, like "
        "onnx/vision_model.onnx and onnx/text_model.onnx, or visual.onnx and textual.onnx"
    )


def _endings(precision: str) -> list[str]:
    return sorted(PRECISIONS[precision], key=lambda end: end == "_int8" and not runs_signed_convolutions())


def _first(pattern: str, endings: list[str], files: list[str]) -> str | None:
    matches = (
        file for ending in endings for file in files if re.fullmatch(pattern.replace("{}", ending), file)
    )
    return next(matches, None)
