"""Tables and datasets in memory.

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
from pathlib import Path
from typing import Any

from prolip.core.arrays import to_numpy, to_python_scalar
from prolip.core.errors import InputError
from prolip.data.arrow import arrow_table, dataset_table
from prolip.data.folders import split_of
from prolip.data.imageset import LazyImage
from prolip.data.tables import Table


def object_tables(source: Any, place: str | None = None, folder: Path = Path()) -> list[Table]:
    """Return the tables of a dataset, of which each split is one, or of a frame; none of anything else.

    Files that it names are relative to `folder`.
    """
    place = place or type(source).__name__
    if _is_from(source, "datasets") and hasattr(source, "column_names"):
        if not isinstance(source, dict):
            return [dataset_table(source, place, folder)]
        return [
            dataset_table(part, f"{place}/{name}", folder, split_of(name) or name)
            for name, part in source.items()
        ]
    if _is_from(source, "pyarrow") and hasattr(source, "schema"):
        return [arrow_table(source)]
    if _is_from(source, "pandas", "polars") and len(getattr(source, "shape", ())) == 2:
        return [Table(place, list(source.columns), partial(_frame_rows, source))]
    return [_pairs_table(source)] if _has_pairs(source) else []


def column_images(source: Any) -> list[LazyImage] | None:
    """Return the images of `dataset["image"]`, a column of a Hugging Face dataset; None of anything else."""
    if not _is_from(source, "datasets") or not hasattr(source, "__getitem__"):
        return None
    return [LazyImage(f"row {i}", partial(source.__getitem__, i)) for i in range(len(source))]


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


def _frame_rows(source: Any, columns: dict[str, Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    cells = zip(*(list(source[name]) for name in columns.values()), strict=True)
    for number, row in enumerate(cells):
        yield number, dict(zip(columns, row, strict=True))


def _pairs_table(source: Any) -> Table:
    dataset, indices = _unwrap(source)
    place, classes = type(dataset).__name__, getattr(dataset, "classes", None)
    targets, samples = getattr(dataset, "targets", None), getattr(dataset, "samples", None)
    labels = None if targets is None else to_numpy(targets).tolist()
    if not (isinstance(samples, list) and samples and isinstance(samples[0][0], (str, Path))):
        samples = None

    def read(columns: dict[str, str]) -> Iterator[tuple[int, dict[str, Any]]]:
        for index in indices:
            image = partial(lambda i: dataset[i][0], index) if samples is None else Path(samples[index][0])
            target = to_python_scalar(dataset[index][1] if labels is None else labels[index])
            if classes is not None and isinstance(target, int):
                if not 0 <= target < len(classes):
                    raise InputError(
                        f"{place}:{index}: target {target} lies outside the {len(classes)} classes"
                    )
                target = classes[target][0] if isinstance(classes[target], tuple) else classes[target]
            yield index, {"image": image, "label": target}

    return Table(place, ["image", "label"], read)


def _unwrap(source: Any) -> tuple[Any, list[int]]:
    """Return the dataset behind subsets and loaders, and the indices of its items."""
    if not hasattr(source, "dataset"):
        return source, list(range(len(source)))
    dataset, indices = _unwrap(source.dataset)
    chosen = getattr(source, "indices", None)
    return dataset, indices if chosen is None else [indices[int(i)] for i in chosen]
