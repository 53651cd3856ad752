"""Solvers of ProLIP's problem: the exact fit, lam chosen by itself, and the paper's Adam and grid search."""

from prolip.solvers.adam import adam
from prolip.solvers.exact import exact, path
from prolip.solvers.grid import Search, grid_search
from prolip.solvers.selection import Choice, Trial, automatic, choose
from prolip.solvers.solution import Solution, lam_value

__all__ = [
    "Choice",
    "Search",
    "Solution",
    "Trial",
    "adam",
    "automatic",
    "choose",
    "exact",
    "grid_search",
    "lam_value",
    "path",
]
