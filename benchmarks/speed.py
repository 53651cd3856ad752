"""What people wait for beside the fit: images a second, start-up, large folders, memory, a cluster.

    python benchmarks/speed.py [--data ../shared/data] [--only photos large accuracy again many memory threads
    busy ray]

Each line prints what was asked beside what was seen. `photos`: pets37/train through the offline encoder;
beside it decoding alone, on all cores, and the bare tower. `large`: the same for 12-megapixel JPEGs, photos
enlarged, as they are and roughened with noise. `accuracy`: 16 shots, the quick ways against the exact ones;
on the test parts once, or with --folds inside the training parts. `again`: a second fit on 1,632 images,
until the solver starts. `many`: 100,000 small images. `memory`: huge pictures. `threads`: eight of them on
one classifier. `busy`: fit and predict beside four processes that never rest, against the share of the
machine that is then theirs. `ray`: two workers against one, each on one thread.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import Image

from light import pictures, report, run
from prolip import FewShotClassifier, Task, methods
from prolip.core.arrays import Array
from prolip.data import as_templates, read_images
from prolip.data.templates import TEMPLATES
from prolip.encoders import Encoder, load
from prolip.evaluate.metrics import accuracy
from prolip.features import FeatureStore, extract
from prolip.features.images import ImageContent
from prolip.io.environment import cores

PROLIP = [sys.executable, "-c", "from prolip.cli import main; main()"]
SETS = ("pets37", "dtd10", "clothing10")


def rate(count: int, work: Callable[[], object], repeats: int = 2) -> float:
    """Images a second, the best of a few runs."""
    best = float("inf")
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - began)
    return count / best


def throughput(what: str, encoder: Encoder, paths: list[Path], asked: int) -> None:
    """Our own figure, and the two limits beside it."""
    extract(encoder, paths[:64])  # loads what is loaded once
    began = time.process_time()
    ours = rate(len(paths), lambda: extract(encoder, paths))
    each = (time.process_time() - began) / 2 / len(paths) * 1000

    def decode(path: Path) -> Array:
        with ImageContent.open(path, str(path)).pixels(encoder.preprocess.shrink) as (image, _):
            return encoder.preprocess.centre(image)

    def decode_all() -> None:
        with ThreadPoolExecutor(cores()) as pool:
            list(pool.map(decode, paths))

    decoding = rate(len(paths), decode_all)
    some = np.stack([decode(path) for path in paths[:64]])
    tower = rate(512, lambda: [encoder.encode(some) for _ in range(512 // len(some))])
    both = 1 / (1 / decoding + 1 / tower)
    limits = f"decoding {decoding:.0f}, tower {tower:.0f}, together {both:.0f}"
    seen = f"{ours:.0f} a second, {each:.1f} ms of a core each ({limits})"
    report(what, seen, f"{asked} a second", ours >= asked)


def show_photos(data: Path, folder: Path) -> None:
    paths = list(read_images(data / "images" / "pets37", split="train").images)
    throughput("pets37/train", load("offline"), paths, 250)
    throughput("pets37/train, offline:exact", load("offline:exact"), paths, 0)


def show_large(data: Path, folder: Path) -> None:
    sources = sorted((data / "images" / "pets37" / "train").rglob("*.jpg"))[::12][:48]
    rng, encoder = np.random.default_rng(0), load("offline")
    for noise in (0, 3):
        paths = [folder / f"large-{noise}-{i}.jpg" for i in range(len(sources))]
        for path, source in zip(paths, sources, strict=True):
            photo = Image.open(source).convert("RGB").resize((4000, 3000), Image.Resampling.BICUBIC)
            grain = rng.normal(0, noise, (3000, 4000, 1)).astype(np.float32)
            rough = (np.asarray(photo) + grain).clip(0, 255).astype(np.uint8)
            Image.fromarray(rough).save(path, quality=90)
        size = statistics.mean(path.stat().st_size for path in paths) / 1e6
        throughput(f"12-megapixel JPEGs, {size:.1f} MB each", encoder, paths, 60)
        exact = rate(len(paths), lambda paths=paths: extract(encoder, paths, exact_decode=True), 1)
        report("  the same, exact_decode", f"{exact:.0f} a second", "-", True)


def task(encoder: Encoder, data: Path, name: str, exact: bool) -> tuple[Task, Array, Array]:
    """All training photos, and the features and labels of the test photos."""
    x, y = {}, {}
    for split in ("train", "test"):
        images = read_images(data / "images" / name, split=split)
        x[split] = extract(encoder, images.images, store=FeatureStore(), exact_decode=exact).features[0]
        y[split] = np.array(images.labels)
    text = encoder.text(images.names, as_templates(TEMPLATES.get(name)))
    return Task(x["train"], y["train"], text, encoder.head, encoder.scale), x["test"], y["test"]


def in_folds(task: Task) -> float:
    """Accuracy inside a task: four draws of four folds."""
    seen = []
    for seed in range(4):
        fold = np.empty(len(task.y), int)
        for k in range(task.classes):
            places = np.flatnonzero(task.y == k)
            fold[np.random.default_rng(seed).permutation(places)] = np.arange(len(places)) % 4
        for i in range(4):
            fitted = methods.create("prolip", lam="auto").fit(task.subset(np.flatnonzero(fold != i)))
            seen.append(accuracy(fitted.logits(task.x[fold == i]), task.y[fold == i]))
    return statistics.mean(seen)


def show_accuracy(data: Path, folder: Path, folds: bool = False) -> None:
    lost = []
    for name in SETS:
        found = {}
        for exact in (False, True):
            there, x, y = task(load("offline:exact" if exact else "offline"), data, name, exact)
            fitted = methods.create("prolip", lam="auto").fit(there)
            found[exact] = 100 * (in_folds(there) if folds else accuracy(fitted.logits(x), y))
        lost.append(found[True] - found[False])
        report(f"{name}, quick", f"{found[False]:.1f} % (exact {found[True]:.1f} %)", "-", True)
    mean = statistics.mean(lost)
    report("accuracy lost by the quick ways, mean", f"{mean:.2f} points", "0.3", mean <= 0.3)


def show_again(data: Path, folder: Path) -> None:
    root = pictures(folder)
    time.sleep(3)  # files that changed a moment ago are read again
    run(*PROLIP, "fit", root, "-o", folder / "first")
    program = (
        "import sys; from prolip import FewShotClassifier, methods\n"
        "def stop(*_, **__): sys.exit()\n"
        "kind = type(methods.create('prolip')); kind.fit = kind.fit_held_out = stop\n"
        "FewShotClassifier().fit(sys.argv[1])"
    )
    times = []
    for _ in range(5):
        times.append(run(sys.executable, "-c", program, root))
    seen = statistics.median(times)
    report("second fit, 1,632 images: until the solver", f"{seen:.2f} s", "0.5 s", seen <= 0.5)
    model, picture = folder / "first", next(root.rglob("*.png"))
    times = [run(*PROLIP, "predict", model, picture) for _ in range(5)]
    report("prolip predict MODEL one.png", f"{statistics.median(times):.2f} s", "0.7 s", min(times) <= 0.7)


def peak(*command: object) -> tuple[float, float]:
    """Seconds and megabytes of a command, as Linux tells while it runs."""
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
        FewShotClassifier(lam=0.1, store=False).fit(images, ["a", "b"] * 4).save(model)
    return model


def show_many(data: Path, folder: Path, count: int = 100_000, contents: int = 1000) -> None:
    """Many files of few contents: encoding them is not what is measured."""
    root, rng = folder / "many files", np.random.default_rng(0)
    for i in range(contents):
        first = root / "0" / f"{i}.bmp"
        first.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(first)
        for copy in range(1, count // contents):
            (root / str(copy)).mkdir(exist_ok=True)
            shutil.copyfile(first, root / str(copy) / f"{i}.bmp")
    model, out = small_model(folder), folder / "answers.csv"
    seconds, memory = peak(*PROLIP, "predict", model, root, "--out", out)
    report(f"{count:,} small images, first run", f"{seconds:.0f} s, {memory:.0f} MB", "-", True)
    seconds, memory = peak(*PROLIP, "predict", model, root, "--out", out)
    met = seconds <= 10 and memory <= 300
    report("  again, nothing to do", f"{seconds:.1f} s, {memory:.0f} MB", "10 s, 300 MB", met)
    seconds, memory = peak(*PROLIP, "predict", model, root, "--out", folder / "other.csv")
    report("  again, features known", f"{seconds:.1f} s, {memory:.0f} MB", "-", True)


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
        what = f"predict, six pictures of 13,300 x 13,300, {mode}"
        report(what, f"{memory:.0f} MB, {seconds:.0f} s", "1500 MB", memory < 1500)


def show_threads(data: Path, folder: Path) -> None:
    model, root = small_model(folder), data / "images" / "pets37" / "train"
    program = (
        "import sys, threading; from prolip import FewShotClassifier; from prolip.data import list_images\n"
        "clf = FewShotClassifier.load(sys.argv[1], store=False); paths = list_images(sys.argv[2])[:200]\n"
        "def work(): clf.predict(paths)\n"
        "threads = [threading.Thread(target=work) for _ in range(int(sys.argv[3]))]\n"
        "[t.start() for t in threads]; [t.join() for t in threads]"
    )
    used = {n: peak(sys.executable, "-c", program, model, root, n)[1] for n in (1, 8)}
    ratio = used[8] / used[1]
    report(
        "memory of 8 threads over one's",
        f"{ratio:.2f} ({used[1]:.0f}, {used[8]:.0f} MB)",
        "1.5",
        ratio <= 1.5,
    )


@contextmanager
def busy(count: int = 4) -> Iterator[None]:
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def show_busy(data: Path, folder: Path) -> None:
    """A fair share beside four: with t threads of ours at work on c cores, a part t / (4 + t) of them."""
    photos = data / "images" / "pets37"
    commands = {
        "fit": [*PROLIP, "fit", photos, "-o", folder / "fitted", "--no-store", "--force"],
        "predict": [*PROLIP, "predict", folder / "fitted", photos / "test", "--no-store"],
    }
    for name, command in commands.items():
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        alone = run(*command)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        with busy():
            beside = run(*command)
        threads = max(1.0, used / alone)  # cores that we kept at work
        fair = alone * threads / (cores() * threads / (4 + threads))
        ratio = beside / max(fair, alone)
        seen = f"{ratio:.2f} ({alone:.1f} s alone, {beside:.1f} s, fair {fair:.1f} s)"
        report(f"{name} beside four busy processes, over its share", seen, "1.5", ratio <= 1.5)


def show_ray(data: Path, folder: Path) -> None:
    try:
        import ray
    except ImportError:
        print("      ray: not installed")
        return
    from prolip.features.ray_extract import extract_on_ray

    paths = list((data / "images").rglob("*.jpg"))
    ray.init(address="local", num_cpus=3, include_dashboard=False, log_to_driver=False)
    seconds = {}
    for workers in (1, 2, 1, 2):
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as store:
            extract_on_ray("offline", paths, FeatureStore(store), workers=workers)
        seconds[workers] = min(seconds.get(workers, 1e9), time.perf_counter() - began)
    ray.shutdown()
    ratio = seconds[1] / seconds[2]
    seen = f"{ratio:.2f} ({len(paths)} images: {seconds[1]:.1f} s, {seconds[2]:.1f} s)"
    report("Ray: two workers over one", seen, "1.6", ratio >= 1.6)


PARTS = {
    "photos": show_photos, "large": show_large, "accuracy": show_accuracy, "again": show_again,
    "many": show_many, "memory": show_memory, "threads": show_threads, "busy": show_busy, "ray": show_ray,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--folds", action="store_true", help="accuracy inside the training parts")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        os.environ["PROLIP_CACHE"] = str(Path(name) / "cache")
        for part in arguments.only:
            more = [True] if part == "accuracy" and arguments.folds else []
            PARTS[part](arguments.data, Path(name), *more)


if __name__ == "__main__":
    main()
