"""Where the features of an experiment come from: images, or arrays of one's own.

Only drawn images are encoded: of a training split, the images of the support sets.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from prolip import encoders
from prolip.core import InputError, UsageError
from prolip.core.errors import check_name
from prolip.data.templates import DEFAULT
from prolip.encoders import Encoder
from prolip.features import FeatureStore, extract
from prolip.research.catalogue.experiment import Experiment
from prolip.research.datasets import DATASETS, Benchmark, find_dataset, read_dataset
from prolip.research.datasets.features import FeatureDataset
from prolip.research.protocols.encoded_dataset import EncodedDataset, EncodedSplit
from prolip.research.protocols.run import Run
from prolip.research.running.encoding import Encoding, Place, draw_images, read_encoding

if TYPE_CHECKING:
    from prolip.research.running.plan import Plan

# Gets the dataset and split, images done, and images in total.
EncodingProgress = Callable[[str, int, int], None]

PAIRED = ("imagenet",)
MAX_SUPPORT_BYTES = 32 << 30  # of the features of one split that are encoded for an experiment
OWN = "own features"  # stands for the encoder where arrays have texts


def runs_of_places(plan: Plan) -> dict[Place, list[Run]]:
    """Return every file that the runs of a plan read, encoder by encoder, with the runs that read it."""
    runs: dict[Place, list[Run]] = {}
    for run in sorted(plan.runs, key=lambda run: run.encoder):
        for place in Place.of(run):
            runs.setdefault(place, []).append(run)
    return runs


class Source(ABC):
    """Datasets for an experiment."""

    has_images: bool = False

    @abstractmethod
    def select(self, experiment: Experiment, names: Sequence[str]) -> tuple[str, ...]:
        """Return the datasets that are meant by these names; without names, those of the experiment."""

    def defaults(self, experiment: Experiment, datasets: Sequence[str]) -> dict[str, Any]:
        """Return arguments of `make_plan` for these datasets, `models` among them.

        Without further knowledge: the paper's models for its datasets, one without downloads for others.
        """
        return {"models": experiment.models if {*datasets} <= DATASETS.keys() else ("offline",)}

    @abstractmethod
    def encode(self, plan: Plan, progress: EncodingProgress | None = None) -> Iterator[Encoding]:
        """Yield each dataset of a plan by each encoder, with what its runs need."""

    def open(
        self, plan: Plan, progress: EncodingProgress | None = None
    ) -> dict[Place, tuple[Encoding, Path]]:
        """Return what the runs of a plan need, each dataset with its file in the cache folder."""
        files = {}
        for encoding in self.encode(plan, progress):
            path = encoding.in_cache()
            files[encoding.place] = read_encoding(path), path  # mapped: memory is free for the next one
        return files


class Images(Source):
    """Folders of images below a root, encoded where the feature store lacks them."""

    has_images = True

    def __init__(self, root: Path, device: str = "auto", store: FeatureStore | None = None) -> None:
        self.root, self.device, self.store = root, device, store

    def select(self, experiment: Experiment, names: Sequence[str]) -> tuple[str, ...]:
        """Return the datasets by name; without names, those of the experiment that are on disk."""
        if names:
            return tuple(self._dataset_name(name.rstrip("/\\")) for name in names)
        planned = (*experiment.datasets, *experiment.targets)
        present = tuple(name for name in planned if (self.root / DATASETS[name].folder).is_dir())
        return present if not experiment.targets or experiment.datasets[0] in present else ()

    def _dataset_name(self, name: str) -> str:
        dataset = find_dataset(name, self.root)
        return name if dataset is None else dataset.name

    def encode(self, plan: Plan, progress: EncodingProgress | None = None) -> Iterator[Encoding]:
        """Yield each dataset, encoded where the feature store lacks it."""
        store, places = self.store or FeatureStore(), runs_of_places(plan)
        benchmarks = {place.dataset: read_dataset(place.dataset, self.root) for place in places}
        encoder: Encoder | None = None
        name = ""
        for place, runs in places.items():
            if encoder is None or place.encoder != name:
                name, encoder = place.encoder, encoders.load(place.encoder, self.device)
            yield _encode(place, encoder, benchmarks[place.dataset], plan.templates, runs, store, progress)


class Features(Source):
    """Arrays of one's own, or .npz files of them; an encoder reads the names of classes without text."""

    def __init__(self, features: Sequence[Path | FeatureDataset], device: str = "auto") -> None:
        self.device = device
        datasets = [
            item if isinstance(item, FeatureDataset) else FeatureDataset.read(item) for item in features
        ]
        self.arrays = {dataset.name: dataset for dataset in datasets}
        if len(self.arrays) < len(datasets):
            raise UsageError("two datasets of features have the same name: rename one")

    def select(self, experiment: Experiment, names: Sequence[str]) -> tuple[str, ...]:
        """Return all of them, or those that are named; a transfer begins with the first."""
        for name in names:
            check_name("dataset", name, self.arrays)
        return tuple(names) or tuple(self.arrays)

    def defaults(self, experiment: Experiment, datasets: Sequence[str]) -> dict[str, Any]:
        """Return no encoder, and as many views as every dataset has."""
        views = [len(np.asarray(self.arrays[name].x)) for name in datasets]
        return {"models": (OWN,), "views": min(experiment.views, *views)}

    def encode(self, plan: Plan, progress: EncodingProgress | None = None) -> Iterator[Encoding]:
        """Yield the arrays of each dataset as encoded images."""
        if plan.templates:
            raise UsageError("features have their texts already: leave out templates")
        for place, runs in runs_of_places(plan).items():
            yield _from_arrays(self.arrays[place.dataset], place, runs, self.device)


def _from_arrays(dataset: FeatureDataset, place: Place, runs: Sequence[Run], device: str) -> Encoding:
    x, y = np.asarray(dataset.x), np.asarray(dataset.y)
    splits, hashes = {}, {}
    for name, rows in dataset.images.items():
        views = x[:, rows] if name == "train" else x[:1, rows]
        splits[name] = EncodedSplit.whole(views, y[rows].tolist())
        digests = [hashlib.sha256(np.ascontiguousarray(views[:, i]).data).digest() for i in range(len(rows))]
        hashes[name] = _first_bytes(digests)
    classes, text = tuple(dataset.classes or ()), dataset.as_text()
    if text is None and place.encoder == OWN:
        raise UsageError(
            f"{dataset.name} has no text: give `text` in the file, or name the encoder: models=('clip',)"
        )
    if text is None:
        text = replace(encoders.load(place.encoder, device).text(list(classes), DEFAULT), classes=classes)
    texts = {run.template: text for run in runs}
    encoded = EncodedDataset(dataset.name, classes, dataset.head, dataset.scale, texts, splits)
    origin = json.dumps([OWN, place.encoder if dataset.text is None else "", dataset.scale])
    return Encoding(place, encoded, hashes, origin)


def _first_bytes(digests: Sequence[bytes]) -> Any:
    """Return the first eight bytes of hashes, as an array [n, 8]."""
    return np.frombuffer(b"".join(digest[:8] for digest in digests), np.uint8).reshape(-1, 8)


def _encode(
    place: Place,
    encoder: Encoder,
    benchmark: Benchmark,
    templates: tuple[str, ...],
    runs: Sequence[Run],
    store: FeatureStore,
    progress: EncodingProgress | None,
) -> Encoding:
    """Encode one dataset by one encoder: the images that its runs draw, and the test images."""
    none = np.empty((1, 0, 0), np.float32), np.empty(0, np.int64)
    splits = {name: EncodedSplit(images.labels, *none) for name, images in benchmark.splits.items()}
    dataset = EncodedDataset(
        benchmark.name,
        benchmark.names,
        encoder.head,
        encoder.scale,
        {},
        splits,
        benchmark.name in PAIRED,
        benchmark.imagenet_labels,
        encoder.name,
    )
    crops = encoder.with_preprocess(replace(encoder.preprocess, view_area=place.view_area))
    hashes, paths = {}, {}
    for split, (indices, views) in _needed(benchmark, dataset, runs).items():
        images = benchmark.splits[split]
        files = [images.images[i] for i in indices]
        paths[split] = [str(file.resolve()) for file in files]
        _check_size(f"{benchmark.title}, {split}", len(indices), len(views), encoder.width)

        def tick(done: int, total: int, split: str = split) -> None:
            if progress is not None:
                progress(f"{benchmark.name} {split}", done, total)

        reader = crops if split == "train" else encoder
        x, digests = np.empty((1, 0, encoder.width), np.float32), []
        if files:
            encoded = extract(reader, files, views=views, store=store, progress=tick)
            x, digests = encoded.features, encoded.hashes
        splits[split] = EncodedSplit(images.labels, x, np.array(indices, np.int64))
        hashes[split] = _first_bytes(digests)
    prompts = {
        name: (benchmark.names, templates) if templates else benchmark.prompts(name)
        for name in sorted({run.template for run in runs})
    }
    dataset = replace(
        dataset,
        texts={name: encoder.text(*words) for name, words in prompts.items()},
        splits=splits,
        templates={name: words for name, (_, words) in prompts.items()},
        paths=paths,
    )
    origin = [encoder.fingerprint, crops.preprocess.config(), encoder.scale]
    return Encoding(place, dataset, hashes, json.dumps(origin, sort_keys=True))


def _check_size(what: str, images: int, views: int, width: int) -> None:
    """Refuse features that no memory holds, such as ten views of all of ImageNet."""
    size = 4 * images * views * width
    if size > MAX_SUPPORT_BYTES:
        raise InputError(
            f"{what}: {images:,} images x {views} views x {width} features are {size / 2**30:,.0f} GB in "
            f"memory, the limit is {MAX_SUPPORT_BYTES >> 30}: fewer views (views=1), shots or datasets"
        )


def _needed(
    benchmark: Benchmark, labels: EncodedDataset, runs: Sequence[Run]
) -> dict[str, tuple[Sequence[int], Sequence[int]]]:
    """Return images and views of each split: the union of the runs' draws, and the test images."""
    drawn: dict[str, set[int]] = {"train": set(), "val": set()}
    repeated: set[int] = set()  # shots for which a class has too few images
    trained = [run for run in runs if run.dataset == benchmark.name]
    for split in ("train", "test") if trained else ("test",):
        if not len(benchmark.splits.get(split, ())):
            raise InputError(f"{benchmark.title} has no {split} images here")
    for run in {(run.protocol, run.validation, run.shots, run.seed): run for run in trained}.values():
        for split, indices in draw_images(labels, run).items():
            drawn[split].update(indices)
            if len(set(indices)) < len(indices):
                repeated.add(run.shots or 0)
    if repeated:
        several = ", ".join(map(str, sorted(repeated)))
        warnings.warn(
            f"{benchmark.title} has classes with fewer than {min(repeated)} images: for {several} "
            "shots some are drawn more than once, as the authors do",
            stacklevel=2,
        )
    views = range(max((run.views for run in trained), default=1))
    needed = {
        "train": (sorted(drawn["train"]), views),
        "val": (sorted(drawn["val"]), (0,)),
        "test": (range(len(benchmark.splits["test"])), (0,)),
    }
    return {split: found for split, found in needed.items() if split in benchmark.splits}
