"""Which files of a model folder are its towers, tokenizer and configuration: the layouts that are read.

onnx/vision_model.onnx, onnx/text_model.onnx      transformers.js (Xenova, onnx-community)
visual.onnx, textual.onnx                         rclip
"""

import re
from collections.abc import Iterable

from prolip.core.errors import ModelError, check_name
from prolip.encoders.onnx_tower import runs_signed_convolutions

# Endings of a tower's name. Signed weights (_int8) are twice as fast as unsigned ones where ONNX Runtime can
# run them.
PRECISIONS = {"fp32": ("",), "int8": ("_int8", "_quantized")}
# Patterns of the image tower and of the text tower; {} is the ending.
_LAYOUTS = (
    (r"(?:onnx/)?vision_model{}\.onnx", r"(?:onnx/)?text_model{}\.onnx"),
    (r"visual{}\.onnx", r"textual{}\.onnx"),
)
_OTHERS = ("tokenizer.json", "preprocessor_config.json", "config.json", "tokenizer_config.json")


def split_precision(name: str) -> tuple[str, str]:
    """Split NAME@PRECISION; without a precision it is fp32."""
    start, at, precision = name.rpartition("@")
    return (start, precision) if at and precision in PRECISIONS else (name, "fp32")


def choose_files(name: str, files: Iterable[str], precision: str) -> list[str]:
    """Find a model of a precision among the files of a folder or a repository.

    The image tower comes first, then the text tower; then tokenizer, configurations and tensors of a tower.
    """
    check_name("precision", precision, PRECISIONS)
    known = sorted(set(files))
    signed = runs_signed_convolutions()
    endings = sorted(PRECISIONS[precision], key=lambda end: end == "_int8" and not signed)
    for layout in _LAYOUTS:
        image, text = (_first(pattern, endings, known) for pattern in layout)
        if image is not None and text is not None:
            beside = tuple(f"{tower}{end}" for tower in (image, text) for end in ("_data", ".data"))
            return [image, text, *(file for file in known if file in _OTHERS or file.startswith(beside))]
    raise ModelError(
        f"{name} has no image and text tower of ONNX in {precision}, like onnx/vision_model.onnx and "
        "onnx/text_model.onnx, or visual.onnx and textual.onnx; another precision is NAME@int8 or NAME@fp32"
    )


def _first(pattern: str, endings: list[str], files: list[str]) -> str | None:
    matches = (
        file for ending in endings for file in files if re.fullmatch(pattern.replace("{}", ending), file)
    )
    return next(matches, None)
