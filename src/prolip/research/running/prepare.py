"""From datasets on disk to problems on features, once for all units that need them.

Only what the units draw is encoded: of a training pool, the images of their support sets. A problem is
written to a file of its own, which workers map into memory. For every unit there is a digest of what it will
see: the encoder, the pictures (by content) and labels of its support, validation and test images, the texts.
"""

import hashlib
import json
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from prolip import encoders
from prolip.core import InputError
from prolip.data import DEFAULT, ImageSet
from prolip.encoders import Encoder
from prolip.features import FeatureStore, extract
from prolip.io.files import cache_dir, sha256_tensors
from prolip.research.datasets import Benchmark, read_dataset
from prolip.research.protocols.encoded_dataset import EncodedDataset, EncodedSplit
from prolip.research.protocols.protocols import draw
from prolip.research.running.problem_file import is_whole, model_tensors, write_problem
from prolip.research.running.result_key import result_key
from prolip.research.running.unit import Unit

Progress = Callable[[str, int, int], None]

PAIRED = ("imagenet",)


@dataclass(frozen=True, eq=False)
class Prepared:
    """The file of each problem by (model, dataset), and the key of each unit's result, in their order."""

    files: dict[tuple[str, str], Path]
    keys: list[str]

    def files_of(self, unit: Unit) -> dict[str, str]:
        """The files that a unit reads, by dataset."""
        return {name: str(self.files[unit.model, name]) for name in (unit.dataset, *unit.targets)}


def prepare(
    units: Sequence[Unit],
    root: Path,
    *,
    templates: tuple[str, ...] = (),
    device: str = "auto",
    store: FeatureStore | None = None,
    progress: Progress | None = None,
) -> Prepared:
    """Encode what the units of a run need, from the datasets below `root`.

    `templates` stand in the place of each dataset's own; `progress` gets (what, done, total) in images.
    """
    store = store or FeatureStore()
    benchmarks = {name: read_dataset(name, root) for name in _datasets(units)}
    files, digests = {}, {}
    for model in dict.fromkeys(unit.model for unit in units):
        encoder = encoders.load(model, device)
        mine = {place: unit for place, unit in enumerate(units) if unit.model == model}
        sources = {}
        for name in _datasets(mine.values()):
            readers = [unit for unit in mine.values() if name in (unit.dataset, *unit.targets)]
            sources[name] = _Source(encoder, benchmarks[name], templates, readers, store, progress)
            files[model, name] = sources[name].write()
        for place, unit in mine.items():
            template = unit.trial.setting.template
            others = (sources[target].test_digest(template) for target in unit.targets)
            digests[place] = "\n".join([sources[unit.dataset].digest(unit), *others])
    return Prepared(files, [result_key(unit, digests[place]) for place, unit in enumerate(units)])


def _datasets(units: Iterable[Unit]) -> list[str]:
    return list(dict.fromkeys(name for unit in units for name in (unit.dataset, *unit.targets)))


class _Source:
    """One dataset through one encoder: what its units draw, and the test set."""

    def __init__(
        self,
        encoder: Encoder,
        benchmark: Benchmark,
        templates: tuple[str, ...],
        units: Sequence[Unit],
        store: FeatureStore,
        progress: Progress | None,
    ) -> None:
        self.encoder, self.benchmark, self.store, self.progress = encoder, benchmark, store, progress
        self.hashes: dict[str, dict[int, bytes]] = {}
        self._digests: dict[str, str] = {}
        self._draws: dict[tuple[str, int | None, int], dict[str, list[int]]] = {}
        prompts = {"own": templates or benchmark.templates, "photo": DEFAULT}
        used = sorted({unit.trial.setting.template for unit in units})
        self.problem = EncodedDataset(
            benchmark.name,
            benchmark.names,
            encoder.head,
            encoder.scale,
            {name: encoder.text(benchmark.names, prompts[name]) for name in used},
            {part: self._encode(part, [], ()) for part in benchmark.splits},
            benchmark.name in PAIRED,
            benchmark.imagenet_labels,
            encoder.name,
            {name: prompts[name] for name in used},
        )
        self._collect([unit for unit in units if unit.dataset == benchmark.name])

    def _collect(self, units: Sequence[Unit]) -> None:
        """Draw for every unit, and encode the union of the draws and the test set."""
        drawn: dict[str, set[int]] = {"train": set(), "val": set()}
        repeated: set[int] = set()  # shots that a class lacks images for
        for unit in units:
            for part, places in self._draw(unit).items():
                drawn[part].update(places)
                if len(set(places)) < len(places):
                    repeated.add(unit.trial.shots or 0)
        if repeated:
            several = ", ".join(map(str, sorted(repeated)))
            warnings.warn(
                f"{self.benchmark.title} has classes with fewer than {min(repeated)} images: for {several} "
                "shots some are drawn more than once, as the authors do",
                stacklevel=2,
            )
        views = range(max((unit.trial.setting.views for unit in units), default=1))
        test = range(len(self._images("test")))
        asked = {"train": (sorted(drawn["train"]), views), "val": (sorted(drawn["val"]), (0,))}
        parts = {
            part: self._encode(part, *wanted)
            for part, wanted in {**asked, "test": (test, (0,))}.items()
            if part in self.benchmark.splits
        }
        paths = {
            name: [str(self._images(name).images[place].resolve()) for place in part.places.tolist()]
            for name, part in parts.items()
        }
        self.problem = replace(self.problem, splits=parts, paths=paths)

    def _draw(self, unit: Unit) -> dict[str, list[int]]:
        """Places of the images that a unit trains and validates on; many units share a draw."""
        asked = unit.protocol, unit.trial.shots, unit.trial.seed
        if asked not in self._draws:
            self._images("train")
            try:
                found = draw(unit.protocol, self.problem, unit.trial)
            except InputError:
                self._draws[asked] = {}  # the unit will say so itself when it runs, and the others go on
            else:
                both = found.validation_part == "train"
                train = [*found.train, *found.validation] if both else found.train
                self._draws[asked] = {"train": train, "val": [] if both else found.validation}
        return self._draws[asked]

    def digest(self, unit: Unit) -> str:
        """Of all that the unit sees of this dataset."""
        digest = hashlib.sha256(self.test_digest(unit.trial.setting.template).encode())
        for part, places in self._draw(unit).items():
            labels = [self.problem.splits[part].labels[place] for place in places]
            digest.update(f"{part}:{json.dumps([places, labels])}".encode())
            for place in places:
                digest.update(self.hashes[part][place])
        return digest.hexdigest()

    def test_digest(self, template: str) -> str:
        """Of the encoder, the texts and the test set."""
        if template not in self._digests:
            about = [self.encoder.fingerprint, self.encoder.preprocess.config(), self.encoder.scale]
            labels = self.problem.splits["test"].labels
            digest = hashlib.sha256(json.dumps([*about, labels], sort_keys=True).encode())
            tensors = model_tensors(self.encoder.head, {template: self.problem.texts[template]})
            digest.update(sha256_tensors(tensors.items()).encode())
            for key in self.hashes["test"].values():
                digest.update(key)
            self._digests[template] = digest.hexdigest()
        return self._digests[template]

    def write(self) -> Path:
        """The problem as a file, named by its content; a damaged one is made again."""
        problem = self.problem
        contents = hashlib.sha256(json.dumps([self.test_digest(name) for name in problem.texts]).encode())
        for name, hashes in self.hashes.items():
            views = len(problem.splits[name].x)
            contents.update(f"{name}:{views}:{list(hashes)}:{problem.paths[name]}".encode())
            contents.update(b"".join(hashes.values()))
        path = cache_dir() / "bench" / f"{problem.name}-{contents.hexdigest()[:24]}.safetensors"
        if not is_whole(path):
            write_problem(problem, path)
        return path

    def _encode(self, part: str, places: Sequence[int], views: Sequence[int]) -> EncodedSplit:
        """Features of some images of a part; its labels are needed in any case, to draw by."""
        images = self.benchmark.splits[part]
        if not places:
            self.hashes[part] = {}
            none = np.empty((1, 0, self.encoder.width), np.float32)
            return EncodedSplit(images.labels, none, np.empty(0, np.int64))

        def tick(done: int, total: int) -> None:
            if self.progress is not None:
                self.progress(f"{self.benchmark.name} {part}", done, total)

        paths = [images.images[i] for i in places]
        found = extract(
            self.encoder, paths, views=views, store=self.store, progress=tick, exact_decode=True
        )  # as the paper's figures are measured
        self.hashes[part] = dict(zip(places, found.hashes, strict=True))
        return EncodedSplit(images.labels, found.features, np.array(places, np.int64))

    def _images(self, part: str) -> ImageSet:
        images = self.benchmark.splits.get(part)
        if images is None or not len(images):
            raise InputError(f"{self.benchmark.title} has no {part} images here")
        return images
