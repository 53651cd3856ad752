"""Encode the images that the runs of a plan need, once for all runs.

Only drawn images are encoded: of a training split, the images of the support sets. An encoded dataset is
written to a file, which workers map into memory. The key of a run's result covers its inputs: the encoder,
the content and labels of its support, validation and test images, and the texts.
"""

import hashlib
import json
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from prolip import encoders
from prolip.core import InputError
from prolip.data import DEFAULT
from prolip.encoders import Encoder
from prolip.features import FeatureStore, extract
from prolip.io.files import cache_dir, sha256_tensors
from prolip.research.datasets import Benchmark, read_dataset
from prolip.research.protocols.encoded_dataset import EncodedDataset, EncodedSplit
from prolip.research.protocols.run import Run
from prolip.research.running.encoded_file import is_intact, model_tensors, write_encoded
from prolip.research.running.plan import Plan
from prolip.research.running.result_key import result_key
from prolip.research.running.workers import Job

EncodingProgress = Callable[[str, int, int], None]  # gets the dataset and split, images done, images in total

PAIRED = ("imagenet",)


def prepare(
    plan: Plan,
    root: Path,
    *,
    device: str = "auto",
    store: FeatureStore | None = None,
    progress: EncodingProgress | None = None,
) -> list[Job]:
    """Encode what the runs of a plan need, from the datasets below `root`; return their jobs in order."""
    store = store or FeatureStore()
    benchmarks = {name: read_dataset(name, root) for name in _datasets(plan.runs)}
    jobs: dict[int, Job] = {}
    for name in dict.fromkeys(run.encoder for run in plan.runs):
        encoder = encoders.load(name, device)
        runs = {place: run for place, run in enumerate(plan.runs) if run.encoder == name}
        encoded = {
            dataset: _Encoded(
                encoder,
                benchmarks[dataset],
                plan.templates,
                [run for run in runs.values() if dataset in run.datasets],
                store,
                progress,
            )
            for dataset in _datasets(runs.values())
        }
        files = {dataset: str(one.write()) for dataset, one in encoded.items()}
        for place, run in runs.items():
            targets = (encoded[target].test_digest(run.template) for target in run.targets)
            inputs = "\n".join([encoded[run.dataset].digest(run), *targets])
            jobs[place] = Job(result_key(run, inputs), run, tuple(files[d] for d in run.datasets))
    return [jobs[place] for place in range(len(plan.runs))]


def _datasets(runs: Iterable[Run]) -> list[str]:
    return list(dict.fromkeys(name for run in runs for name in run.datasets))


def _labels_only(benchmark: Benchmark) -> EncodedDataset:
    """Return a dataset without features, for drawing."""
    splits = {name: EncodedSplit.without_features(images.labels) for name, images in benchmark.splits.items()}
    paired, labels = benchmark.name in PAIRED, benchmark.imagenet_labels
    return EncodedDataset(benchmark.name, benchmark.names, None, 1.0, {}, splits, paired, labels)


class _Encoded:
    """One dataset by one encoder: the images that its runs draw, and the test images."""

    def __init__(
        self,
        encoder: Encoder,
        benchmark: Benchmark,
        templates: tuple[str, ...],
        runs: Sequence[Run],
        store: FeatureStore,
        progress: EncodingProgress | None,
    ) -> None:
        self.encoder, self.benchmark, self.store, self.progress = encoder, benchmark, store, progress
        self.hashes: dict[str, dict[int, bytes]] = {}  # of the encoded images, by split and index
        self._draws: dict[tuple[str, str, int | None, int], dict[str, list[int]]] = {}
        self._test_digests: dict[str, str] = {}
        self._labels = _labels_only(benchmark)
        splits = self._encode_all([run for run in runs if run.dataset == benchmark.name])
        prompts = {"own": templates or benchmark.templates, "photo": DEFAULT}
        used = {run.template: prompts[run.template] for run in sorted(runs, key=lambda run: run.template)}
        self.dataset = replace(
            self._labels,
            head=encoder.head,
            scale=encoder.scale,
            texts={name: encoder.text(benchmark.names, prompts) for name, prompts in used.items()},
            splits=splits,
            encoder=encoder.name,
            templates=used,
            paths={
                name: [str(benchmark.splits[name].images[i].resolve()) for i in split.indices.tolist()]
                for name, split in splits.items()
            },
        )

    def _encode_all(self, runs: Sequence[Run]) -> dict[str, EncodedSplit]:
        """Encode the union of the runs' draws, and the test images."""
        drawn: dict[str, set[int]] = {"train": set(), "val": set()}
        repeated: set[int] = set()  # shots for which a class has too few images
        for run in runs:
            for split, indices in self._draw(run).items():
                drawn[split].update(indices)
                if len(set(indices)) < len(indices):
                    repeated.add(run.shots or 0)
        if repeated:
            several = ", ".join(map(str, sorted(repeated)))
            warnings.warn(
                f"{self.benchmark.title} has classes with fewer than {min(repeated)} images: for {several} "
                "shots some are drawn more than once, as the authors do",
                stacklevel=2,
            )
        self._require("test")
        views = range(max((run.views for run in runs), default=1))
        needed = {
            "train": (sorted(drawn["train"]), views),
            "val": (sorted(drawn["val"]), (0,)),
            "test": (range(len(self.benchmark.splits["test"])), (0,)),
        }
        return {name: self._encode(name, *needed[name]) for name in needed if name in self.benchmark.splits}

    def _draw(self, run: Run) -> dict[str, list[int]]:
        """Return the images that a run trains and validates on, by split; many runs share a draw."""
        key = run.protocol, run.validation, run.shots, run.seed
        if key not in self._draws:
            self._require("train")
            try:
                drawn = run.draw(self._labels)
            except InputError:
                self._draws[key] = {}  # the run will fail with this error, and the others go on
            else:
                both = drawn.validation_split == "train"
                train = [*drawn.train, *drawn.validation] if both else drawn.train
                self._draws[key] = {"train": train, "val": [] if both else drawn.validation}
        return self._draws[key]

    def _require(self, split: str) -> None:
        if not len(self.benchmark.splits.get(split, ())):
            raise InputError(f"{self.benchmark.title} has no {split} images here")

    def _encode(self, split: str, indices: Sequence[int], views: Sequence[int]) -> EncodedSplit:
        """Encode some images of a split."""
        images = self.benchmark.splits[split]
        if not indices:
            self.hashes[split] = {}
            return EncodedSplit.without_features(images.labels, self.encoder.width)

        def tick(done: int, total: int) -> None:
            if self.progress is not None:
                self.progress(f"{self.benchmark.name} {split}", done, total)

        paths = [images.images[i] for i in indices]
        found = extract(self.encoder, paths, views=views, store=self.store, progress=tick)
        self.hashes[split] = dict(zip(indices, found.hashes, strict=True))
        return EncodedSplit(images.labels, found.features, np.array(indices, np.int64))

    def digest(self, run: Run) -> str:
        """Return a digest of all that the run reads of this dataset."""
        digest = hashlib.sha256(self.test_digest(run.template).encode())
        for split, indices in self._draw(run).items():
            labels = [self.dataset.splits[split].labels[i] for i in indices]
            digest.update(f"{split}:{json.dumps([indices, labels])}".encode())
            for i in indices:
                digest.update(self.hashes[split][i])
        return digest.hexdigest()

    def test_digest(self, template: str) -> str:
        """Return a digest of the encoder, the texts and the test images."""
        if template not in self._test_digests:
            config = [self.encoder.fingerprint, self.encoder.preprocess.config(), self.encoder.scale]
            labels = self.dataset.splits["test"].labels
            digest = hashlib.sha256(json.dumps([*config, labels], sort_keys=True).encode())
            tensors = model_tensors(self.encoder.head, {template: self.dataset.texts[template]})
            digest.update(sha256_tensors(tensors.items()).encode())
            digest.update(b"".join(self.hashes["test"].values()))
            self._test_digests[template] = digest.hexdigest()
        return self._test_digests[template]

    def write(self) -> Path:
        """Write the dataset to a file that is named by its content; a damaged one is replaced."""
        dataset = self.dataset
        content = hashlib.sha256(json.dumps([self.test_digest(name) for name in dataset.texts]).encode())
        for name, hashes in self.hashes.items():
            views = len(dataset.splits[name].x)
            content.update(f"{name}:{views}:{list(hashes)}:{dataset.paths[name]}".encode())
            content.update(b"".join(hashes.values()))
        path = cache_dir() / "bench" / f"{dataset.name}-{content.hexdigest()[:24]}.safetensors"
        if not is_intact(path):
            write_encoded(dataset, path)
        return path
