"""Solvers of ProLIP's problem: the exact fit, lam chosen by itself, and the paper's Adam and grid search."""

from prolip.solvers.adam import AdamW, adam, cosine
from prolip.solvers.exact import exact, path
from prolip.solvers.minimise import Minimum, minimise
from prolip.solvers.selection import Choice, automatic, choose
from prolip.solvers.solution import Solution, lam_value

__all__ = [
    "AdamW",
    "Choice",
    "Minimum",
    "Solution",
    "adam",
    "automatic",
    "choose",
    "cosine",
    "exact",
    "lam_value",
    "minimise",
    "path",
]
