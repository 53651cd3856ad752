"""Encode the images that the runs of a plan need, once for all runs; or take them from a pack of features.

Only drawn images are encoded: of a training split, the images of the support sets. An encoded dataset is
written to a file, which workers map into memory. The key of a run's result covers its inputs: the encoder,
the content and labels of its support, validation and test images, and the texts.
"""

import json
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from prolip import encoders
from prolip.core import InputError
from prolip.encoders import Encoder
from prolip.features import FeatureStore, extract
from prolip.io.files import cache_dir
from prolip.research.datasets import Benchmark, read_dataset
from prolip.research.protocols.encoded_dataset import EncodedDataset, EncodedSplit
from prolip.research.protocols.run import Run
from prolip.research.running.encoded_file import Encoding, draw_images, is_intact, write_encoding
from prolip.research.running.pack import Pack
from prolip.research.running.plan import Plan
from prolip.research.running.result_key import result_key
from prolip.research.running.workers import Job

# Gets the dataset and split, images done, and images in total; for a pack the dataset, datasets done and all.
EncodingProgress = Callable[[str, int, int], None]

PAIRED = ("imagenet",)


def prepare(
    plan: Plan,
    source: Path | Pack,
    *,
    device: str = "auto",
    store: FeatureStore | None = None,
    progress: EncodingProgress | None = None,
) -> list[Job]:
    """Encode what the runs of a plan need, from the datasets in a folder, or find it in a pack.

    Return the jobs of the runs, in order.
    """
    encodings, files = {}, {}
    if isinstance(source, Pack):
        source.check(plan)
        names = _datasets(plan.runs)
        for number, dataset in enumerate(names):
            key = source.encoder, dataset
            encodings[key], path = source.read(dataset)
            files[key] = str(path)
            if progress is not None:
                progress(dataset, number + 1, len(names))
    else:
        for encoder, encoding, _ in encode_datasets(plan, source, device, store, progress):
            path = cache_dir() / "bench" / f"{encoding.dataset.name}-{encoding.content()[:24]}.safetensors"
            if not is_intact(path):
                write_encoding(encoding, path)
            key = encoder, encoding.dataset.name
            encodings[key], files[key] = encoding, str(path)
    jobs = []
    for run in plan.runs:
        targets = (encodings[run.encoder, target].test_digest(run.template) for target in run.targets)
        inputs = "\n".join([encodings[run.encoder, run.dataset].digest(run), *targets])
        jobs.append(Job(result_key(run, inputs), run, tuple(files[run.encoder, d] for d in run.datasets)))
    return jobs


def encode_datasets(
    plan: Plan,
    root: Path,
    device: str = "auto",
    store: FeatureStore | None = None,
    progress: EncodingProgress | None = None,
) -> Iterator[tuple[str, Encoding, Benchmark]]:
    """Yield each encoder by name, each dataset of a plan, encoded by it, and the images behind it."""
    store = store or FeatureStore()
    benchmarks = {name: read_dataset(name, root) for name in _datasets(plan.runs)}
    for name in dict.fromkeys(run.encoder for run in plan.runs):
        encoder = encoders.load(name, device)
        runs = [run for run in plan.runs if run.encoder == name]
        for dataset in _datasets(runs):
            mine = [run for run in runs if dataset in run.datasets]
            benchmark = benchmarks[dataset]
            yield name, _encode(encoder, benchmark, plan.templates, mine, store, progress), benchmark


def _datasets(runs: Iterable[Run]) -> list[str]:
    return list(dict.fromkeys(name for run in runs for name in run.datasets))


def _labels_only(benchmark: Benchmark) -> EncodedDataset:
    """Return a dataset without features, for drawing."""
    splits = {name: EncodedSplit.without_features(images.labels) for name, images in benchmark.splits.items()}
    paired, labels = benchmark.name in PAIRED, benchmark.imagenet_labels
    return EncodedDataset(benchmark.name, benchmark.names, None, 1.0, {}, splits, paired, labels)


def _encode(
    encoder: Encoder,
    benchmark: Benchmark,
    templates: tuple[str, ...],
    runs: Sequence[Run],
    store: FeatureStore,
    progress: EncodingProgress | None,
) -> Encoding:
    """Encode one dataset by one encoder: the images that its runs draw, and the test images."""
    labels = _labels_only(benchmark)
    splits, hashes = {}, {}
    for split, (indices, views) in _needed(benchmark, labels, runs).items():
        images = benchmark.splits[split]
        splits[split] = EncodedSplit.without_features(images.labels, encoder.width)
        hashes[split] = np.empty((0, 32), np.uint8)
        if not indices:
            continue

        def tick(done: int, total: int, split: str = split) -> None:
            if progress is not None:
                progress(f"{benchmark.name} {split}", done, total)

        paths = [images.images[i] for i in indices]
        found = extract(encoder, paths, views=views, store=store, progress=tick)
        splits[split] = EncodedSplit(images.labels, found.features, np.array(indices, np.int64))
        hashes[split] = np.frombuffer(b"".join(found.hashes), np.uint8).reshape(len(indices), -1)
    used = {name: benchmark.prompts(name) for name in sorted({run.template for run in runs})}
    if templates and "own" in used:
        used["own"] = benchmark.names, templates
    dataset = replace(
        labels,
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
    origin = [encoder.fingerprint, encoder.preprocess.config(), encoder.scale]
    return Encoding(dataset, hashes, json.dumps(origin, sort_keys=True))


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
