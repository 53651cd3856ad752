"""How many numbers each method trains, counted from shapes."""

from prolip import methods
from prolip.core.errors import ProlipError
from prolip.methods.base import Shape
from prolip.research.catalogue.backbones import PROJECTIONS
from prolip.research.catalogue.experiment import Experiment
from prolip.research.catalogue.published import published
from prolip.research.reporting.table import Cell, Table, TableRow

_CLASSES, _SHOTS = 1000, 16  # of the comparison between methods: ImageNet, 16 shots


def parameters(experiment: Experiment) -> Table:
    """ProLIP's for each backbone beside the paper's, and every method's on ImageNet, in millions."""
    paper = published("parameters")
    rows = []
    for model, (dim, features) in PROJECTIONS.items():
        count = methods.create("prolip").count(Shape(features, dim, _CLASSES, _SHOTS * _CLASSES))
        cell = Cell(count / 1e6, None, paper.value(model, "millions"), True)
        rows.append(TableRow(f"ProLIP, {model}: {dim} x {features}", (cell,)))
    dim, features = PROJECTIONS["RN50"]
    shape = Shape(features, dim, _CLASSES, _SHOTS * _CLASSES, text_features=512)
    group = f"RN50, {_CLASSES} classes, {_SHOTS} shots"
    for name, kind in methods.available().items():
        try:
            method = kind.create()
            count = method.count(shape)
        except (ProlipError, ImportError):
            continue  # trained inside a tower, or not installed: shapes do not tell
        rows.append(TableRow(f"{name}: {method.size}", (Cell(count / 1e6),), group))
    notes = (
        "Methods that train inside a tower are not counted here: it depends on the tower.",
        experiment.note,
    )
    title = f"{experiment.title} ({experiment.where})"
    return Table(title, ("parameters",), tuple(rows), notes, unit="millions")
