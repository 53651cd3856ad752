"""Where the features of an experiment come from: images, a pack of features, or arrays of one's own.

Only drawn images are encoded: of a training split, the images of the support sets.
"""

from __future__ import annotations

import json
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from prolip import encoders
from prolip.core import InputError, UsageError
from prolip.encoders import Encoder
from prolip.features import FeatureStore, extract
from prolip.research.catalogue.experiment import Experiment
from prolip.research.datasets import DATASETS, Benchmark, find_dataset, read_dataset
from prolip.research.protocols.encoded_dataset import EncodedDataset, EncodedSplit
from prolip.research.protocols.run import Run
from prolip.research.running.encoding import Encoding, draw_images, read_encoding

if TYPE_CHECKING:
    from prolip.research.running.plan import Plan

# Gets the dataset and split, images done, and images in total.
EncodingProgress = Callable[[str, int, int], None]

PAIRED = ("imagenet",)
MAX_SUPPORT_BYTES = 32 << 30  # of the features of one split that are encoded for an experiment


class Place(NamedTuple):
    """What one file of features is for."""

    encoder: str
    view_area: float
    dataset: str

    @classmethod
    def of(cls, run: Run) -> list[Place]:
        """Return the files that a run reads: of the dataset it is fitted on, then of its targets."""
        return [cls(run.encoder, run.view_area, name) for name in run.datasets]


def datasets_of(runs: Iterable[Run]) -> list[str]:
    """Return the datasets of runs, each once."""
    return list(dict.fromkeys(name for run in runs for name in run.datasets))


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
    def open(
        self, plan: Plan, progress: EncodingProgress | None = None
    ) -> dict[Place, tuple[Encoding, Path]]:
        """Return what the runs of a plan need, each dataset with its file."""


class Images(Source):
    """Folders of images below a root, encoded where the feature store lacks them."""

    has_images = True

    def __init__(self, root: Path, device: str = "auto", store: FeatureStore | None = None) -> None:
        self.root, self.device, self.store = root, device, store

    def select(self, experiment: Experiment, names: Sequence[str]) -> tuple[str, ...]:
        """Return the datasets by name; without names, those of the experiment that are on disk."""
        if names:
            return tuple(dataset_name(name, self.root) for name in names)
        planned = (*experiment.datasets, *experiment.targets)
        present = tuple(name for name in planned if (self.root / DATASETS[name].folder).is_dir())
        return present if not experiment.targets or experiment.datasets[0] in present else ()

    def open(
        self, plan: Plan, progress: EncodingProgress | None = None
    ) -> dict[Place, tuple[Encoding, Path]]:
        """Encode what the runs need, and write it into the cache folder."""
        files = {}
        for place, encoding, _ in self.encode(plan, progress):
            path = encoding.in_cache()
            files[place] = read_encoding(path), path  # mapped: memory is free for the next one
        return files

    def encode(
        self, plan: Plan, progress: EncodingProgress | None = None
    ) -> Iterator[tuple[Place, Encoding, Benchmark]]:
        """Yield each dataset of a plan by each encoder, and the images behind it."""
        store = self.store or FeatureStore()
        benchmarks = {name: read_dataset(name, self.root) for name in datasets_of(plan.runs)}
        for name in dict.fromkeys(run.encoder for run in plan.runs):
            encoder = encoders.load(name, self.device)
            runs = [run for run in plan.runs if run.encoder == name]
            for place in dict.fromkeys(place for run in runs for place in Place.of(run)):
                mine = [run for run in runs if place in Place.of(run)]
                benchmark = benchmarks[place.dataset]
                yield place, _encode(encoder, benchmark, plan.templates, mine, store, progress), benchmark


def _encode(
    encoder: Encoder,
    benchmark: Benchmark,
    templates: tuple[str, ...],
    runs: Sequence[Run],
    store: FeatureStore,
    progress: EncodingProgress | None,
) -> Encoding:
    """Encode one dataset by one encoder: the images that its runs draw, and the test images."""
    splits = {name: EncodedSplit.without_features(images.labels) for name, images in benchmark.splits.items()}
    labels_only = EncodedDataset(
        benchmark.name,
        benchmark.names,
        None,
        1.0,
        {},
        splits,
        benchmark.name in PAIRED,
        benchmark.imagenet_labels,
        benchmark.title,
    )
    hashes, area = {}, runs[0].view_area
    reader = encoder
    if area != encoder.preprocess.view_area:
        reader = encoder.with_preprocess(replace(encoder.preprocess, view_area=area))
    for split, (indices, views) in _needed(benchmark, labels_only, runs).items():
        images = benchmark.splits[split]
        splits[split] = EncodedSplit.without_features(images.labels, encoder.width)
        hashes[split] = np.empty((0, 32), np.uint8)
        if not indices:
            continue
        _check_size(f"{benchmark.title}, {split}", len(indices), len(views), encoder.width)

        def tick(done: int, total: int, split: str = split) -> None:
            if progress is not None:
                progress(f"{benchmark.name} {split}", done, total)

        paths = [images.images[i] for i in indices]
        encoded = extract(
            reader if split == "train" else encoder, paths, views=views, store=store, progress=tick
        )
        splits[split] = EncodedSplit(images.labels, encoded.features, np.array(indices, np.int64))
        hashes[split] = np.frombuffer(b"".join(encoded.hashes), np.uint8).reshape(len(indices), -1)
    used = {name: benchmark.prompts(name) for name in sorted({run.template for run in runs})}
    if templates and "own" in used:
        used["own"] = benchmark.names, templates
    dataset = replace(
        labels_only,
        head=encoder.head,
        scale=encoder.scale,
        texts={name: encoder.text(*prompts) for name, prompts in used.items()},
        splits=splits,
        encoder=encoder.name,
        templates={name: prompts for name, (_, prompts) in used.items()},
        paths={
            name: [str(benchmark.splits[name].images[i].resolve()) for i in split.indices.tolist()]
            for name, split in splits.items()
        },
    )
    origin = [encoder.fingerprint, reader.preprocess.config(), encoder.scale]
    hashes = {name: rows[:, :8] for name, rows in hashes.items()}
    return Encoding(dataset, hashes, json.dumps(origin, sort_keys=True))


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


def dataset_name(name: str, root: Path) -> str:
    """Return the name of a dataset of the table, or of a folder of images."""
    name = name.rstrip("/\\")
    if (path := PurePath(name)).name != name:
        raise UsageError(f'{name} is a path: use data="{root / path.parent}" datasets="{path.name}"')
    if (root / name).is_dir() and name not in {dataset.folder for dataset in DATASETS.values()}:
        return name
    return find_dataset(name).name
