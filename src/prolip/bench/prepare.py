"""From datasets on disk to problems on features, once for all units that need them.

Only what the units draw is encoded: of a training pool, the images of their support sets. A problem is
written to a file of its own, which workers map into memory. For every unit there is a digest of what it will
see: the encoder, the pictures (by content) and labels of its support, validation and test images, the texts.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from prolip import encoders
from prolip.bench.problem_file import model_tensors, write_problem
from prolip.bench.units import Unit
from prolip.core import InputError, Text
from prolip.core.files import cache_dir, sha256_tensors
from prolip.data import DEFAULT, Benchmark, ImageSet, read_dataset
from prolip.data.sampling import sample_support, sample_train_val
from prolip.encoders import Encoder
from prolip.evaluate.encoded_dataset import EncodedDataset, EncodedSplit
from prolip.features import FeatureStore, extract

Progress = Callable[[str, int, int], None]

PAIRED = ("imagenet",)


@dataclass(eq=False)
class Prepared:
    """Files of problems by (model, dataset), and the digest of each unit's inputs."""

    files: dict[tuple[str, str], Path] = field(default_factory=dict)
    inputs: dict[str, str] = field(default_factory=dict)  # by the unit's spec

    def key(self, unit: Unit) -> str:
        """The unit's key, its inputs included."""
        return unit.key(self.inputs[unit.spec()])

    def files_of(self, unit: Unit) -> dict[str, str]:
        """The files that a unit reads, by dataset."""
        return {name: str(self.files[unit.model, name]) for name in (unit.dataset, *unit.targets)}


def prepare(
    units: Sequence[Unit],
    root: Path,
    *,
    templates: tuple[str, ...] | None = None,
    device: str = "auto",
    store: FeatureStore | None = None,
    progress: Progress | None = None,
) -> Prepared:
    """Encode what these units need.

    Parameters
    ----------
    units
        All of a run.
    root
        Where datasets are.
    templates
        In place of each dataset's own.
    device, store
        Of the encoder; where features are kept.
    progress
        Called with (what, done, total) in images.
    """
    prepared = Prepared()
    by_model: dict[str, list[Unit]] = defaultdict(list)
    for unit in units:
        by_model[unit.model].append(unit)
    benchmarks = {name: read_dataset(name, root) for name in _datasets(units)}
    for model, mine in by_model.items():
        encoder = encoders.load(model, device)
        sources = {
            name: _Source(encoder, benchmarks[name], templates, store or FeatureStore(), progress)
            for name in _datasets(mine)
        }
        for name, source in sources.items():
            source.collect([unit for unit in mine if name in (unit.dataset, *unit.targets)])
            prepared.files[model, name] = source.write()
        for unit in mine:
            others = (sources[target].test_digest(unit.template) for target in unit.targets)
            parts = [sources[unit.dataset].digest(unit), *others]
            prepared.inputs[unit.spec()] = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    return prepared


def _datasets(units: Iterable[Unit]) -> list[str]:
    return list(dict.fromkeys(name for unit in units for name in (unit.dataset, *unit.targets)))


class _Source:
    """One dataset through one encoder, as it is being prepared."""

    def __init__(
        self,
        encoder: Encoder,
        benchmark: Benchmark,
        templates: tuple[str, ...] | None,
        store: FeatureStore,
        progress: Progress | None,
    ) -> None:
        self.encoder, self.benchmark, self.store = encoder, benchmark, store
        self.progress = progress
        self.paired = benchmark.name in PAIRED
        own = templates or benchmark.templates
        self.templates = {"own": own, "photo": DEFAULT}
        self.parts: dict[str, EncodedSplit] = {}
        self.hashes: dict[str, dict[int, bytes]] = {}
        self.texts: dict[str, Text] = {}
        self._digests: dict[str, str] = {}

    def collect(self, units: Sequence[Unit]) -> None:
        """Draw for every unit, and encode the union of the draws and the test set."""
        drawn: dict[str, set[int]] = {"train": set(), "val": set()}
        repeated: set[int] = set()  # shots that a class lacks images for
        views = 1
        for unit in units:
            if unit.dataset == self.benchmark.name:
                views = max(views, unit.views)
                for part, places in self.draw(unit).items():
                    drawn[part].update(places)
                    if len(set(places)) < len(places):
                        repeated.add(unit.shots or 0)
        if repeated:
            several = ", ".join(map(str, sorted(repeated)))
            warnings.warn(
                f"{self.benchmark.title} has classes with fewer than {min(repeated)} images: for {several} "
                "shots some are drawn more than once, as the authors do",
                stacklevel=2,
            )
        for template in {unit.template for unit in units}:
            self.texts[template] = self.encoder.text(self.benchmark.names, self.templates[template])
        self._encode("train", sorted(drawn["train"]), range(views))
        self._encode("val", sorted(drawn["val"]), (0,))
        self._encode("test", range(len(self._images("test"))), (0,))

    def draw(self, unit: Unit) -> dict[str, list[int]]:
        """Places of the images that a unit trains and validates on."""
        labels = self._images("train").labels
        if unit.protocol == "few_shot_validation":
            val = self.benchmark.splits.get("val")
            try:
                train, chosen, part = sample_train_val(
                    labels, None if val is None else val.labels, unit.shots or 0, unit.seed, self.paired
                )
            except InputError:
                return {}  # the unit will say so itself when it runs, and the others go on
            return {"train": [*train, *chosen]} if part == "train" else {"train": train, "val": chosen}
        return {"train": sample_support(labels, unit.shots, unit.seed, self.paired)}

    def digest(self, unit: Unit) -> str:
        """Of all that the unit sees of this dataset."""
        digest = hashlib.sha256(self.test_digest(unit.template).encode())
        for part, places in self.draw(unit).items():
            digest.update(f"{part}:{json.dumps(places)}".encode())
            for place in places:
                digest.update(self.hashes[part][place])
        return digest.hexdigest()

    def test_digest(self, template: str) -> str:
        """Of the encoder, the texts and the test set."""
        if template not in self._digests:
            about = [self.encoder.fingerprint, self.encoder.preprocess.config(), self.encoder.scale]
            digest = hashlib.sha256(json.dumps([*about, self.parts["test"].labels], sort_keys=True).encode())
            tensors = model_tensors(self.encoder.head, {template: self.texts[template]})
            digest.update(sha256_tensors(tensors.items()).encode())
            for key in self.hashes["test"].values():
                digest.update(key)
            self._digests[template] = digest.hexdigest()
        return self._digests[template]

    def write(self) -> Path:
        """The problem as a file, named by its content."""
        contents = hashlib.sha256(
            json.dumps([self.test_digest(name) for name in sorted(self.texts)]).encode()
        )
        for name, hashes in self.hashes.items():
            contents.update(f"{name}:{len(self.parts[name].x)}:{list(hashes)}:{self.paths(name)}".encode())
            contents.update(b"".join(hashes.values()))
        path = cache_dir() / "bench" / f"{self.benchmark.name}-{contents.hexdigest()[:24]}.safetensors"
        if not path.exists():
            problem = EncodedDataset(
                self.benchmark.name,
                self.benchmark.names,
                self.encoder.head,
                self.encoder.scale,
                self.texts,
                self.parts,
                self.paired,
                self.benchmark.imagenet_labels,
                self.encoder.name,
                {name: self.templates[name] for name in self.texts},
                {name: self.paths(name) for name in self.parts},
            )
            write_problem(problem, path)
        return path

    def paths(self, part: str) -> list[str]:
        """Of the images of a part that are encoded."""
        images = self._images(part)
        return [str(images.paths[place].resolve()) for place in self.parts[part].places.tolist()]

    def _encode(self, part: str, places: Sequence[int], views: Sequence[int]) -> None:
        if part not in self.benchmark.splits:
            return
        images = self._images(part)
        if not places:  # labels are needed all the same: sampling looks at them
            none = np.empty((1, 0, self.encoder.width), np.float32)
            self.parts[part] = EncodedSplit(images.labels, none, np.empty(0, np.int64))
            self.hashes[part] = {}
            return

        def tick(done: int, total: int) -> None:
            if self.progress is not None:
                self.progress(f"{self.benchmark.name} {part}", done, total)

        found = extract(
            self.encoder, [images.paths[i] for i in places], views=views, store=self.store, progress=tick
        )
        self.parts[part] = EncodedSplit(images.labels, found.features, np.array(places, np.int64))
        self.hashes[part] = dict(zip(places, found.hashes, strict=True))

    def _images(self, part: str) -> ImageSet:
        images = self.benchmark.splits.get(part)
        if images is None or not len(images):
            raise InputError(f"{self.benchmark.title} has no {part} images here")
        return images
