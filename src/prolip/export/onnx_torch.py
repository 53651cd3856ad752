"""ONNX graphs of towers in torch: torch traces the tower, then the head is added to the file."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from prolip.core.arrays import to_torch
from prolip.core.errors import ModelError, first_line
from prolip.encoders.base import Encoder
from prolip.encoders.hub import quiet
from prolip.export.onnx import GraphSpec
from prolip.io.environment import require
from prolip.io.onnx_graph import OPSET, Graph

_ONE_FILE = 1_900_000_000  # bytes: protobuf ends at 2 GB; larger weights go to a file beside
_TOWER = "tower_output"


class _Traced(nn.Module):
    """A function of tensors with the module that it uses, so that weights have their names."""

    def __init__(self, run: Callable[..., Tensor], owner: nn.Module | None) -> None:
        super().__init__()
        self.run = run
        self.owner = owner

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.run(*inputs)


def write_traced(path: Path, encoder: Encoder, spec: GraphSpec, about: dict[str, Any]) -> None:
    """Trace the tower into a file, and add the head to it."""
    for needed in ("onnx", "onnxscript"):
        require(needed, "onnx")
    import onnx

    names = list(spec.inputs)

    def text(*values: Tensor) -> Tensor:
        return encoder.trace_text(dict(zip(names, values, strict=True)))

    module = _Traced(encoder.trace if spec.tower == "image" else text, getattr(encoder, "model", None))
    inputs = {name: to_torch(array, encoder.device) for name, array in spec.inputs.items()}
    graph = Graph()
    spec.finish(graph, _TOWER)
    rest = onnx.load_from_string(graph.to_bytes({}, spec.outputs, about))
    _trace(path, module, inputs)
    model = onnx.load(path, load_external_data=False)
    model.ir_version = max(model.ir_version, rest.ir_version)
    model.graph.node.extend(rest.graph.node)
    model.graph.initializer.extend(rest.graph.initializer)
    del model.graph.output[:], model.metadata_props[:]
    model.graph.output.extend(rest.graph.output)
    model.metadata_props.extend(rest.metadata_props)
    path.write_bytes(model.SerializeToString())


@torch.no_grad()
def _trace(path: Path, module: nn.Module, inputs: dict[str, Tensor]) -> None:
    batch = torch.export.Dim("batch", min=1)
    shapes = tuple(
        {0: batch, 1: torch.export.Dim.AUTO} if t.ndim == 2 else {0: batch} for t in inputs.values()
    )
    try:
        with quiet(), warnings.catch_warnings():
            # Two inputs of one batch, and the exporter's own deprecations: a user can do nothing about them.
            warnings.simplefilter("ignore")
            program = torch.onnx.export(
                module.eval(),
                tuple(inputs.values()),
                dynamo=True,
                verbose=False,
                opset_version=OPSET,
                input_names=list(inputs),
                output_names=[_TOWER],
                dynamic_shapes=(shapes,),
            )
    except Exception as error:  # the exporter raises whatever the model's code raises
        why = first_line(error.__cause__ or error)
        raise ModelError(f"the graph {path.name} cannot be traced: {why}") from error
    assert program is not None
    weights = sum(parameter.nbytes for parameter in module.parameters())
    program.save(str(path), external_data=weights > _ONE_FILE)
