"""The image tower in torch as an ONNX graph: torch traces it once, and every graph includes it."""

import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from prolip.core.arrays import Array, to_torch
from prolip.core.errors import ModelError, first_line
from prolip.encoders.base import Encoder
from prolip.encoders.hub import quiet
from prolip.io.environment import require
from prolip.io.onnx_graph import OPSET, Graph, OnnxModel

_OUTPUT = "tower_output"


class _Traced(nn.Module):
    """The image tower of an encoder with the module that it uses, so that weights have their names."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.run = encoder.trace
        self.owner = getattr(encoder, "model", None)

    def forward(self, pixels: Tensor) -> Tensor:
        return self.run(pixels)


@torch.no_grad()
def traced_tower(encoder: Encoder, pixels: Array) -> Callable[[Graph], str]:
    """Return a function that adds the image tower to a graph, and returns the name of its output."""
    require("onnxscript", "onnx")
    try:
        with quiet(), warnings.catch_warnings():
            # Two inputs of one batch, and the exporter's own deprecations: a user can do nothing about them.
            warnings.simplefilter("ignore")
            program = torch.onnx.export(
                _Traced(encoder).eval(),
                (to_torch(pixels, encoder.device),),
                dynamo=True,
                verbose=False,
                opset_version=OPSET,
                input_names=["pixels"],
                output_names=[_OUTPUT],
                dynamic_shapes=({0: torch.export.Dim("batch", min=1)},),
            )
        assert program is not None
        model = OnnxModel(Path(encoder.name), program.model_proto)
    except Exception as error:  # the exporter raises whatever the model's code raises
        raise ModelError(f"the tower cannot be traced: {first_line(error.__cause__ or error)}") from error

    def add(graph: Graph) -> str:
        graph.include(model, [_OUTPUT])
        return _OUTPUT

    return add
