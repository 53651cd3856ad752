"""Answers for many images: a chunk at a time, to a file that an interrupted run goes on with."""

from __future__ import annotations

import csv
import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from prolip.core import UsageError
from prolip.core.arrays import Array, softmax
from prolip.core.files import appending, readable, sha256_tensors
from prolip.evaluate.reject import FALSE_REJECT
from prolip.features import NoImageLeft

if TYPE_CHECKING:
    from prolip.api.classifier import FewShotClassifier, Progress

CHUNK = 512
CHUNK_ADAPTED = 16  # with test-time adaptation, some seconds of work
FORMATS = (".csv", ".jsonl")


def answers(
    clf: FewShotClassifier,
    images: Iterable[Any],
    *,
    top: int = 1,
    reject: bool = False,
    false_reject: float = FALSE_REJECT,
    false_accept: float | None = None,
    test_time: str | None = None,
    skipped: list[tuple[str, str]] | None = None,
    total: int | None = None,
    progress: Progress | None = None,
) -> Iterator[dict[str, Any]]:
    """An answer for each image, in order, as it is found.

    Parameters
    ----------
    images
        Paths, or whatever `features` takes; read a chunk at a time.
    top
        How many classes each answer ranks.
    reject, false_reject, false_accept
        Whether pictures that seem to belong to no class get the class None, and how strictly.
    test_time
        A way to adapt to each image first.
    skipped
        Takes (image, reason) of images that cannot be read, where the classifier passes over them.
    total
        How many images there are, where that is known.
    """
    if top < 1:
        raise UsageError(f"--top must be at least 1, got {top}")
    source, done = iter(images), 0
    while batch := list(itertools.islice(source, CHUNK_ADAPTED if test_time else CHUNK)):

        def tell(count: int, _: int, done: int = done, size: int = len(batch)) -> None:
            if progress is not None:
                progress(done + count, total if total is not None else done + size)

        try:
            if test_time:
                found: Any = clf.test_time(batch, test_time, progress=tell)
                logits, x = found.logits, None
            else:
                found = clf.features(batch, progress=tell)
                x = found.features[0]
                logits = clf.calibrated(x)
        except NoImageLeft as none:
            if not clf.skip_bad:
                raise
            if skipped is not None:
                skipped += none.bad
            done += len(batch)
            continue
        if skipped is not None:
            skipped += found.bad
        probabilities = softmax(logits)
        refused = [False] * len(probabilities)
        if reject:
            seen = clf.features(batch).features[0] if x is None else x
            answer = probabilities.argmax(axis=1)
            refused = clf.outsiders(seen, answer, false_reject, false_accept).tolist()
        for i, row, no in zip(found.kept, probabilities, refused, strict=True):
            yield one_answer(clf.classes_, readable(str(batch[i])), row, top, no if reject else None)
        done += len(batch)


def one_answer(classes: list[Any], image: Any, row: Array, top: int, refused: bool | None) -> dict[str, Any]:
    """The best classes of one image; `refused` is None where nothing is rejected."""
    best = np.argsort(-row, kind="stable")[:top]
    ranked = [{"class": classes[k], "probability": round(float(row[k]), 6)} for k in best]
    answer: dict[str, Any] = {"image": image, **ranked[0]}
    if refused is not None:
        answer |= {"class": None if refused else ranked[0]["class"], "rejected": refused}
    return {**answer, "top": ranked}


def run_name(clf: FewShotClassifier, **options: Any) -> str:
    """Eight digits that the answers of one model with the same options have in common, and no others."""
    tensors = {**clf.fitted_.tensors(), **clf.confidence_.tensors(), "text": clf.text_.rows}
    told = [
        sha256_tensors(tensors.items()),
        clf.confidence_.temperature,
        clf.classes_,
        sorted(options.items()),
    ]
    return hashlib.sha256(json.dumps(told, default=str).encode()).hexdigest()[:8]


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


class AnswerFile:
    """A .csv or .jsonl of answers that grows, and knows which images it has.

    Every answer carries the `run` that it comes from: a file with anything else in it is left as it is.

    Parameters
    ----------
    path
        Where; answers of the same run that are there already are kept.
    top, reject
        What the answers hold.
    run
        See `run_name`.
    """

    def __init__(self, path: Path, top: int, reject: bool, run: str) -> None:
        if path.suffix not in FORMATS:
            raise UsageError(f"answers go to .csv or .jsonl, not to {path.name}")
        self.path, self.csv, self.run = path, path.suffix == ".csv", run
        self.columns = ["image", "class", "probability", *(["rejected"] if reject else [])]
        for rank in range(2, top + 1):
            self.columns += [f"class_{rank}", f"probability_{rank}"]
        self.columns.append("run")
        self.done = set(self._read()) if path.is_file() else set()

    def _read(self) -> Iterator[str]:
        """The images in the file; what an interruption left of a last line is no answer yet."""
        with self.path.open(encoding="utf-8", errors="replace", newline="") as file:
            first = file.readline()
            begun = ",".join(self.columns) + "\n" if self.csv else '{"image": '
            if not first.endswith("\n"):
                if first and (not begun.startswith(first[: len(begun)]) or _is_json(first)):
                    raise self._foreign("is not a file of answers")
                return
            if self.csv and first != begun:
                raise self._foreign(f"has the columns {first.strip()}, these answers have {begun.strip()}")
            whole = (line for line in file if line.endswith("\n"))
            rows = ((row[0], row[-1]) for row in csv.reader(whole) if row)
            for image, run in rows if self.csv else map(self._parse, itertools.chain([first], whole)):
                if run != self.run:
                    raise self._foreign(f"holds answers of another model or with other options (run {run})")
                yield image

    def _parse(self, line: str) -> tuple[str, Any]:
        try:
            answer = json.loads(line)
            return str(answer["image"]), answer["run"]
        except (ValueError, KeyError, TypeError) as error:
            raise self._foreign("has a line that is no answer") from error

    def _foreign(self, what: str) -> UsageError:
        return UsageError(f"{self.path} {what}: name another file, or remove this one")

    def write(self, found: Iterable[dict[str, Any]]) -> int:
        """Append answers as they come."""
        count = 0
        with appending(self.path) as file:
            rows = csv.writer(file, lineterminator="\n")
            if self.csv and not file.tell():
                rows.writerow(self.columns)
            for answer in found:
                if self.csv:
                    rows.writerow(self._row(answer))
                else:
                    file.write(json.dumps({**answer, "run": self.run}, ensure_ascii=False) + "\n")
                count += 1
                if count % CHUNK_ADAPTED == 0:
                    file.flush()
        return count

    def _row(self, answer: dict[str, Any]) -> list[Any]:
        row = [answer["image"], "" if answer["class"] is None else answer["class"], answer["probability"]]
        if "rejected" in answer:
            row.append(str(answer["rejected"]).lower())
        for rank in answer["top"][1:]:
            row += [rank["class"], rank["probability"]]
        return [*row, *[""] * (len(self.columns) - len(row) - 1), self.run]
