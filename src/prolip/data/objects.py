"""Tables and datasets in memory, as records.

| object | library |
| --- | --- |
| `Dataset`, `DatasetDict`, also saved by `save_to_disk` | Hugging Face's datasets |
| data frames and tables | pandas, polars, pyarrow |
| `dataset[i]` is an image and a label; a `Subset`, a `DataLoader` | torch, torchvision |

Where a torchvision dataset lists its files (`samples`, as ImageFolder does) those are read, and its transform
is not applied: an encoder has a preprocessing of its own. Otherwise the output of `dataset[i]` is used: a PIL
image, or an array or tensor of pixels.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from prolip.core.arrays import to_numpy
from prolip.core.errors import InputError
from prolip.data.arrow import dataset_records
from prolip.data.imageset import LazyImage
from prolip.data.tables import Record, TableOptions, column_key, split_of


def object_records(
    source: Any, options: TableOptions, place: str | None = None, folder: Path = Path()
) -> Iterator[Record] | None:
    """Return the records of an object; None of one that is not a dataset or a frame.

    Files that it names are relative to `folder`.
    """
    place = type(source).__name__ if place is None else place
    if is_hugging_face(source):
        if not isinstance(source, dict):
            return dataset_records(source, place, folder, options)
        names = [name for name in source if split_of(name)] or list(source)
        return chain.from_iterable(
            dataset_records(source[name], f"{place}/{name}", folder, options, name) for name in names
        )
    if _is_from(source, "pandas", "polars", "pyarrow") and (
        hasattr(source, "collect") or hasattr(source, "columns")
    ):
        return _frame_records(source)
    return _pair_records(source, options) if _has_pairs(source) else None


def column_images(source: Any) -> list[LazyImage] | None:
    """Return the images of `dataset["image"]`, a column of a Hugging Face dataset; None of anything else."""
    if not _is_from(source, "datasets") or is_hugging_face(source) or not hasattr(source, "__getitem__"):
        return None
    return [LazyImage(f"row {i}", partial(source.__getitem__, i)) for i in range(len(source))]


def is_hugging_face(source: Any) -> bool:
    """Whether this is a Dataset or a DatasetDict of Hugging Face."""
    return _is_from(source, "datasets") and hasattr(source, "column_names")


def _is_from(value: Any, *libraries: str) -> bool:
    """Whether a value is of a class of one of these libraries, which need not be installed."""
    return any(kind.__module__.split(".")[0] in libraries for kind in type(value).__mro__)


def _has_pairs(source: Any) -> bool:
    """Whether `source[i]` is an image and a label, or `source` has such a dataset, as a DataLoader does."""
    if isinstance(source, (list, tuple, Mapping, str, bytes)) or hasattr(source, "dtype"):
        return False
    if hasattr(source, "dataset"):
        return _has_pairs(source.dataset)
    if _is_from(source, "datasets") or not (hasattr(source, "__getitem__") and hasattr(source, "__len__")):
        return False
    try:
        item = source[0]
    except (IndexError, KeyError, TypeError):
        return False
    return isinstance(item, (tuple, list)) and len(item) > 1


def _frame_records(source: Any) -> Iterator[Record]:
    if hasattr(source, "collect"):  # a query of polars
        source = source.collect()
    if hasattr(source, "to_pylist"):  # of pyarrow
        rows = source.to_pylist()
    else:
        rows = source.to_dicts() if hasattr(source, "to_dicts") else source.to_dict("records")
    for row, cells in enumerate(rows):
        named = {column_key(name): value for name, value in cells.items()}
        yield Record(f"the frame, row {row}", f"row {row}", named)


def _pair_records(source: Any, options: TableOptions) -> Iterator[Record]:
    dataset, rows = _unwrap(source)
    place, classes = type(dataset).__name__, getattr(dataset, "classes", None)
    targets, samples = getattr(dataset, "targets", None), getattr(dataset, "samples", None)
    labels = None if targets is None else to_numpy(targets).tolist()
    if not (isinstance(samples, list) and samples and isinstance(samples[0][0], (str, Path))):
        samples = None
    for row in rows:
        name = f"{place}[{row}]"
        if samples is not None:
            image: Any = Path(samples[row][0])
            target = samples[row][1]
        else:
            image = LazyImage(name, partial(_item_image, dataset, row))
            target = labels[row] if labels is not None else dataset[row][1]
        target = to_numpy(target).item() if hasattr(target, "dtype") else target
        if classes is not None and isinstance(target, int):
            if not 0 <= target < len(classes):
                raise InputError(f"{name}: target {target} lies outside the {len(classes)} classes")
            target = classes[target][0] if isinstance(classes[target], tuple) else classes[target]
        yield Record(name, name, {options.names("image")[0]: image, options.names("label")[0]: target})


def _unwrap(source: Any) -> tuple[Any, list[int]]:
    """Return the dataset behind subsets and loaders, and the indices of its items."""
    if not hasattr(source, "dataset"):
        return source, list(range(len(source)))
    dataset, rows = _unwrap(source.dataset)
    chosen = getattr(source, "indices", None)
    return dataset, rows if chosen is None else [rows[int(i)] for i in chosen]


def _item_image(dataset: Any, row: int) -> Any:
    return dataset[row][0]
