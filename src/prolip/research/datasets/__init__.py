"""The paper's datasets: their table, how they are read, and a check of what is on disk."""

from prolip.research.datasets.read import Benchmark, read_dataset
from prolip.research.datasets.table import DATASETS, ELEVEN, VARIANTS, Dataset, find_dataset

__all__ = ["DATASETS", "ELEVEN", "VARIANTS", "Benchmark", "Dataset", "find_dataset", "read_dataset"]
