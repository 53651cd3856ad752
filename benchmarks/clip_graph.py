"""A real CLIP image tower in int8, as an ONNX graph: is it cut in the right place, how fast, how accurate?

    make verify-clip
    python benchmarks/clip_graph.py GRAPH.onnx [--data data] [--draws 5] [--images 12]

GRAPH is OpenAI's ViT-B/16 as it is exported by transformers and quantised by ONNX Runtime. Printed are the
cosine between `features @ W` and the graph's own output, and images a second on this machine. With --data
(photos, and features of the same tower in float32) also: the cosine between the two towers' features,
accuracy after a fit on each, over the same draws, and what changes in int8 if one pixel value of 10,000 does.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from statistics import mean

import numpy as np
from PIL import Image

from prolip import Fitted, Head, Task, methods
from prolip.core.arrays import Array, softmax, unit_rows
from prolip.encoders.onnx import Tower
from prolip.encoders.preprocess import Preprocess
from prolip.io.onnx_graph import OnnxModel

SETS = ("dtd10", "clothing10", "pets37")
SHOTS = (1, 4, 16)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("graph", type=Path)
    parser.add_argument("--data", type=Path, help="a folder with images/ and features/")
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--images", type=int, help="of each class at most; all by default")
    parser.add_argument("--method", default="prolip")
    options = parser.parse_args()
    tower = Tower(OnnxModel(options.graph), "int8")
    preprocess = Preprocess.from_processor({}, "clip", str(options.graph))

    def encode(pixels: Array) -> Array:
        return tower({tower.inputs[0]: preprocess.normalise_arrays(pixels)})

    pixels = np.random.default_rng(0).integers(0, 256, (16, 224, 224, 3), np.uint8)
    own = tower({tower.inputs[0]: preprocess.normalise_arrays(pixels)}, ("image_embeds",))
    head, reason = tower.check({tower.inputs[0]: preprocess.normalise_arrays(pixels[:2])})
    if reason is not None:
        sys.stderr.write(f"the graph was not cut: {reason}\n")
        return 1
    cosine = (unit_rows(head(encode(pixels))) * unit_rows(own)).sum(axis=1).min()
    print(f"projection {list(head.weight.shape)}; features @ W to the graph's output: cosine {cosine:.5f}")
    started = time.perf_counter()
    encode(pixels)
    print(f"{len(pixels) / (time.perf_counter() - started):.1f} images a second")
    if options.data is not None and (options.data / "images").is_dir():
        rows = [compare(options, name, encode, preprocess) for name in SETS]
        print("mean of the sets   " + summary([mean(column) for column in zip(*rows, strict=True)]))
    return 0


def compare(options: argparse.Namespace, name: str, encode, preprocess: Preprocess) -> list[float]:
    """Print the accuracy on the features of both towers, for 1, 4 and 16 images a class."""
    known = np.load(options.data / "features" / f"{name}_clip_vit_b_16.npz")
    classes, named = known["classes"].tolist(), known["text_classes"].tolist()  # labels that have a text
    files, labels, parts = [], [], []
    for part in ("train", "test"):
        for label, folder in enumerate(sorted((options.data / "images" / name / part).iterdir())):
            assert folder.name == classes[label], (folder.name, classes[label])
            for file in sorted(folder.iterdir()):
                files.append(file)
                labels.append(label)
                parts.append(part == "test")
    if labels != known["labels"].tolist() or list(map(int, parts)) != known["part"].tolist():
        raise SystemExit(f"{name}: the images are in another order than the features")
    chosen = [i for i, label in enumerate(labels) if label in named]
    y = np.array([named.index(labels[i]) for i in chosen])
    if options.images:
        kept = np.concatenate([np.flatnonzero(y == k)[: options.images] for k in range(len(named))])
        chosen, y = [chosen[i] for i in kept], y[kept]
    pixels = (preprocess.centre(Image.open(files[i]).convert("RGB")) for i in chosen)
    float32 = known["x"][chosen].astype(np.float32)
    int8 = np.concatenate([encode(one[None]) for one in pixels])
    cosine = (unit_rows(int8) * unit_rows(float32)).sum(axis=1)
    print(
        f"{name}: {len(y)} images, features to float32: cosine {cosine.mean():.4f}, least {cosine.min():.4f}"
    )
    shaken = []
    rng = np.random.default_rng(0)
    for one in (preprocess.centre(Image.open(files[i]).convert("RGB")) for i in chosen):
        places = rng.random(one.shape) < 1e-4
        shaken.append(encode(np.where(places & (one < 255), one + 1, one).astype(np.uint8)[None]))
    stability(options.method, [int8, np.concatenate(shaken)], y, known)
    found = []
    for shots in SHOTS:
        pairs = [
            [accuracy(options.method, x, y, known, shots, draw) for x in (int8, float32)]
            for draw in range(options.draws)
        ]
        found += [mean(column) for column in zip(*pairs, strict=True)]
    print(f"{'':18} " + summary(found))
    return found


def fit(method: str, x: Array, y: Array, known, shots: int, draw: int) -> tuple[Fitted, Array]:
    """Return a fitted method, and the images that a draw left."""
    rng = np.random.default_rng(draw)
    places = [rng.permutation(np.flatnonzero(y == k)) for k in range(int(y.max()) + 1)]
    support = np.concatenate([each[:shots] for each in places])
    rest = np.concatenate([each[shots:] for each in places])
    task = Task(x[support], y[support], known["text"].astype(np.float32), Head(known["weight"]), 100.0)
    return methods.create(method).fit(task), rest


def accuracy(method: str, x: Array, y: Array, known, shots: int, draw: int) -> float:
    """Return the accuracy in percent on what a draw left."""
    fitted, rest = fit(method, x, y, known, shots, draw)
    return 100 * float(np.mean(fitted.logits(x[rest]).argmax(axis=1) == y[rest]))


def stability(method: str, pair: list[Array], y: Array, known) -> None:
    """Print how much the predictions for the same images differ between two sets of features."""
    fitted, rest = fit(method, pair[0], y, known, 8, 0)
    before, after = (softmax(fitted.logits(x[rest])) for x in pair)
    same = np.mean(before.argmax(axis=1) == after.argmax(axis=1))
    difference = np.abs(before - after).max(axis=1)
    print(
        f"{'':18} one pixel value of 10,000 changed: {100 * same:.1f} % have the same class, probabilities "
        f"differ by {difference.mean():.3f}, at most {difference.max():.2f}"
    )


def summary(found: list[float]) -> str:
    """Return int8 / float32 for every number of shots."""
    pairs = zip(found[::2], found[1::2], strict=True)
    return "   ".join(f"{n} per class {a:.1f} / {b:.1f}" for n, (a, b) in zip(SHOTS, pairs, strict=True))


if __name__ == "__main__":
    sys.exit(main())
