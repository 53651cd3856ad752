"""Tables and datasets in memory, as records.

| object | library |
| --- | --- |
| `Dataset`, `DatasetDict`, also saved by `save_to_disk` | Hugging Face's datasets |
| data frames and tables | pandas, polars, pyarrow |
| `dataset[i]` is an image and a label; a `Subset`, a `DataLoader` | torchvision |

Where a torchvision dataset lists its files (`samples`, as ImageFolder does) those are read, and its transform
is not applied: an encoder has a preprocessing of its own. Otherwise the output of `dataset[i]` is used: a PIL
image, or an array or tensor of pixels.
"""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from prolip.core.arrays import to_numpy
from prolip.core.errors import InputError, UsageError
from prolip.data.imageset import LazyImage
from prolip.data.tables import LABEL_COLUMNS, SPLIT_COLUMNS, Find, Record, TableOptions
from prolip.io.environment import require


def object_records(
    source: Any, place: str, find: Find, options: TableOptions
) -> dict[str, Iterator[Record]] | None:
    """Return the records of an object by the names of its splits ("" without splits); None of others.

    `find` opens the files that it names.
    """
    if _is_dataset(source):
        if not isinstance(source, dict):
            return {"": _dataset_records(source, place, find, options)}
        return {
            name: _dataset_records(each, f"{place}/{name}", find, options) for name, each in source.items()
        }
    if _is_frame(source):
        return {"": _frame_records(source)}
    return {"": _indexed_records(source, options)} if _is_indexed(source) else None


def is_saved_dataset(folder: Path) -> bool:
    """Whether `save_to_disk` of Hugging Face's datasets wrote this folder."""
    return (folder / "dataset_dict.json").is_file() or (
        (folder / "state.json").is_file() and (folder / "dataset_info.json").is_file()
    )


def load_saved_dataset(folder: Path) -> Any:
    """Open a saved dataset; its images are read on access."""
    datasets = require("datasets", "datasets", f"reading {folder}, a dataset of Hugging Face,")
    try:
        return datasets.load_from_disk(str(folder))
    except Exception as error:  # of pyarrow, JSON or datasets, on a damaged folder
        raise InputError(f"{folder} cannot be read: {str(error)[:200]}") from error


def _is_from(value: Any, *libraries: str) -> bool:
    """Whether a value is of a class of one of these libraries, which need not be installed."""
    return any(kind.__module__.split(".")[0] in libraries for kind in type(value).__mro__)


def _is_dataset(source: Any) -> bool:
    return _is_from(source, "datasets") and (hasattr(source, "features") or hasattr(source, "num_columns"))


def _is_frame(source: Any) -> bool:
    return _is_from(source, "pandas", "polars", "pyarrow") and (
        hasattr(source, "collect") or hasattr(source, "columns")
    )


def _is_indexed(source: Any) -> bool:
    if isinstance(source, (list, tuple, dict, str, bytes)) or hasattr(source, "dtype"):
        return False
    names = ("classes", "class_to_idx", "targets", "samples", "dataset")
    return any(hasattr(source, name) for name in names) and (
        hasattr(source, "__getitem__") or hasattr(source, "dataset")
    )


def _dataset_records(source: Any, place: str, find: Find, options: TableOptions) -> Iterator[Record]:
    """Yield the records of a Hugging Face dataset, labels by their names."""
    if not hasattr(source, "cast_column") or not hasattr(source, "__len__"):
        raise UsageError(f"{place} is streamed, and has no length: collect it into a Dataset first")
    columns = {name.strip().lower(): name for name in source.column_names}
    kinds = {name: type(source.features[column]).__name__ for name, column in columns.items()}

    def first(names: tuple[str, ...], kind: str) -> str | None:
        """Return the first column of this type; else the first with one of these names."""
        typed = [name for name, each in kinds.items() if each == kind]
        return next(iter(typed), next((name for name in names if name in columns), None))

    image = options.image_column and options.image_columns[0]
    if image is None:
        image = first(options.image_columns, "Image")
    if image is None or image not in columns:
        raise InputError(f"{place} has no column of images (columns: {', '.join(columns)[:200]})")
    wanted = options.label_columns[0]
    label = wanted if wanted in columns else first(LABEL_COLUMNS, "ClassLabel")
    if options.label_column is not None and label != wanted:
        raise InputError(f"{place} has no column {wanted} (columns: {', '.join(columns)[:200]})")
    split = next((name for name in SPLIT_COLUMNS if name in columns), None)
    group = next((name for name in options.group_columns if name in columns), None)
    groups = source[columns[group]][:] if group else None
    labels = _dataset_labels(source, columns[label]) if label else None
    splits = source[columns[split]][:] if split else None
    content = _dataset_content(source, columns[image], kinds[image] == "Image", find)
    for row in range(len(source)):
        cells: dict[str, Any] = {options.image_columns[0]: LazyImage(f"{place}:{row}", partial(content, row))}
        cells |= {} if labels is None else {wanted: labels[row]}
        cells |= {} if splits is None else {"split": splits[row]}
        cells |= {} if groups is None or group is None else {group: groups[row]}
        yield Record(f"{place}, row {row}", f"{place}:{row}", cells)


def _dataset_labels(source: Any, column: str) -> list[Any]:
    values = list(source[column])
    names = getattr(source.features[column], "names", None)
    if names is None:
        return values
    return [names[value] if isinstance(value, int) and 0 <= value < len(names) else None for value in values]


def _dataset_content(source: Any, column: str, encoded: bool, find: Find) -> Callable[[int], Any]:
    """Return a function that reads the bytes or the path of a row's image."""
    images = source.select_columns([column]).with_format(None)
    if encoded:
        images = images.cast_column(column, type(source.features[column])(decode=False))

    def read(row: int) -> Any:
        value = images[row][column]
        if isinstance(value, dict):
            value = value.get("bytes") or value.get("path")
        if value is None:
            raise InputError("the dataset has no image here")
        return find(value) if isinstance(value, str) else value

    return read


def _frame_records(source: Any) -> Iterator[Record]:
    if hasattr(source, "collect"):  # a query of polars
        source = source.collect()
    names = list(getattr(source, "column_names", source.columns))
    lowered = [str(name).strip().lower() for name in names]
    if len(set(lowered)) < len(lowered):
        raise InputError(f"two columns of the frame have the same name: {', '.join(lowered)[:200]}")
    columns = [_column_values(source[name]) for name in names]
    for row, cells in enumerate(zip(*columns, strict=True)):
        yield Record(f"the frame, row {row}", f"row {row}", dict(zip(lowered, cells, strict=True)))


def _column_values(column: Any) -> list[Any]:
    names = ("to_list", "to_pylist", "tolist")
    return list(next(getattr(column, name) for name in names if hasattr(column, name))())


def _indexed_records(source: Any, options: TableOptions) -> Iterator[Record]:
    dataset, rows = _unwrap(source)
    name = type(dataset).__name__
    targets, classes = getattr(dataset, "targets", None), _class_names(dataset)
    labels = None if targets is None else to_numpy(targets).tolist()
    samples = getattr(dataset, "samples", None)
    if not (isinstance(samples, list) and samples and isinstance(samples[0][0], (str, Path))):
        samples = None
    for row in rows:
        if samples is not None:
            path, target = samples[row]
            image: Any = Path(path)
        else:
            image = LazyImage(f"{name}[{row}]", partial(_item_image, dataset, row))
            target = labels[row] if labels is not None else dataset[row][1]
        where = f"{name}, item {row}"
        label = _target_name(target, classes, where)
        cells = {options.image_columns[0]: image, options.label_columns[0]: label}
        yield Record(where, f"{name}[{row}]", cells)


def _unwrap(source: Any) -> tuple[Any, list[int]]:
    """Return the dataset behind subsets and loaders, and the indices of its items."""
    if not hasattr(source, "dataset"):
        return source, list(range(len(source)))
    dataset, rows = _unwrap(source.dataset)
    chosen = getattr(source, "indices", None)
    return dataset, rows if chosen is None else [rows[int(i)] for i in chosen]


def _class_names(dataset: Any) -> list[str] | None:
    if (classes := getattr(dataset, "classes", None)) is not None:
        return [str(name[0] if isinstance(name, tuple) else name) for name in classes]
    if (numbers := getattr(dataset, "class_to_idx", None)) is not None:
        return [str(name) for name, _ in sorted(numbers.items(), key=lambda item: item[1])]
    return None


def _target_name(target: Any, classes: list[str] | None, where: str) -> Any:
    value = to_numpy(target).item() if hasattr(target, "dtype") else target
    if classes is None or not isinstance(value, int):
        return value
    if not 0 <= value < len(classes):
        raise InputError(f"{where}: target {value} lies outside the {len(classes)} classes")
    return classes[value]


def _item_image(dataset: Any, row: int) -> Any:
    item = dataset[row]
    return item[0] if isinstance(item, (tuple, list)) else item
