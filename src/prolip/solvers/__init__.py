"""Solvers of ProLIP's problem: the exact fit, the paper's Adam, and softmax regression."""

from prolip.solvers.adam import adam
from prolip.solvers.exact import exact, fit_parts, path
from prolip.solvers.minimise import minimise
from prolip.solvers.solution import Solution, check_lam, lam_value

__all__ = ["Solution", "adam", "check_lam", "exact", "fit_parts", "lam_value", "minimise", "path"]
