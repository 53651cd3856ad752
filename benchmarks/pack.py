"""Make a pack of the eleven datasets in their true sizes, from random features, and print its size.

python benchmarks/pack.py OUT [--experiment validation_free] [--model ViT-B/16] [--seeds 10]

What an experiment takes on it, on this machine:

    prolip bench run validation_free --pack OUT --datasets dtd eurosat --seeds 1
"""

import argparse
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from prolip.core import Head, Text
from prolip.core.arrays import unit_rows
from prolip.data.imageset import ImageSet
from prolip.data.templates import templates_for
from prolip.research.catalogue import experiment
from prolip.research.catalogue.published import BACKBONES, PROJECTIONS
from prolip.research.datasets import DATASETS, ELEVEN, Benchmark
from prolip.research.protocols.encoded_dataset import EncodedDataset, EncodedSplit
from prolip.research.running.encoded_file import Encoding, draw_images
from prolip.research.running.pack import write_pack
from prolip.research.running.plan import Plan, make_plan

LENGTH = 10.0  # of embeddings, about CLIP's
NOISE = 3.0  # of an image, where class means have 1 for each dimension
TEXT_NOISE = 2.5  # of a text, so that zero-shot is better than chance and worse than a fit


def made_up(plan: Plan, name: str, rng: np.random.Generator) -> tuple[str, Encoding, Benchmark]:
    """Return a dataset of the true size, with the features that the runs of a plan need."""
    known, (dim, width) = DATASETS[name], PROJECTIONS[plan.models[0]]
    names = tuple(f"class {k}" for k in range(known.classes))
    root = Path("data") / known.folder
    splits = {}
    for split, count in known.sizes.items():
        labels = np.sort(
            np.arange(count) % known.classes
        ).tolist()  # class after class, as in most split files
        numbers = rng.integers(0, 20_000, count).tolist()  # names of real images are as hard to compress
        files = [root / f"{k:04d}/{k:04d}_{n}.jpg" for k, n in zip(labels, numbers, strict=True)]
        splits[split] = ImageSet(files, labels, list(names), root, split)
    benchmark = Benchmark(name, known.title, splits, names, templates_for(name))
    unread = {split: EncodedSplit.without_features(images.labels) for split, images in splits.items()}
    head = Head((np.random.default_rng(1).normal(size=(width, dim)) / np.sqrt(width)).astype(np.float32))
    means = rng.normal(size=(known.classes, width)).astype(np.float32)
    noise = TEXT_NOISE * rng.normal(size=(known.classes, dim)).astype(np.float32)
    rows = unit_rows(means @ head.weight + noise)
    drawn: dict[str, set[int]] = {"train": set(), "val": set(), "test": set(range(known.sizes["test"]))}
    dataset = EncodedDataset(name, names, head, 100.0, {}, unread, paired=name == "imagenet")
    for run in {
        (run.validation, run.shots, run.seed): run for run in plan.runs if run.dataset == name
    }.values():
        for split, indices in draw_images(dataset, run).items():
            drawn[split].update(indices)
    encoded, hashes, size = {}, {}, LENGTH / np.sqrt(dim * (1 + NOISE**2))
    for split, images in splits.items():
        indices = np.array(sorted(drawn[split]), np.int64)
        views = plan.views if split == "train" else 1
        x = np.empty((views, len(indices), width), np.float16)
        for view in x:
            for start in range(0, len(indices), 20_000):
                part = indices[start : start + 20_000]
                noise = rng.standard_normal((len(part), width), np.float32)
                view[start : start + 20_000] = size * (means[np.take(images.labels, part)] + NOISE * noise)
        encoded[split] = EncodedSplit(images.labels, x, indices)
        hashes[split] = rng.integers(0, 256, (len(indices), 32), np.uint8)
    templates = {run.template: benchmark.prompts(run.template)[1] for run in plan.runs}
    identity = Head(np.eye(dim, dtype=np.float32))
    texts = {}
    for template, prompts in templates.items():
        noise = rng.standard_normal((len(prompts), *rows.shape), np.float32)
        features = rows + np.float32(0.3 / np.sqrt(dim)) * noise
        texts[template] = Text(unit_rows(features.mean(axis=0)), names, features, identity)
    full = EncodedDataset(
        name, names, head, 100.0, texts, encoded, paired=name == "imagenet", templates=templates
    )
    return BACKBONES[plan.models[0]], Encoding(full, hashes, '"random features"'), benchmark


def main() -> None:
    """Write the pack."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--experiment", default="validation_free")
    parser.add_argument("--model", default="ViT-B/16", choices=PROJECTIONS)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--datasets", nargs="+", default=ELEVEN, choices=ELEVEN)
    options = parser.parse_args()
    started, rng, seeds = time.perf_counter(), np.random.default_rng(0), tuple(range(1, options.seeds + 1))
    plan = make_plan(
        experiment(options.experiment),
        None,
        datasets=options.datasets,
        models=(options.model,),
        seeds=seeds,
        views=1,
    )

    def encodings() -> Iterator[tuple[str, Encoding, Benchmark]]:
        for name in options.datasets:
            yield made_up(plan, name, rng)

    write_pack(options.out, plan, encodings())
    sizes = {file: file.stat().st_size / 1e6 for file in sorted(options.out.rglob("*")) if file.is_file()}
    for file, size in sizes.items():
        print(f"{size:9.1f} MB  {file.relative_to(options.out)}")
    seconds = time.perf_counter() - started
    print(f"{sum(sizes.values()):9.1f} MB  in all, {len(plan.runs):,} runs; written in {seconds:.0f} s")


if __name__ == "__main__":
    main()
