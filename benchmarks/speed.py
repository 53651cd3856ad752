"""What users wait for, each beside a limit or a peer in the same run.

    python benchmarks/speed.py [--data data] [--only photos large start again many memory ray report fits]

`photos`: pets37/train through the offline encoder, beside decoding alone on all cores and the bare tower.
`large`: 12-megapixel JPEGs, photos enlarged with noise, beside decoding them in full. `start`: `--help` and
one prediction beside Python and its libraries alone. `again`: a fit of 1,632 images whose features are
stored, beside its solver. `many`: 100,000 small images, beside listing them. `memory`: huge images, beside
the pixels of one. `ray`: two workers beside one. `report`: a page about birds60, beside `prolip eval`.
`fits`: a sweep of fits beside the same fits in a loop.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

import numpy as np
from PIL import Image

from prolip import FewShotClassifier, methods
from prolip.core.arrays import Array, softmax
from prolip.data import read_images
from prolip.encoders import Encoder, load
from prolip.features import FeatureStore, extract, load_image
from prolip.io.environment import cores
from tasks import few_shot, photos

PROLIP = [sys.executable, "-m", "prolip"]
SETS = ("pets37", "dtd10", "clothing10")


def show(what: str, measured: str, beside: str = "") -> None:
    print(f"{what:<58} {measured}" + (f"   beside: {beside}" if beside else ""), flush=True)


def run(*command: object, cwd: Path | None = None) -> tuple[float, str]:
    """Seconds and output of a command."""
    own = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}  # as where it is installed: compiled once
    began = time.perf_counter()
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True, env=own)
    seconds = time.perf_counter() - began
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
    return seconds, done.stdout


def median_seconds(*command: object, repeats: int = 5) -> float:
    return statistics.median(run(*command)[0] for _ in range(repeats))


def small_images(folder: Path, classes: int = 102, each: int = 16) -> Path:
    """Make a folder per class of small random images, alike within a class."""
    root, rng = folder / "many", np.random.default_rng(0)
    for k in range(classes):
        base = rng.integers(0, 256, (6, 6, 3))
        (root / f"class {k:03}").mkdir(parents=True)
        for i in range(each):
            pixels = (base + rng.normal(0, 60, base.shape)).clip(0, 255).astype(np.uint8)
            Image.fromarray(pixels).resize((64, 64)).save(root / f"class {k:03}" / f"{i}.png")
    return root


def rate(count: int, work: Callable[[], object], repeats: int = 2) -> float:
    """Images a second, the best of a few runs."""
    best = float("inf")
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - began)
    return count / best


def throughput(what: str, encoder: Encoder, paths: list[Path]) -> None:
    """Images a second, and the two limits."""
    extract(encoder, paths[:64])  # loads what is loaded once
    began = time.process_time()
    ours = rate(len(paths), lambda: extract(encoder, paths))
    each = (time.process_time() - began) / 2 / len(paths) * 1000

    def decode(path: Path) -> Array:
        return encoder.preprocess.centre(load_image(path, near=encoder.preprocess.sufficient_side))

    def decode_all() -> None:
        with ThreadPoolExecutor(cores()) as pool:
            list(pool.map(decode, paths))

    decoding = rate(len(paths), decode_all)
    some = np.stack([decode(path) for path in paths[:64]])
    tower = rate(512, lambda: [encoder.encode(some) for _ in range(512 // len(some))])
    both = 1 / (1 / decoding + 1 / tower)
    limits = f"decoding {decoding:.0f}, tower {tower:.0f}, one after the other {both:.0f}"
    show(what, f"{ours:.0f} a second, {each:.1f} ms of a core each ({ours / both:.2f})", limits)


def show_photos(data: Path, folder: Path) -> None:
    paths = list(read_images(data / "images" / "pets37", split="train").images)
    throughput("pets37/train", load("offline"), paths)


def show_large(data: Path, folder: Path, count: int = 200) -> None:
    """Enlarged photos with noise, decoded as `extract` does and in full: images a second, and agreement."""
    sources = sorted((data / "images" / "pets37" / "test").rglob("*.jpg"))
    rng = np.random.default_rng(0)
    paths = []
    for i, number in enumerate(rng.permutation(len(sources))[:count]):
        photo = Image.open(sources[number]).convert("RGB")
        scale = (12e6 / (photo.width * photo.height)) ** 0.5 / 16
        photo = photo.resize([round(side * scale) * 16 for side in photo.size], Image.Resampling.LANCZOS)
        grain = rng.normal(0, 6, (photo.height, photo.width, 1)).astype(np.float32)
        paths.append(folder / f"large-{i}.jpg")
        Image.fromarray((np.asarray(photo) + grain).clip(0, 255).astype(np.uint8)).save(paths[-1], quality=90)
    encoder, clf = load("offline"), FewShotClassifier("offline", store=False)
    clf.fit(data / "images" / "pets37" / "train")

    def full(path: Path) -> Array:
        image, pre = load_image(path), encoder.preprocess
        scale = (pre.resize_to or pre.size) / min(image.size)
        small = image.resize([int(side * scale + 1e-9) for side in image.size], Image.Resampling.BICUBIC)
        left, top = (round((side - pre.size) / 2) for side in small.size)
        return np.asarray(small.crop((left, top, left + pre.size, top + pre.size)))

    def encode_full() -> Array:
        with ThreadPoolExecutor(cores()) as pool:
            pixels = pool.map(full, paths)
            return np.concatenate([encoder.encode(np.stack(batch)) for batch in batched(pixels, 32)])

    rates, features = {}, {}
    for name, work in {"ours": lambda: extract(encoder, paths).features[0], "full": encode_full}.items():
        began, used = time.perf_counter(), time.process_time()
        features[name] = work()
        seconds = time.perf_counter() - began
        rates[name] = len(paths) / seconds, (time.process_time() - used) / len(paths) * 1000
    ours, whole = (softmax(clf.model_.logits(features[name])) for name in ("ours", "full"))
    same = int((ours.argmax(1) == whole.argmax(1)).sum())
    difference = np.abs(ours - whole).max(axis=1)
    size = statistics.mean(path.stat().st_size for path in paths) / 1e6
    show(
        f"{count} JPEGs of 12 megapixels, {size:.1f} MB each",
        "{:.1f} a second, {:.0f} ms of a core each".format(*rates["ours"]),
        "decoded in full {:.1f} a second, {:.0f} ms".format(*rates["full"]),
    )
    agreement = (
        f"{same} of {count} answers, largest {difference.max():.4f}, median {np.median(difference):.4f}"
    )
    show("  the same answers, difference of probabilities", agreement)


def batched(values: Iterator[Array], size: int) -> Iterator[list[Array]]:
    while batch := list(islice(values, size)):
        yield batch


def show_start(data: Path, folder: Path) -> None:
    bare = median_seconds(sys.executable, "-c", "pass")
    seconds = median_seconds(*PROLIP, "--help")
    show("prolip --help", f"{seconds:.2f} s ({seconds / bare:.1f})", f"python -c pass {bare:.2f} s")
    model, photo = small_model(folder), next((data / "images" / "pets37" / "test").rglob("*.jpg"))
    libraries = "import numpy, onnxruntime, PIL.Image, click"
    bare = median_seconds(sys.executable, "-c", libraries)
    seconds = median_seconds(*PROLIP, "predict", model, photo)
    show(
        "prolip predict MODEL one.jpg", f"{seconds:.2f} s ({seconds / bare:.1f})", f"{libraries} {bare:.2f} s"
    )


def show_again(data: Path, folder: Path) -> None:
    root = small_images(folder)
    time.sleep(3)  # files that changed a moment ago are read again
    run(*PROLIP, "fit", root, "-o", folder / "first")
    found = [run(*PROLIP, "fit", root, "-o", folder / f"again-{i}", "--json") for i in range(5)]
    seconds = statistics.median(whole for whole, _ in found)
    solver = statistics.median(json.loads(output)["seconds"] for _, output in found)
    show("prolip fit, 1,632 stored images of 102 classes", f"{seconds:.2f} s", f"its solver {solver:.2f} s")


def peak(*command: object) -> tuple[float, float]:
    """Seconds and peak megabytes of a command; Linux only."""
    began, most = time.perf_counter(), 0
    with subprocess.Popen([str(part) for part in command], stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            status = Path(f"/proc/{process.pid}/status").read_text()
            found = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")]
            most = max([most, *map(int, found)])
            time.sleep(0.01)
    if process.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed")
    return time.perf_counter() - began, most / 1000


def small_model(folder: Path) -> Path:
    model = folder / "small"
    if not model.exists():
        rng = np.random.default_rng(0)
        images = [Image.fromarray(rng.integers(0, 256, (64, 64, 3), dtype=np.uint8)) for _ in range(8)]
        FewShotClassifier(options={"lam": 0.1}, store=False).fit(images, ["a", "b"] * 4).save(model)
    return model


def show_many(data: Path, folder: Path, count: int = 100_000, contents: int = 1000) -> None:
    """Many files with few different contents, so that encoding takes no time."""
    root, rng = folder / "many files", np.random.default_rng(0)
    for i in range(contents):
        first = root / "0" / f"{i}.bmp"
        first.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(first)
        for copy in range(1, count // contents):
            (root / str(copy)).mkdir(exist_ok=True)
            shutil.copyfile(first, root / str(copy) / f"{i}.bmp")
    model, out = small_model(folder), folder / "rows.csv"
    began = time.perf_counter()
    listed = sum(path.stat().st_size > 0 for path in root.rglob("*.bmp"))
    listing = f"listing {listed:,} files {time.perf_counter() - began:.1f} s"
    for what, target in (
        ("first run", out),
        ("nothing to do", out),
        ("features known", folder / "other.csv"),
    ):
        seconds, memory = peak(*PROLIP, "predict", model, root, "--out", target)
        show(f"predict, {count:,} small images, {what}", f"{seconds:.1f} s, {memory:.0f} MB", listing)


def show_memory(data: Path, folder: Path) -> None:
    model = small_model(folder)
    for mode in ("I;16", "RGBA"):
        root = folder / f"huge {mode[:1]}"
        root.mkdir()
        Image.new(mode, (13_300, 13_300), 1).save(root / "0.png", compress_level=1)
        for i in range(1, 6):
            shutil.copy(root / "0.png", root / f"{i}.png")
            with (root / f"{i}.png").open("ab") as file:
                file.write(bytes([i]))  # another content
        seconds, memory = peak(*PROLIP, "predict", model, root, "--no-store")
        pixels = f"pixels of one {13_300**2 * (2 if mode == 'I;16' else 4) / 1e6:.0f} MB"
        show(f"predict, six images of 13,300 x 13,300, {mode}", f"{memory:.0f} MB, {seconds:.0f} s", pixels)


def show_ray(data: Path, folder: Path) -> None:
    try:
        import ray
    except ImportError:
        print("      ray: not installed")
        return
    from prolip.encoders import load
    from prolip.features.pool_extract import store_features
    from prolip.io.pool import open_pool

    encoder, paths = load("offline"), list((data / "images").rglob("*.jpg"))
    ray.init(address="local", num_cpus=3, include_dashboard=False, log_to_driver=False)
    seconds = {}
    for workers in (1, 2, 1, 2):
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as store, open_pool(workers, "local") as pool:
            store_features(pool, encoder, paths, FeatureStore(store))
        seconds[workers] = min(seconds.get(workers, 1e9), time.perf_counter() - began)
    ray.shutdown()
    measured = f"{seconds[2]:.1f} s ({seconds[1] / seconds[2]:.2f} times as fast)"
    show(f"Ray, two workers, {len(paths)} images", measured, f"one worker {seconds[1]:.1f} s")


def show_report(data: Path, folder: Path) -> None:
    root, model = data / "images" / "birds60", folder / "birds"
    run(*PROLIP, "fit", root, "-o", model)
    predictions, _ = run(*PROLIP, "eval", model, root)  # encodes the test images
    predictions, _ = run(*PROLIP, "eval", model, root)
    seconds, _ = run(*PROLIP, "report", model, root, "-o", folder / "report.html")
    size = (folder / "report.html").stat().st_size / 1e6
    show("report about birds60", f"{seconds:.1f} s, {size:.1f} MB", f"prolip eval {predictions:.1f} s")


def show_fits(data: Path, folder: Path, seeds: int = 100) -> None:
    """Fits of 10 classes x 16 images by `bench run`, and in a plain loop on one core."""
    command = [*PROLIP, "bench", "run", "validation_free", "--data", data / "images", "--datasets", "dtd10"]
    command += ["--line", "prolip", "--shots", "16", "--views", "1", "--results", folder / "fits.sqlite"]
    run(*command, "--seeds", "1")  # encodes the images
    seconds, _ = run(*command, "--seeds", f"2-{seeds + 1}")
    task = photos(data, "dtd10")[0].subset(few_shot(photos(data, "dtd10")[0].y, 16, 1))
    looped = rate(50, lambda: [methods.create("prolip", lam="1/N").fit(task) for _ in range(50)])
    measured = f"{60 * seeds / seconds:.0f} a minute, start-up included"
    show(f"bench run, {seeds} fits on {cores()} cores", measured, f"a loop {60 * looped:.0f}")


PARTS = {
    "photos": show_photos, "large": show_large, "start": show_start, "again": show_again, "many": show_many,
    "memory": show_memory, "ray": show_ray, "report": show_report, "fits": show_fits,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        os.environ["PROLIP_CACHE"] = str(Path(name) / "cache")
        for part in arguments.only:
            PARTS[part](arguments.data, Path(name))


if __name__ == "__main__":
    main()
