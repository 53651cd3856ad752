"""Every table and figure of the paper, main text and supplement, and those that others register."""

from prolip.research.catalogue import experiments  # noqa: F401 - registers the paper's
from prolip.research.catalogue.experiment import (
    EXPERIMENTS,
    Entry,
    Experiment,
    find_experiment,
    register_experiment,
)

__all__ = ["EXPERIMENTS", "Entry", "Experiment", "find_experiment", "register_experiment"]
