"""Check which datasets are on disk, which images are missing, and whether the counts are right."""

import os
from dataclasses import dataclass
from pathlib import Path

from prolip.core.errors import InputError
from prolip.research.datasets.read import read_known
from prolip.research.datasets.table import DATASETS, SPLITS_FROM, Dataset


@dataclass(frozen=True)
class DatasetCheck:
    """The state of a dataset below a root folder."""

    dataset: Dataset
    state: str  # "complete", "incomplete" (a part is missing, or a count is wrong) or "missing"
    problems: list[str]  # one line for each, with what to do
    counts: dict[str, int]  # existing images of each split
    classes: int  # classes found


def check_datasets(root: str | Path) -> list[DatasetCheck]:
    """Check every dataset of the paper below a root folder."""
    return [check_dataset(dataset, Path(root).expanduser()) for dataset in DATASETS.values()]


def check_dataset(dataset: Dataset, root: Path) -> DatasetCheck:
    """Check one: read its lists, and check that every image exists."""
    folder = root / dataset.folder
    if not folder.is_dir():
        lists = f"; its split file from {SPLITS_FROM}" if dataset.kind == "split" else ""
        return DatasetCheck(dataset, "missing", [f"put it in {folder}: from {dataset.source}{lists}"], {}, 0)
    try:
        benchmark = read_known(dataset, folder)
    except InputError as error:
        hint = f" (split files: {SPLITS_FROM})" if dataset.kind == "split" else ""
        return DatasetCheck(dataset, "incomplete", [f"{error}{hint}"], {}, 0)
    if dataset.split_file and not (folder / dataset.images[0]).is_dir():
        images = f"{folder / dataset.images[0]} is missing: the images go there, from {dataset.source}"
        return DatasetCheck(dataset, "incomplete", [images], {}, len(benchmark.names))
    problems = dataset.differences(benchmark.sizes, len(benchmark.names))
    counts: dict[str, int] = {}
    for split, listed in benchmark.splits.items():
        files = {folder: _files(folder) for folder in {path.parent for path in listed.images}}
        absent = [path for path in listed.images if path.name not in files[path.parent]]
        counts[split] = len(listed) - len(absent)
        if absent:
            share = f"{len(absent):,} of {len(listed):,}"
            problems.append(f"{split}: {share} images are missing, like {absent[0]}")
    state = "incomplete" if problems else "complete"
    return DatasetCheck(dataset, state, problems, counts, len(benchmark.names))


def _files(folder: Path) -> set[str]:
    """Return the files of a folder: listing it is much faster than asking for each of them."""
    return {file.name for file in os.scandir(folder)} if folder.is_dir() else set()
