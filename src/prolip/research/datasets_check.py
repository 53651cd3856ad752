"""What of the datasets is there, what is missing, and whether the counts are right."""

import os
from dataclasses import dataclass
from pathlib import Path

from prolip.core.errors import InputError
from prolip.research.datasets import DATASETS, SPLITS_FROM, Benchmark, Dataset, read_known


@dataclass(frozen=True)
class DatasetCheck:
    """A dataset as it lies below a root."""

    dataset: Dataset
    state: str  # "complete", "incomplete" (some of it is there, or a count is wrong) or "missing"
    problems: list[str]  # what is wrong, a line each, with what to do
    counts: dict[str, int]  # images of each split that are there
    classes: int  # classes found


def check_datasets(root: str | Path) -> list[DatasetCheck]:
    """Look for every dataset of the paper below a root."""
    return [check_dataset(dataset, Path(root).expanduser()) for dataset in DATASETS.values()]


def check_dataset(dataset: Dataset, root: Path) -> DatasetCheck:
    """Look for one: read its lists, and see whether each image that they name is there."""
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
    return _compare(dataset, benchmark)


def _compare(dataset: Dataset, benchmark: Benchmark) -> DatasetCheck:
    problems: list[str] = []
    counts: dict[str, int] = {}
    there = _Listing()
    for split, expected in dataset.sizes.items():
        images = benchmark.splits.get(split)
        if images is None:
            problems.append(f"there is no {split} split; {expected:,} images are expected")
            continue
        absent = [path for path in images.images if path not in there]
        counts[split] = len(images) - len(absent)
        if len(images) != expected:
            problems.append(f"{split} has {len(images):,} images, a complete copy has {expected:,}")
        if absent:
            problems.append(
                f"{split}: {len(absent):,} of {len(images):,} images are not there, like {absent[0]}"
            )
    if len(benchmark.names) != dataset.classes:
        problems.append(f"{len(benchmark.names)} classes, expected {dataset.classes}")
    return DatasetCheck(
        dataset, "incomplete" if problems else "complete", problems, counts, len(benchmark.names)
    )


class _Listing:
    """Which files exist: each folder is listed once, which is much quicker than asking for each file."""

    def __init__(self) -> None:
        self._folders: dict[Path, frozenset[str]] = {}

    def __contains__(self, path: Path) -> bool:
        if path.parent not in self._folders:
            try:
                self._folders[path.parent] = frozenset(file.name for file in os.scandir(path.parent))
            except OSError:
                self._folders[path.parent] = frozenset()
        return path.name in self._folders[path.parent]
