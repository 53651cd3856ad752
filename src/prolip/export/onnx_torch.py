"""Towers in torch as ONNX graphs: torch traces each once, and every graph includes what it needs of it."""

import warnings
from collections.abc import Callable, Iterator, Mapping
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
    """A function of tensors with the module that it uses, so that weights have their names."""

    def __init__(self, run: Callable[..., Tensor], owner: nn.Module | None) -> None:
        super().__init__()
        self.run = run
        self.owner = owner

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.run(*inputs)


@contextmanager
def traced_towers(
    folder: Path, encoder: Encoder, inputs: Mapping[str, Mapping[str, Array]]
) -> Iterator[Callable[[Graph, str], str]]:
    """Yield a function that adds a tower to a graph, and returns the name of its output.

    `inputs` has arrays to trace each tower with. Weights that are too large for one file stay in the folder.
    """
    require("onnxscript", "onnx")
    paths = {tower: folder / f"{tower}_tower.onnx" for tower in inputs}
    models: dict[str, OnnxModel] = {}

    def add(graph: Graph, tower: str) -> str:
        if tower not in models:
            _trace(paths[tower], encoder, tower, inputs[tower])
            models[tower] = OnnxModel(paths[tower])
        graph.include(models[tower], [_OUTPUT])
        return _OUTPUT

    try:
        yield add
    finally:
        for path in paths.values():
            path.unlink(missing_ok=True)


@torch.no_grad()
def _trace(path: Path, encoder: Encoder, tower: str, arrays: Mapping[str, Array]) -> None:
    names = list(arrays)

    def text(*values: Tensor) -> Tensor:
        return encoder.trace_text(dict(zip(names, values, strict=True)))

    module = _Traced(encoder.trace if tower == "image" else text, getattr(encoder, "model", None))
    inputs = {name: to_torch(array, encoder.device) for name, array in arrays.items()}
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
                input_names=names,
                output_names=[_OUTPUT],
                dynamic_shapes=(shapes,),
            )
    except Exception as error:  # the exporter raises whatever the model's code raises
        why = first_line(error.__cause__ or error)
        raise ModelError(f"the {tower} tower cannot be traced: {why}") from error
    assert program is not None
    weights = sum(parameter.nbytes for parameter in module.parameters())
    program.save(str(path), external_data=weights > _ONE_FILE)
