"""Every table and figure of the paper, main text and supplement: one entry each."""

from prolip.core.errors import check_name
from prolip.research.catalogue.experiment import Experiment
from prolip.research.catalogue.main_text import MAIN_TEXT
from prolip.research.catalogue.supplement import SUPPLEMENT

EXPERIMENTS: dict[str, Experiment] = {entry.name: entry for entry in (*MAIN_TEXT, *SUPPLEMENT)}


def experiment(name: str) -> Experiment:
    """Return an experiment by name."""
    check_name("experiment", name, EXPERIMENTS)
    return EXPERIMENTS[name]
