"""Every table and figure of the paper, main text and supplement: one entry each."""

from prolip.research.catalogue.experiments import EXPERIMENTS, experiment

__all__ = ["EXPERIMENTS", "experiment"]
