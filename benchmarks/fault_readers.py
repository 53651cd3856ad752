"""Fuzzing: damaged and crafted files, for every reader, from a seed.

A file is mutated as bytes, or taken apart and put together again with valid checksums and one thing in it
that does not belong. A reader may refuse it with our error, or read it; where there is a checksum, what it
reads must be what was written.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
import signal
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from fault_kills import Tally
from fault_process import PATIENCE
from prolip.api import FewShotClassifier, keep
from prolip.api.answer_file import AnswerFile
from prolip.core import ProlipError
from prolip.core.reading import read_json, read_tensors
from prolip.core.writing import as_safetensors, write_tensors
from prolip.export.card import model_card

TOKENS = (
    b"NaN", b"1e400", b"-1", b"null", b"true", b"[" * 100_000, b"9" * 5000, b'"', b"{}", b"\xff\xfe", b"\n",
    b"\r",     b"\0" * 8, b"\xff" * 8, b"\\ud800", b",", b"<f8", b"|O", b"(1, 99999999999)", b"0" * 64,
)  # fmt: skip
ODD: tuple[Any, ...] = (
    None, True, -1, 0, 3, 10**9, 10**30, 1e308, math.inf, math.nan, "", "x" * 2000, "\ud800", "../..", [], {},
    [None], [[1]], {"a": 1}, "hf:/etc", "os:system",
)  # fmt: skip
METHODS = ("prolip", "rla", "zero_shot", "linear_probe", "tip_adapter", "gda", "task_res", "prolip+rla")
Read = Callable[[Path], Any]


def damage(content: bytes, generator: random.Random) -> bytes:
    """The content with one to four things done to it."""
    data = bytearray(content)
    for _ in range(generator.choice((1, 1, 1, 2, 4))):
        place = generator.randrange(len(data) + 1)
        match generator.randrange(6):
            case 0:
                data[place : place + 1] = bytes([generator.randrange(256)])
            case 1:
                data = data[:place]
            case 2:
                data[place:place] = generator.choice(TOKENS)
            case 3:
                data[place : place + generator.randrange(1, 64)] = b""
            case 4:
                data[place:place] = data[place // 2 : place // 2 + generator.randrange(1, 256)]
            case 5 if data:
                data[place % len(data)] ^= 1 << generator.randrange(8)
    return bytes(data)


def distort(value: Any, generator: random.Random) -> Any:
    """JSON with one thing in it replaced, gone or added."""
    if isinstance(value, dict) and value and generator.random() < 0.85:
        key = generator.choice(list(value))
        match generator.randrange(6):
            case 0:
                return {name: own for name, own in value.items() if name != key}
            case 1:
                return {**value, generator.choice(("extra", "", "format")): generator.choice(ODD)}
            case _:
                return {**value, key: distort(value[key], generator)}
    if isinstance(value, list) and value and generator.random() < 0.7:
        place = generator.randrange(len(value))
        return [
            *value[:place],
            *generator.choice(([], [distort(value[place], generator)], value)),
            *value[place + 1 :],
        ]
    return generator.choice(ODD)


def twist(tensors: dict[str, np.ndarray], generator: random.Random) -> dict[str, np.ndarray]:
    """Tensors with one of them of another kind, shape or content, gone, or one too many."""
    name = generator.choice(list(tensors))
    array = np.array(tensors[name])
    match generator.randrange(10):
        case 0:
            return {own: x for own, x in tensors.items() if own != name}
        case 1:
            return {
                **tensors,
                generator.choice(("extra", "adapter", "head.weight", "outsiders.means")): array,
            }
        case 2:
            kinds = (np.float16, np.float64, np.int8, np.int64, np.uint8, np.bool_)
            with np.errstate(all="ignore"):
                array = array.astype(generator.choice(kinds))
        case 3:
            array = array[:-1] if array.ndim else array[None]
        case 4:
            array = array.T.copy() if array.ndim > 1 else array[None]
        case 5:
            array = array[..., None]
        case 6:
            array = np.concatenate([array, array]) if array.ndim else array
        case 7:
            array = np.zeros((0, *array.shape[1:]), array.dtype)
        case 8:
            array = np.zeros_like(array)
        case _:
            wild = generator.choice((np.nan, np.inf, 1e38, -1e38, 255, -1))
            with np.errstate(all="ignore"):
                array.reshape(-1)[generator.randrange(max(1, array.size)) :][:1] = np.array(wild).astype(
                    array.dtype
                )
    return {**tensors, name: array}


@contextmanager
def _patience() -> Iterator[None]:
    def late(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def attempt(tally: Tally, read: Callable[[], Any], expected: Any = None) -> None:
    """One input: read, or refused; with `expected`, it may not be read as anything else."""
    tally.trials += 1
    try:
        with _patience(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = read()
    except ProlipError:
        tally.refused += 1
        return
    except TimeoutError:
        tally.add("hang", "over 20 s")
        return
    except Exception:
        tally.add("traceback", traceback.format_exc()[-1500:])
        return
    if expected is not None and found != expected:
        tally.add("silent change", f"{found!r:.200} instead of {expected!r:.200}")


def fuzz_bytes(
    name: str, file: Path, read: Read, count: int, generator: random.Random, checked: bool = False
) -> Tally:
    """Damage a file as bytes."""
    tally, content = Tally(f"fuzz: {name}"), file.read_bytes()
    expected = read(file) if checked else None
    for _ in range(count):
        file.write_bytes(damage(content, generator))
        attempt(tally, lambda: read(file), expected)
    file.write_bytes(content)
    return tally


class Readers:
    """Whole files of every kind, and what reads them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        rng = np.random.default_rng(0)
        self.y = np.repeat(np.arange(3), 4)
        self.text = np.eye(3, 8, dtype=np.float32)
        self.x = (self.text[self.y] + 0.3 * rng.standard_normal((12, 8))).astype(np.float32)
        self.names = ["red", "green", "blue"]
        self.models = [self._fitted(name) for name in METHODS]

    def _fitted(self, method: str) -> FewShotClassifier:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            clf = FewShotClassifier("arrays", method, None)
            return clf.fit(self.x, self.y, text=self.text)

    def fuzz(self, count: int, seed: int) -> list[Tally]:
        """About `count` inputs over all readers; those that take longer get fewer."""
        generator = random.Random(seed)
        plain = [
            self.numpy_file, self.numpy_archive, self.label_table, self.class_list, self.json_file,
            self.tensor_file, self.answers_csv, self.answers_jsonl, self.embed_index,
        ]  # fmt: skip
        slow = [
            self.model_bytes, self.model_crafted, self.adapter_crafted, self.problem, self.cache, self.shards,
            self.results, self.rows_to_reproject,
        ]  # fmt: skip
        each = max(1, count // (2 * len(plain)))
        tallies = [fuzz(each, generator) for fuzz in plain]
        return tallies + [fuzz(max(1, count // (2 * len(slow))), generator) for fuzz in slow]

    # Files that the user brings

    def numpy_file(self, count: int, generator: random.Random) -> Tally:
        """Embeddings as an array."""
        from prolip.encoders.embeddings import read_embeddings

        np.save(self.folder / "x.npy", self.x)
        return fuzz_bytes(".npy", self.folder / "x.npy", read_embeddings, count, generator)

    def numpy_archive(self, count: int, generator: random.Random) -> Tally:
        """Embeddings with all that belongs to them."""
        from prolip.encoders.embeddings import read_embeddings

        path = self.folder / "x.npz"
        save = generator.choice((np.savez, np.savez_compressed))
        save(path, images=self.x, labels=self.y, text=self.text, classes=np.array(self.names))
        return fuzz_bytes(".npz", path, read_embeddings, count, generator)

    def label_table(self, count: int, generator: random.Random) -> Tally:
        """Labels as a column of a table."""
        from prolip.encoders.embeddings import read_embeddings

        path = self.folder / "labels.csv"
        path.write_text("file,label\n" + "".join(f"{k}.jpg,{self.names[k]}\n" for k in self.y))
        read = lambda file: read_embeddings(self.x, file, self.text, self.names)  # noqa: E731
        return fuzz_bytes(".csv of labels", path, read, count, generator)

    def class_list(self, count: int, generator: random.Random) -> Tally:
        """Class names, one on each line."""
        from prolip.encoders.embeddings import read_embeddings

        path = self.folder / "classes.txt"
        path.write_text("\n".join(self.names))
        read = lambda file: read_embeddings(self.x, self.y, self.text, file)  # noqa: E731
        return fuzz_bytes(".txt of classes", path, read, count, generator)

    def rows_to_reproject(self, count: int, generator: random.Random) -> Tally:
        """Features that are read a block at a time."""
        from prolip.core import Head
        from prolip.export.reproject import reproject

        np.save(self.folder / "rows.npy", self.x)
        read = lambda file: reproject(file, Head(np.eye(8)), self.folder / "z.npy")  # noqa: E731
        return fuzz_bytes("reproject .npy", self.folder / "rows.npy", read, count, generator)

    def json_file(self, count: int, generator: random.Random) -> Tally:
        """Any JSON."""
        path = self.folder / "a.json"
        path.write_text(json.dumps(keep.describe(self.models[0].model_)))
        return fuzz_bytes("JSON", path, read_json, count, generator)

    def tensor_file(self, count: int, generator: random.Random) -> Tally:
        """Any safetensors."""
        path = self.folder / "a.safetensors"
        write_tensors(path, {"x": self.x, "y": self.y})
        return fuzz_bytes("safetensors", path, read_tensors, count, generator)

    # Files of ours

    def answers_csv(self, count: int, generator: random.Random) -> Tally:
        """Answers that a run goes on with."""
        return self._answers("csv", count, generator)

    def answers_jsonl(self, count: int, generator: random.Random) -> Tally:
        """The same, as JSON lines."""
        return self._answers("jsonl", count, generator)

    def _answers(self, suffix: str, count: int, generator: random.Random) -> Tally:
        """A file is taken over or refused; refused, it stays as it is."""
        path = self.folder / f"answers.{suffix}"
        path.unlink(missing_ok=True)
        found = [
            {"image": f'{k}\n,".jpg', "class": "=red", "probability": 0.5, "top": [{}]} for k in range(5)
        ]
        with AnswerFile(path, 1, False, "r1").opened() as file:
            file.write(found)

        def read(path: Path) -> None:
            before = path.read_bytes()
            file = AnswerFile(path, 1, False, "r1")
            try:
                with file.opened():
                    file.write([one for one in found if one["image"] not in file.done])
            except ProlipError:
                if path.read_bytes() != before:
                    raise AssertionError("a file that was refused was changed") from None
                raise
            again = AnswerFile(path, 1, False, "r1")
            with again.opened():
                if not {one["image"] for one in found} <= again.done:
                    raise AssertionError("answers are lost")

        return fuzz_bytes(f"answers .{suffix}", path, read, count, generator)

    def embed_index(self, count: int, generator: random.Random) -> Tally:
        """What `prolip embed` lists."""
        from prolip.features.embed import read_index

        path = self.folder / "index-1-of-1.jsonl"
        entry = {"path": "a\n.jpg", "key": "ab" * 32, "size": 1, "mtime": 2, "listed": 3}
        path.write_text("".join(json.dumps({**entry, "listed": k}) + "\n" for k in range(3)))
        return fuzz_bytes("embed index", path, lambda file: list(read_index(file)), count, generator)

    def model_bytes(self, count: int, generator: random.Random) -> Tally:
        """Each file of a saved model as bytes: it answers as before, or is refused."""
        tally, path = Tally("fuzz: saved model, bytes"), self.folder / "model"
        self.models[0].save(path)
        expected = self._logits(path)
        files = {file: file.read_bytes() for file in sorted(path.iterdir())}
        for _ in range(count):
            file = generator.choice(list(files))
            file.write_bytes(damage(files[file], generator))
            attempt(tally, lambda: self._logits(path), expected)
            file.write_bytes(files[file])
        return tally

    def _logits(self, path: Path) -> str:
        model = FewShotClassifier.load(path).model_
        return hashlib.sha256(model.logits(self.x).tobytes()).hexdigest()

    def model_crafted(self, count: int, generator: random.Random) -> Tally:
        """A saved model with valid checksums and something in it that does not belong."""
        tally, path = Tally("fuzz: saved model, crafted"), self.folder / "crafted"
        path.mkdir(exist_ok=True)
        for _ in range(count):
            model = generator.choice(self.models).model_
            hashes = np.frombuffer(b"".join(model.support.hashes), np.uint8).reshape(-1, 32)
            tensors = {**model.fitted.tensors(), **model.confidence.tensors()}
            tensors |= {"text": model.text.rows, "support": hashes}
            support = {"features": model.support.task.x, "labels": model.support.task.y}
            config = keep.describe(model)
            match generator.randrange(3):
                case 0:
                    config = distort(config, generator)
                case 1:
                    tensors = twist(tensors, generator)
                case 2:
                    support = twist(support, generator)
            craft(path, config if isinstance(config, dict) else {}, tensors, support)
            attempt(tally, lambda: self._use(path))
        return tally

    def _use(self, path: Path) -> None:
        """All that is done with a model that loads, without fitting it again."""
        clf = FewShotClassifier.load(path)
        probabilities = clf.predict_proba(self.x)
        if probabilities.shape != (12, len(clf.classes_)) or not np.isfinite(probabilities).all():
            raise AssertionError(f"probabilities of shape {probabilities.shape}")
        if clf.confidence_.outsiders is not None:
            clf.predict(self.x, reject=True)
        model_card(keep.describe(clf.model_), {"prolip.json"}, "model").encode()
        keep.save(clf.model_, self.folder / "saved again", card=True)

    def adapter_crafted(self, count: int, generator: random.Random) -> Tally:
        """An adapter folder."""
        from prolip.export.adapter import read_adapter

        tally, path = Tally("fuzz: adapter"), self.folder / "adapter"
        path.mkdir(exist_ok=True)
        whole = {
            "adapter_type": "prolip", "format": 1, "base_model": "offline", "fingerprint": "f",
            "base_weights_sha256": None,
        }  # fmt: skip
        for _ in range(count):
            payload = as_safetensors({"scale": np.array(1.0, np.float32), "head.weight": self.x})
            if generator.random() < 0.5:
                payload = damage(payload, generator)
            config = distort({**whole, "sha256": hashlib.sha256(payload).hexdigest()}, generator)
            text = json.dumps(config).encode()
            (path / "prolip_adapter.safetensors").write_bytes(payload)
            broken = generator.random() < 0.3
            (path / "prolip_adapter.json").write_bytes(damage(text, generator) if broken else text)
            attempt(tally, lambda: read_adapter(path))
        return tally

    def cache(self, count: int, generator: random.Random) -> Tally:
        """A cached array is what was computed, whatever lies in the cache."""
        from prolip.core.files import cache_dir
        from prolip.encoders.cached_arrays import cached_arrays

        def read(_: Path) -> bytes:
            found, problem = cached_arrays("fuzzed", lambda: {"weight": self.x})
            if problem is not None:
                raise AssertionError(problem)
            return found["weight"].tobytes()

        read(self.folder)
        return fuzz_bytes("cached arrays", cache_dir() / "fuzzed.safetensors", read, count, generator, True)

    def problem(self, count: int, generator: random.Random) -> Tally:
        """A problem of bench that is whole is what was written."""
        from prolip.bench.running.problem_file import is_whole, read_problem, write_problem
        from prolip.core import Head, Text
        from prolip.evaluate.encoded_dataset import EncodedDataset, EncodedSplit

        split = EncodedSplit(self.y.tolist(), self.x[None], np.arange(12))
        texts = {"own": Text(self.text, tuple(self.names))}
        whole = EncodedDataset(
            "toy", tuple(self.names), Head(np.eye(8)), 10.0, texts, {"train": split, "test": split},
            model="offline", templates={"own": ("a {}.",)},
        )  # fmt: skip
        path = self.folder / "problem.safetensors"
        write_problem(whole, path)

        def read(file: Path) -> bytes:
            sound = is_whole(file)
            found = read_problem(str(file)).splits["train"].x.tobytes()
            return found if sound else self.x[None].tobytes()

        return fuzz_bytes("bench problem", path, read, count, generator, True)

    def shards(self, count: int, generator: random.Random) -> Tally:
        """A stored row is what was stored, or is gone."""
        from prolip.features.store import Space

        tally, path = Tally("fuzz: store shards"), self.folder / "space"
        keys = [bytes([k]) * 32 for k in range(12)]
        for _ in range(count):
            for file in path.glob("*"):
                file.unlink()
            Space(path, "d" * 64, 8, {}).add(keys, [0] * 12, self.x)
            (shard,) = path.glob("*.safetensors")
            shard.write_bytes(damage(shard.read_bytes(), generator))

            def read() -> bool:
                space = Space(path, "d" * 64, 8, {})
                rows = [space.get(key, 0) for key in keys]
                return all(row is None or np.array_equal(row, x) for row, x in zip(rows, self.x, strict=True))

            attempt(tally, read, True)
        return tally

    def results(self, count: int, generator: random.Random) -> Tally:
        """A file of results, used as a run and a table use it."""
        from prolip.bench.catalogue import experiment
        from prolip.bench.running.plan import Choices, Plan, PlannedUnit
        from prolip.bench.running.result_store import ResultStore
        from prolip.bench.running.unit import Unit
        from prolip.evaluate.protocols import Setting, Trial

        path = self.folder / "results.sqlite"
        path.unlink(missing_ok=True)
        units = [
            Unit("validation_free", "toy", "offline", Trial(Setting("zero_shot"), 1, k)) for k in range(9)
        ]
        planned = [PlannedUnit("zero_shot", "offline", unit) for unit in units]
        whole = Plan(experiment("validation_free"), Choices(), {}, tuple(planned))
        with ResultStore(path) as store:
            number = store.add_plan(whole, [f"key{k}" for k in range(9)])
            for k in range(5):
                store.finish(f"key{k}", {"accuracy": k / 10}, 0.1)

        def read(file: Path) -> None:
            for journal in file.parent.glob("results.sqlite-*"):
                journal.unlink()
            with ResultStore(file) as store:
                store.counts(number)
                store.last_plan("validation_free")
                store.timings()
                for key, _ in store.claim(number, 2):
                    store.finish(key, {"accuracy": 0.5}, 0.1)

        return fuzz_bytes("SQLite results", path, read, count, generator)


def craft(
    path: Path, config: dict[str, Any], tensors: dict[str, np.ndarray], support: dict[str, np.ndarray]
) -> None:
    """A saved model's folder around anything, with checksums that are right."""
    for file in path.iterdir():
        file.unlink()
    files = {}
    for kind, arrays in (("prolip", tensors), ("support", support)):
        payload = as_safetensors(arrays)
        digest = hashlib.sha256(payload).hexdigest()
        files[f"{kind}-{digest[:16]}.safetensors"] = digest
        (path / f"{kind}-{digest[:16]}.safetensors").write_bytes(payload)
    config = {"format": 2, **config, "files": files}
    checksum = hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()
    (path / "prolip.json").write_text(json.dumps({**config, "checksum": checksum}))
