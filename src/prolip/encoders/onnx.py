"""CLIP-like models as ONNX graphs, on NumPy and ONNX Runtime alone: `onnx:ID-or-PATH[@fp32|int8]`.

The image tower is cut before its projection (`onnx_cut`), so that its features can be kept and the projection
tuned and put back; what the cut gives is compared with the graph's own output when it is loaded. A graph that
cannot be cut is a black box, whose embeddings are the features. Text goes through the tokenizer that the
model comes with. Preprocessing is that of its configuration, by Pillow, which anti-aliases as training did.
"""

from __future__ import annotations

import hashlib
import json
import string
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from prolip.core.arrays import Array, unit_rows
from prolip.core.errors import ModelError, UsageError, first_line
from prolip.core.head import Head
from prolip.encoders.base import Encoder, choose_device
from prolip.encoders.onnx_cut import find_projection
from prolip.encoders.onnx_files import choose_files, split_precision
from prolip.encoders.onnx_tower import PIECE, OnnxSession, onnx_runtime
from prolip.encoders.preprocess import CLIP_MEAN, CLIP_STD, Preprocess
from prolip.encoders.pretrained import (
    DownloadRequiredError,
    PretrainedModel,
    file_sha256,
    find_files,
    find_source,
    is_hub_name,
)
from prolip.io.onnx_graph import Graph, OnnxModel
from prolip.io.reading import read_json

SCALES = {"clip": 100.0, "siglip": 117.33}  # where the files do not say: the models' own, to their last digit
CONTEXT = {"clip": 77, "siglip": 64}  # tokens, where neither graph nor configuration says
GRAPH_TOLERANCE = {"fp32": 1e-4, "int8": 5e-2}  # int8: batches differ from images by themselves
_AGREEMENT = {"fp32": 0.9999, "int8": 0.99}  # least cosine of the cut and the graph's own output
_EMBEDDINGS = ("image_embeds", "text_embeds", "embeddings", "embedding", "pooler_output")  # as outputs
_GPU_BATCH = 32
_PROMPTS = 64  # of one run


def load(rest: str, device: str) -> OnnxEncoder:
    """Load the encoder of the name after `onnx:`: a folder, or a repository that is in the cache."""
    source, precision = split_precision(rest)
    if not source:
        raise UsageError("onnx: needs a folder or a repository, like onnx:Xenova/clip-vit-base-patch32")
    if is_hub_name(f"onnx:{rest}"):
        return load_pretrained(f"onnx:{rest}", device)
    folder = Path(source).expanduser().resolve()
    names = sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file())
    files = {name: folder / name for name in choose_files(str(folder), names, precision)}
    return OnnxEncoder(f"onnx:{folder}@{precision}", files, PretrainedModel("", "", precision), device)


def load_pretrained(name: str, device: str = "auto") -> OnnxEncoder:
    """Load a model of the hub, by its short name or `onnx:OWNER/REPOSITORY`, that was downloaded before."""
    source = find_source(name)
    files = find_files(source)
    if files is None:
        raise DownloadRequiredError(name, source)
    return OnnxEncoder(name, files, source, device)


class OnnxEncoder(Encoder):
    """An image tower and a text tower on ONNX Runtime; the text tower is opened when it is first needed."""

    writes_graphs = True

    def __init__(self, name: str, files: dict[str, Path], source: PretrainedModel, device: str) -> None:
        config, self._words, processor = (
            _json(files[file]) if file in files else {}
            for file in ("config.json", "tokenizer_config.json", "preprocessor_config.json")
        )
        self._kind = kind = "siglip" if "siglip" in str(config.get("model_type")) else "clip"
        self._context = config.get("text_config", {}).get("max_position_embeddings") or CONTEXT[kind]
        image_path, self._text_path, *_ = files.values()
        self._tokenizer_path = files.get("tokenizer.json")
        self.name, self.files = name, files
        self.licence, self.revision, self.original = source.licence, source.revision, source.original
        self.precision = source.precision
        self.scale = source.scale or SCALES[kind]
        self.shows_sigmoid = kind == "siglip"
        self.graph_tolerance = GRAPH_TOLERANCE[self.precision]
        self._image = image = Tower(OnnxModel(image_path), self.precision, device)
        self.preprocess = _preprocess(processor, kind, name, image.shape(image.inputs[0])[-1])
        read = [path for path in (image_path, self._text_path, self._tokenizer_path) if path is not None]
        digests = [file_sha256(file) for path in read for file in (path, *_tensor_files(path))]
        about = json.dumps([digests, self.preprocess.config(), self.scale])
        self.fingerprint = hashlib.sha256(about.encode()).hexdigest()
        self.device, size = image.device, self.preprocess.size
        noise = np.random.default_rng(0).integers(0, 256, (2, size, size, 3), np.uint8)
        normalised = self.preprocess.normalise_arrays(noise)
        self.head, self.black_box_reason = image.check({image.inputs[0]: normalised})

    def encode(self, pixels: Array) -> Array:
        """Return pre-projection features [B, head.width] of uint8 pixels [B, S, S, 3]."""
        return self._image({self._image.inputs[0]: self.preprocess.normalise_arrays(pixels)})

    def encode_text(self, prompts: Sequence[str]) -> Array:
        """Return pre-projection text features [len(prompts), Dt]."""
        _ = self.text_head  # finding it cuts the tower
        size = 1 if self.precision == "int8" else _PROMPTS  # as for images
        parts = [
            self._text(self.token_arrays(prompts[start : start + size]))
            for start in range(0, len(prompts), size)
        ]
        return np.concatenate(parts)

    def token_arrays(self, prompts: Sequence[str]) -> dict[str, Array]:
        """Return prompts as the text tower takes them."""
        return self._tokenizer.arrays(prompts, self._text)

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        """It is read when it is first needed: that of SigLIP 2 takes a second."""
        if self._tokenizer_path is None:
            raise ModelError(f"{self.name} has no tokenizer.json: put the model's own beside its towers")
        return Tokenizer(self._tokenizer_path, self._words, self._kind, self._context)

    @cached_property
    def _text(self) -> Tower:
        return Tower(OnnxModel(self._text_path), self.precision, self.device)

    @cached_property
    def text_head(self) -> Head:  # type: ignore[override]
        """The projection of the text tower."""
        return self._text.check(self.token_arrays(["a photo of a cat.", "a dog"]))[0]

    def image_to_onnx(self, graph: Graph, pixels: str) -> str:
        """Add the image tower to a graph as it stands in its file; returns the name of the features."""
        std, mean = np.array(self.preprocess.std), np.array(self.preprocess.mean)
        scaled = graph.node("Mul", graph.node("Cast", pixels, to=1), 1 / (255 * std))
        moved = graph.node("Sub", scaled, mean / std)
        graph.node("Transpose", moved, perm=[0, 3, 1, 2], output=self._image.inputs[0])
        return self._image.to_onnx(graph)


class Tower:
    """A graph that gives what goes into its last linear map, `head`; or, as a black box, its embedding."""

    def __init__(self, model: OnnxModel, precision: str, device: str = "cpu") -> None:
        device, outputs = choose_onnx_device(device), model.outputs
        output = next((name for name in _EMBEDDINGS if name in outputs), outputs[0])
        self._path, self._precision = model.path, precision
        self._output = output
        self._features: tuple[str, ...] = (output,)
        try:
            self._projection = find_projection(model, output)
            values = (*self._projection.features, output) if self._projection else (output,)
            content = model.with_outputs(dict.fromkeys(values))
            self._session = OnnxSession(content, _providers(device), model.path.parent)
        except Exception as error:  # onnxruntime's errors have no base of their own
            raise ModelError(
                f"onnxruntime {onnx_runtime().__version__} cannot run {model.path}: {first_line(error)}; "
                "update it, or use another precision, like NAME@fp32"
            ) from error
        self.device = "cpu" if self._session.on_cpu else device  # ONNX Runtime logs what hinders it
        self.inputs = tuple(self._session.inputs)

    def __call__(self, inputs: Mapping[str, Array], names: Sequence[str] | None = None) -> Array:
        """Return features [B, width] of arrays [B, ...]; or other values of the graph."""
        size = PIECE if self.device == "cpu" else _GPU_BATCH
        # Dynamic int8 scales activations by the largest in a batch: features would depend on other images.
        if self._precision == "int8" or self.shape(self.inputs[0])[0] == 1:
            size = 1
        given = {
            name: array.astype(_TYPES[self._session.inputs[name].type], copy=False)
            for name, array in inputs.items()
        }
        count, rows = len(given[self.inputs[0]]), []
        for place, found in enumerate(self._session(given, names or self._features, size)):
            own = min(size, count - place * size)
            rows.append(np.concatenate([array.reshape(own, -1) for array in found], axis=1))
        return np.concatenate(rows)

    def check(self, inputs: Mapping[str, Array]) -> tuple[Head, str | None]:
        """Return the head; or the identity, and why: a cut that gives other embeddings is not used."""
        whole, projection = self(inputs, (self._output,)), self._projection
        if projection is not None:
            features = self(inputs, projection.features)
            if features.shape[1] == projection.head.width:
                cosines = (unit_rows(projection.head(features)) * unit_rows(whole)).sum(axis=1)
                if cosines.min() >= _AGREEMENT[self._precision]:
                    self._features = projection.features
                    return projection.head, None
        return Head.identity(whole.shape[1]), "its graph does not end in a linear map"

    def to_onnx(self, graph: Graph) -> str:
        """Add the tower to a graph; return the name of its features [B, width]. Inputs have its own names."""
        import onnx

        model = OnnxModel(self._path)
        onnx.load_external_data_for_model(model.proto, str(self._path.parent))
        graph.include(model, self._features)
        rows = [graph.node("Flatten", graph.cast(name, "float32"), axis=1) for name in self._features]
        return rows[0] if len(rows) == 1 else graph.node("Concat", *rows, axis=1)

    def shape(self, name: str) -> Sequence[Any]:
        """Return the shape of an input; sizes that are not fixed are words."""
        found: Sequence[Any] = self._session.inputs[name].shape
        return found


def choose_onnx_device(device: str) -> str:
    """Return the device to use for a model on ONNX Runtime."""
    cuda = "CUDAExecutionProvider" in onnx_runtime().get_available_providers()
    return choose_device(device, ", or install onnxruntime-gpu for cuda", cuda=cuda)


def _providers(device: str) -> list[Any]:
    if device == "cpu":
        return ["CPUExecutionProvider"]
    return [("CUDAExecutionProvider", {"device_id": device.partition(":")[2] or "0"}), "CPUExecutionProvider"]


_TYPES = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(int32)": np.int32}


class Tokenizer:
    """The tokenizer of a model, from its tokenizer.json."""

    def __init__(self, path: Path, config: dict[str, Any], kind: str, context: int) -> None:
        from tokenizers import Tokenizer as Library

        try:
            self._library = Library.from_file(str(path))
        except Exception as error:  # the library raises plain exceptions
            raise ModelError(f"{path} cannot be read: {first_line(error)}") from error
        self._kind, self._context = kind, context
        self._pad = self._pad_token(config)

    def arrays(self, prompts: Sequence[str], tower: Tower) -> dict[str, Array]:
        """Return token ids [P, L] and whatever else the tower takes."""
        ids = "input_ids" if "input_ids" in tower.inputs else tower.inputs[0]
        fixed = tower.shape(ids)[1] if len(tower.shape(ids)) > 1 else None
        length = fixed if isinstance(fixed, int) else self._context
        # CLIP reads up to its end token, so that less padding gives the same and is faster. Only graphs of
        # transformers take it; SigLIP attends to all of its padding.
        shorter = self._kind == "clip" and ids == "input_ids" and not isinstance(fixed, int)
        pad_to = None if shorter else length
        self._library.enable_truncation(length)
        self._library.enable_padding(pad_id=self._pad, pad_token="", length=pad_to)
        encoded = self._library.encode_batch([self._clean(prompt) for prompt in prompts])
        arrays = {ids: np.array([each.ids for each in encoded], np.int64)}
        if "attention_mask" in tower.inputs:
            arrays["attention_mask"] = np.array([each.attention_mask for each in encoded], np.int64)
        if unknown := set(tower.inputs) - set(arrays):
            raise ModelError(f"the text tower has an input that prolip does not know: {unknown.pop()}")
        return arrays

    def _clean(self, prompt: str) -> str:
        """SigLIP was trained on lower case; without punctuation, where its own tokenizer removes it."""
        if self._kind != "siglip":
            return prompt
        lower = prompt.lower()
        if self._library.get_vocab_size() > 100_000:  # SigLIP 2, whose words are Gemma's
            return lower
        return " ".join(lower.translate(str.maketrans("", "", string.punctuation)).split())

    def _pad_token(self, config: dict[str, Any]) -> int:
        token = config.get("pad_token")
        token = token.get("content") if isinstance(token, dict) else token
        found = self._library.token_to_id(token) if isinstance(token, str) else None
        if found is None:
            padding = self._library.padding
            found = padding["pad_id"] if padding else 0
        return int(found)


def _tensor_files(path: Path) -> list[Path]:
    """Return the files beside a graph that may hold its tensors."""
    files = sorted(path.parent.iterdir()) if path.suffix == ".onnx" else []
    return [file for file in files if file.is_file() and file.suffix not in (".onnx", ".json", ".txt", ".md")]


def _preprocess(config: dict[str, Any], kind: str, name: str, size: Any) -> Preprocess:
    """Return what a configuration says; without one, CLIP's own preprocessing for the tower's input."""
    if not config and kind == "clip":
        return Preprocess(size if isinstance(size, int) else 224, CLIP_MEAN, CLIP_STD)
    return Preprocess.from_processor(config, kind, name)


def _json(path: Path) -> dict[str, Any]:
    found = read_json(path)
    if not isinstance(found, dict):
        raise ModelError(f"{path} is not a JSON object")
    return found
