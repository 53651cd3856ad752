"""Do augmented views help the default where images are few? The offline encoder, development parts only.

    python benchmarks/views.py [--data ../shared/data] [--seeds 5] [--shots 1 2 4] [--views 1 2 5 9]

N training photos of each class to fit, in so many views (the first is the centre crop); the other training
photos are asked about, in one. Mean accuracy in per cent over random draws, and the standard error of the
gap to one view over the draws. The built-in digits and textures have 16 pictures of each class here.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from prolip import Task, methods
from prolip.data import as_templates, builtin, read_images, sample_few_shot
from prolip.encoders import Encoder, load
from prolip.evaluate.metrics import accuracy
from prolip.features import FeatureStore, extract
from solver_tasks import TEMPLATES

PHOTOS = ("birds60", "pets37", "dtd10", "clothing10")


def whole(encoder: Encoder, data: Path, name: str, views: int) -> Task:
    """All training pictures of a set, every view."""
    if name in PHOTOS:
        photos = read_images(data / "images" / name, split="train")
        pictures, labels, names, templates = photos.images, photos.labels, photos.names, TEMPLATES.get(name)
    else:
        made = builtin(name, 16, seed=5, split="train")
        pictures, labels, names, templates = made.images, made.labels, made.classes, made.templates
    x = extract(encoder, pictures, views=range(views), store=FeatureStore()).features
    text = encoder.text(list(names), as_templates(templates))
    return Task(x, labels, text, encoder.head, encoder.scale)


def fitted_accuracy(task: Task, chosen: np.ndarray, views: int) -> float:
    rest = np.setdiff1d(np.arange(task.n), chosen)
    few = Task(task.x[:views, chosen], task.y[chosen], task.text, task.head, task.scale)
    return 100 * accuracy(methods.create("prolip").fit(few).logits(task.x[0, rest]), task.y[rest])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--shots", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--views", type=int, nargs="+", default=[1, 2, 5, 9])
    given = parser.parse_args()
    encoder, gains = load("offline"), {}
    print("gain over one view ± its standard error; accuracy with one view first")
    for name in (*PHOTOS, "digits", "textures"):
        task = whole(encoder, given.data, name, max(given.views))
        for shots in given.shots:
            draws = [np.array(sample_few_shot(task.y.tolist(), shots, s + 1)) for s in range(given.seeds)]
            found = np.array([[fitted_accuracy(task, d, v) for v in (1, *given.views)] for d in draws])
            gap = found[:, 1:] - found[:, :1]
            gains[name, shots] = gap.mean(axis=0)
            error = gap.std(axis=0, ddof=1) / len(draws) ** 0.5
            columns = zip(given.views, gap.mean(axis=0), error, strict=True)
            cells = "   ".join(f"{v} views {g:+5.1f} ± {e:3.1f}" for v, g, e in columns)
            print(f"{name:<12} {shots} a class {found[:, 0].mean():5.1f}   {cells}", flush=True)
    for shots in given.shots:
        mean = np.mean([gain for (_, n), gain in gains.items() if n == shots], axis=0)
        cells = "   ".join(f"{v} views {g:+.2f}" for v, g in zip(given.views, mean, strict=True))
        print(f"mean, {shots} a class: {cells}")


if __name__ == "__main__":
    main()
