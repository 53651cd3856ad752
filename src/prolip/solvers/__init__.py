"""Solvers of ProLIP's problem: the exact fit, and the paper's Adam."""

from prolip.solvers.adam import adam
from prolip.solvers.exact import exact, path
from prolip.solvers.solution import Solution, lam_value

__all__ = ["Solution", "adam", "exact", "lam_value", "path"]
