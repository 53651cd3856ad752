"""Packs of features: what an experiment needs of its datasets by one encoder, to run it anywhere.

    PACK/pack.json                what is in it: encoder, selection, datasets with licences, checksums
    PACK/dtd.safetensors          features in float16, labels and texts: the file of the cache folder
    PACK/splits/dtd.json.xz       the images behind them: [path, label, class name], as in CoOp's split files

A pack has neither images nor weights of towers. Methods that train through a tower cannot run from it.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, get_type_hints

import prolip
from prolip.core import InputError
from prolip.core.arguments import is_json_of
from prolip.core.errors import check_name
from prolip.io.files import portable_name, sha256_file
from prolip.io.reading import ReadError, read_json
from prolip.io.writing import write_bytes, write_folder, write_json
from prolip.research.catalogue.experiment import Experiment
from prolip.research.datasets import DATASETS, Benchmark
from prolip.research.protocols.run import lists_to_tuples
from prolip.research.running.encoding import Encoding, read_encoding, write_encoding
from prolip.research.running.plan import Plan
from prolip.research.running.source import EncodingProgress, Place, Source

_KIND = "prolip features"

# What the pages of the datasets say on the use of their images.
_LICENCES = {
    "imagenet": "non-commercial research and education (image-net.org, terms of access)",
    "sun397": "none stated",
    "dtd": "for research",
    "caltech101": "CC BY 4.0",
    "ucf101": "none stated",
    "flowers102": "none stated",
    "stanford_cars": "non-commercial research",
    "fgvc_aircraft": "non-commercial research",
    "eurosat": "MIT",
    "oxford_pets": "CC BY-SA 4.0",
    "food101": "images of Foodspotting: scientific fair use",
    **dict.fromkeys(("imagenet_v2", "imagenet_sketch", "imagenet_a", "imagenet_r"), "MIT"),
}
_NOTE = (
    "Features of images that belong to others. The licences are those of the images as far as we know them: "
    "read the pages of the datasets before you share a pack. The encoder has a licence of its own."
)


@dataclass(frozen=True)
class Contents:
    """The part of an experiment that a pack is for."""

    experiment: str
    model: str  # the paper's backbone, or the encoder
    encoder: str
    shots: tuple[int | None, ...]
    seeds: tuple[int, ...]
    views: int
    validation: str
    templates: tuple[str, ...]
    datasets: tuple[str, ...]
    files: dict[str, str]  # SHA-256 by name


class Pack(Source):
    """A folder of features by one encoder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        stored = read_json(folder / "pack.json")
        known = {} if not isinstance(stored, dict) or stored.get("kind") != _KIND else stored
        for name, hint in get_type_hints(Contents).items():
            if name not in known or not is_json_of(known[name], hint):
                raise InputError(
                    f"{folder / 'pack.json'} does not describe a pack of features: {name} is missing or wrong"
                )
        named = {field.name: known[field.name] for field in fields(Contents)}
        self.contents = Contents(**lists_to_tuples(named))

    def select(self, experiment: Experiment, names: Sequence[str]) -> tuple[str, ...]:
        """Return the datasets of the pack, or those of them that are named."""
        for name in names:
            check_name(f"dataset of {self.folder}", name, self.contents.datasets)
        return tuple(names) or self.contents.datasets

    def defaults(self, experiment: Experiment, datasets: Sequence[str]) -> dict[str, Any]:
        """Return the part of an experiment that it has the features of."""
        names = ["shots", "seeds", "views", "templates"]
        names += ["validation"] * (experiment.name == self.contents.experiment)
        return {"models": (self.contents.model,), **{name: getattr(self.contents, name) for name in names}}

    def open(
        self, plan: Plan, progress: EncodingProgress | None = None
    ) -> dict[Place, tuple[Encoding, Path]]:
        """Return the files of the pack, once their checksums are right and they have what the plan needs."""
        self.check(plan)
        files: dict[Place, tuple[Encoding, Path]] = {}
        places = list(dict.fromkeys(place for run in plan.runs for place in Place.of(run)))
        for number, place in enumerate(places):
            file = self.folder / _file_name(place)
            if not file.is_file() or sha256_file(file) != self.contents.files.get(file.name):
                raise ReadError(file, "it is missing or damaged: copy the pack again")
            files[place] = read_encoding(file), file.resolve()
            if progress is not None:
                progress(place.dataset, number + 1, len(places))
        return files

    def check(self, plan: Plan) -> None:
        """Refuse a plan that the pack lacks features for."""
        has = self.contents
        for name in ("seeds", "shots"):
            stored = getattr(has, name)
            if lacking := [value for value in getattr(plan, name) if value not in stored]:
                raise InputError(
                    f"{self.folder} has no features for {name} {_list(lacking)}, only for {_list(stored)}"
                )
        rules = {run.validation for run in plan.runs} - {"none", has.validation}
        if (plan.experiment.name, plan.experiment.validation) == (has.experiment, has.validation):
            rules = set()  # some of its entries have a rule of their own
        lacks = [
            (plan.views > has.views, f"{plan.views} views", f"{has.views}"),
            (plan.models != (has.model,), f'model="{" ".join(plan.models)}"', has.model),
            (plan.templates != has.templates, "other templates", " ".join(has.templates) or "its own"),
            (bool(rules), f'validation="{" ".join(sorted(rules))}"', has.validation),
        ]
        for wrong, wanted, stored in lacks:
            if wrong:
                raise InputError(
                    f"{self.folder} has no features for {wanted}, only for {stored}: write a pack with these "
                    f"options, by `prolip bench pack {plan.experiment.name}`"
                )


def _file_name(place: Place) -> str:
    area = "" if place.view_area == 0.5 else f"-{place.view_area:g}"
    return f"{portable_name(place.dataset)}{area}.safetensors"


def write_pack(folder: Path, plan: Plan, encodings: Iterable[tuple[Place, Encoding, Benchmark]]) -> None:
    """Write the features of a plan's datasets, by its one encoder, into a new folder."""

    def fill(draft: Path) -> None:
        about = {}
        for place, encoding, benchmark in encodings:
            name = encoding.dataset.name
            file = draft / _file_name(place)
            write_encoding(encoding.without_images(), file)
            listed = {split: _listed(benchmark, split) for split in benchmark.splits}
            text = json.dumps(listed, separators=(",", ":")).encode()
            splits = draft / "splits" / f"{portable_name(name)}.json.xz"
            write_bytes(splits, lzma.compress(text, preset=1))
            about[name] = {
                "title": benchmark.title,
                "source": DATASETS[name].source if name in DATASETS else "a folder of images",
                "licence": _LICENCES.get(name, "not known"),
                "classes": len(benchmark.names),
                "images": {split: len(images) for split, images in benchmark.splits.items()},
                "encoded": {split: list(x.x.shape[:2]) for split, x in encoding.dataset.splits.items()},
                "templates": encoding.dataset.templates,
                "origin": json.loads(encoding.origin),
            }
        files = {x.relative_to(draft).as_posix(): sha256_file(x) for x in draft.rglob("*") if x.is_file()}
        contents = Contents(
            plan.experiment.name,
            plan.models[0],
            plan.runs[0].encoder,
            plan.shots,
            plan.seeds,
            plan.views,
            plan.experiment.validation,
            plan.templates,
            plan.datasets,
            files,
        )
        described = {"kind": _KIND, "prolip": prolip.__version__, "precision": "float16", "note": _NOTE}
        write_json(draft / "pack.json", {**described, **asdict(contents), "about": about})

    write_folder(folder, fill)


def _list(values: Iterable[int | None]) -> str:
    return ", ".join("full" if value is None else str(value) for value in values)


def _listed(benchmark: Benchmark, split: str) -> list[list[Any]]:
    """Return path, label and class name of each image of a split; paths are below the dataset's folder."""
    images = benchmark.splits[split]
    root = f"{Path(images.root).as_posix()}/"  # os.path.relpath would take a minute for ImageNet
    paths = [Path(path).as_posix().removeprefix(root) for path in images.images]
    return [[path, label, benchmark.names[label]] for path, label in zip(paths, images.labels, strict=True)]
