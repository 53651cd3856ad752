"""Datasets in torchvision's manner: `dataset[i]` is an image and a label, `classes` are names.

Where the dataset lists its files (`samples`, as ImageFolder has them) those are read, and its transform is
not applied: an encoder prepares images in its own way. Of others, what `dataset[i]` gives is taken: a PIL
image, or an array or tensor of pixels.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from prolip.core.arrays import to_numpy
from prolip.core.errors import InputError
from prolip.data.lazy import LazyImage
from prolip.data.tables import Record


def is_indexed(source: Any) -> bool:
    """Whether this is such a dataset, a part of one, or a loader of one."""
    if isinstance(source, (list, tuple, dict, str, bytes)) or hasattr(source, "dtype"):
        return False
    names = ("classes", "class_to_idx", "targets", "samples", "dataset")
    return any(hasattr(source, name) for name in names) and (
        hasattr(source, "__getitem__") or hasattr(source, "dataset")
    )


def indexed_records(source: Any) -> Iterator[Record]:
    """The records of a dataset."""
    dataset, rows = _unwrapped(source)
    name = type(dataset).__name__
    samples, targets, classes = _samples(dataset), _targets(dataset), _classes(dataset)
    for row in rows:
        if samples is not None:
            path, target = samples[row]
            image: Any = Path(path)
        else:
            image = LazyImage(f"{name}[{row}]", partial(_image, dataset, row))
            target = targets[row] if targets is not None else dataset[row][1]
        where = f"{name}, item {row}"
        yield Record(where, f"{name}[{row}]", {"image": image, "label": _label(target, classes, where)})


def _unwrapped(source: Any) -> tuple[Any, list[int]]:
    """The dataset behind subsets and loaders, and which of its items are meant."""
    if not hasattr(source, "dataset"):
        return source, list(range(len(source)))
    dataset, rows = _unwrapped(source.dataset)
    chosen = getattr(source, "indices", None)
    return dataset, rows if chosen is None else [rows[int(i)] for i in chosen]


def _samples(dataset: Any) -> list[Any] | None:
    samples = getattr(dataset, "samples", None)
    return (
        samples if isinstance(samples, list) and samples and isinstance(samples[0][0], (str, Path)) else None
    )


def _targets(dataset: Any) -> list[Any] | None:
    found = getattr(dataset, "targets", None)
    return None if found is None else to_numpy(found).tolist()


def _classes(dataset: Any) -> list[str] | None:
    if (classes := getattr(dataset, "classes", None)) is not None:
        return [str(name[0] if isinstance(name, tuple) else name) for name in classes]
    if (numbers := getattr(dataset, "class_to_idx", None)) is not None:
        return [str(name) for name, _ in sorted(numbers.items(), key=lambda item: item[1])]
    return None


def _label(target: Any, classes: list[str] | None, where: str) -> Any:
    value = to_numpy(target).item() if hasattr(target, "dtype") else target
    if classes is None or not isinstance(value, int):
        return value
    if not 0 <= value < len(classes):
        raise InputError(f"{where}: target {value} lies outside the {len(classes)} classes")
    return classes[value]


def _image(dataset: Any, row: int) -> Any:
    item = dataset[row]
    return item[0] if isinstance(item, (tuple, list)) else item
