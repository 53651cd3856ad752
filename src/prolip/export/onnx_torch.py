"""The image tower in torch as an ONNX graph: torch traces it once, and every graph includes it."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn

from prolip.core.arrays import Array, to_torch
from prolip.core.errors import ModelError, first_line
from prolip.encoders.base import Encoder
from prolip.encoders.hub import quiet
from prolip.io.environment import require
from prolip.io.onnx_graph import OPSET, Graph, OnnxModel

_ONE_FILE = 1_900_000_000  # bytes: protobuf ends at 2 GB; larger weights go to a file beside
_OUTPUT = "tower_output"


class _Traced(nn.Module):
    """The image tower of an encoder with the module that it uses, so that weights have their names."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.run = encoder.trace
        self.owner = getattr(encoder, "model", None)

    def forward(self, pixels: Tensor) -> Tensor:
        return self.run(pixels)


@contextmanager
def traced_tower(folder: Path, encoder: Encoder, pixels: Array) -> Iterator[Callable[[Graph], str]]:
    """Yield a function that adds the image tower to a graph, and returns the name of its output.

    Weights that are too large for one file stay in the folder.
    """
    require("onnxscript", "onnx")
    path = folder / "image_tower.onnx"
    try:
        _trace(path, encoder, to_torch(pixels, encoder.device))
        model = OnnxModel(path)

        def add(graph: Graph) -> str:
            graph.include(model, [_OUTPUT])
            return _OUTPUT

        yield add
    finally:
        path.unlink(missing_ok=True)


@torch.no_grad()
def _trace(path: Path, encoder: Encoder, pixels: Tensor) -> None:
    module = _Traced(encoder).eval()
    try:
        with quiet(), warnings.catch_warnings():
            # Two inputs of one batch, and the exporter's own deprecations: a user can do nothing about them.
            warnings.simplefilter("ignore")
            program = torch.onnx.export(
                module,
                (pixels,),
                dynamo=True,
                verbose=False,
                opset_version=OPSET,
                input_names=["pixels"],
                output_names=[_OUTPUT],
                dynamic_shapes=({0: torch.export.Dim("batch", min=1)},),
            )
    except Exception as error:  # the exporter raises whatever the model's code raises
        raise ModelError(f"the tower cannot be traced: {first_line(error.__cause__ or error)}") from error
    assert program is not None
    weights = sum(parameter.nbytes for parameter in module.parameters())
    program.save(str(path), external_data=weights > _ONE_FILE)
