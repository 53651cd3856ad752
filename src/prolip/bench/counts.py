"""How many numbers each method trains, counted from shapes."""

from __future__ import annotations

from prolip import methods
from prolip.bench.backbones import PROJECTIONS
from prolip.bench.cells import Cell, Line, Table
from prolip.bench.experiment import Experiment
from prolip.bench.published import published
from prolip.core.errors import ProlipError
from prolip.methods.common.method import Shape

_CLASSES, _SHOTS = 1000, 16  # of the comparison between methods: ImageNet, 16 shots


def parameters(experiment: Experiment) -> Table:
    """ProLIP's for each backbone beside the paper's, and every method's on ImageNet, in millions."""
    paper = published("parameters")
    lines = []
    for model, (dim, features) in PROJECTIONS.items():
        count = methods.create("prolip").count(Shape(features, dim, _CLASSES, _SHOTS * _CLASSES))
        given = paper.value(model, "millions")
        lines.append(Line(f"ProLIP, {model}: {dim} x {features}", (Cell(count / 1e6, None, given, True),)))
    dim, features = PROJECTIONS["RN50"]
    shape = Shape(features, dim, _CLASSES, _SHOTS * _CLASSES, text_features=512)
    for name, kind in methods.available().items():
        try:
            method = kind.create()
            count = method.count(shape)
        except (ProlipError, ImportError):
            continue  # trained inside a tower, or not installed: shapes do not tell
        lines.append(
            Line(f"{name}: {method.size}", (Cell(count / 1e6),), f"RN50, {_CLASSES} classes, {_SHOTS} shots")
        )
    notes = (
        "Methods that train inside a tower are not counted here: it depends on the tower.",
        experiment.note,
    )
    title = f"{experiment.title} ({experiment.where})"
    return Table(title, ("parameters",), tuple(lines), notes, unit="millions")
