"""The model behind a project, kept up to date: every change is learned at once, in a thread of its own.

The thread does one thing at a time, the most urgent first: fit what is labelled and encoded; encode a few
pictures more; then what takes seconds (the learning curve, what to label next, near-duplicates). A change
interrupts the last kind, so the newest state is always the one that is worked on.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Condition, Thread
from typing import Any

import numpy as np

from prolip.api.fit import fit_support
from prolip.api.model import AdaptedModel, Recipe, Support
from prolip.api.support import Source
from prolip.app.lesson import Lesson, figures_of
from prolip.app.project import Project
from prolip.app.slow_figures import Snapshot, curve, duplicates, queue
from prolip.app.state import State
from prolip.core import ProlipError, Task, Text
from prolip.core.arrays import Array
from prolip.data import clean_name
from prolip.encoders import Encoder
from prolip.features import FeatureStore, NoImageLeft, extract

Publish = Callable[[dict[str, Any]], None]

AT_ONCE = 16  # pictures that are encoded before the fit is looked at again: half a second of work
PAUSE = 10.0  # seconds after a failure, such as a full disk
REST = 0.4  # seconds without a change before what takes seconds begins


class Interrupted(Exception):  # noqa: N818 - no error: a newer state waits
    """Something changed while a slow figure was being made."""


@dataclass(frozen=True)
class TrainedSnapshot:
    """A model and what it was made of."""

    model: AdaptedModel | None  # None until two classes have a picture each
    classes: tuple[str, ...]  # the ids of the model's classes, in its order
    figures: dict[str, Any]  # what the page shows, as JSON has it


class Teacher:
    """Learns a project's pictures; `publish` is called with each event for the pages, from its thread."""

    def __init__(self, project: Project, encoder: Encoder, publish: Publish) -> None:
        self.project, self.encoder = project, encoder
        self.recipe = Recipe()
        self.taught = TrainedSnapshot(None, (), {"type": "figures", "ready": False, "revision": -1})
        self.slow: dict[str, Any] = {"type": "slow"}
        self.features: dict[str, Array] = {}  # [width] by picture
        self.bad: dict[str, str] = {}  # why a picture cannot be encoded
        self._failure = self._unsaved = ""  # what is wrong with the last step, and with writing features
        self._retry = 0.0  # when features may be written again
        self._publish = publish
        self._store = FeatureStore(project.folder / "features")
        self._texts: dict[str, Array] = {}  # [templates, Dt] by what is read
        self._changed = Condition()
        self._stale, self._slow_stale, self._closed = True, True, False
        self._unfitted = False  # the last fit failed
        self._touched = 0.0
        self._thread = Thread(target=self._run, name="prolip-teacher", daemon=True)

    def start(self) -> None:
        """Start the thread that encodes, fits and publishes."""
        self._thread.start()

    def close(self) -> None:
        """Stop after what is under way."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join()

    def touch(self) -> None:
        """The project changed."""
        with self._changed:
            self._stale, self._touched = True, time.monotonic()
            self._changed.notify()

    def waiting(self) -> list[str]:
        """Pictures that are not encoded yet, those with a label first."""
        images = self.project.state.images
        left = [key for key in images if key not in self.features and key not in self.bad]
        return sorted(left, key=lambda key: images[key].label is None)

    @property
    def trouble(self) -> str:
        """What cannot be done at present, for people; empty where all is well."""
        return self._failure or self._unsaved

    # The thread

    def _run(self) -> None:
        self._attempt(lambda: warm_up(self.encoder, self.recipe))
        while not self._closed:
            self._attempt(self._step)

    def _attempt(self, work: Callable[[], None]) -> None:
        before, failure = self.trouble, ""
        try:
            work()
        except Interrupted:
            return
        except ProlipError as error:
            failure = str(error)
        except Exception as error:  # the page stays usable, and says what happened
            failure = f"{type(error).__name__}: {error}"
        self._failure = failure
        if self.trouble != before:
            self._publish({"type": "trouble", "message": self.trouble})
        if failure:  # try again in a while, or when something changes
            with self._changed:
                self._changed.wait_for(lambda: self._stale or self._closed, timeout=PAUSE)

    def _step(self) -> None:
        with self._changed:
            stale, self._stale = self._stale, False
        waiting = [] if stale else self.waiting()
        if waiting:
            self._encode(waiting[:AT_ONCE])
            self._stale = True
        elif stale or self._unfitted:
            self._slow_stale = self._unfitted = True
            self._fit()
            self._unfitted = False
        elif self._slow_stale and time.monotonic() - self._touched > REST:
            self._slow_stale = False
            self._look_closer()
        else:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._stale or self._closed, timeout=REST / 4 if self._slow_stale else None
                )

    def _check(self, *_: int) -> None:
        """Give way to a newer state; called as a progress bar would be."""
        if self._stale or self._closed:
            raise Interrupted

    def _encode(self, images: list[str]) -> None:
        paths: list[Path] = [self.project.image(image) for image in images]
        try:
            rows, bad = self._extract(paths, store := self._store if time.monotonic() > self._retry else None)
            self._unsaved = self._unsaved if store is None else ""
        except ProlipError as error:  # such as a full disk: what cannot be written is learned all the same
            rows, bad = self._extract(paths, None)
            self._unsaved, self._retry = str(error), time.monotonic() + PAUSE
        self.features = {**self.features, **{images[i]: row for i, row in rows.items()}}
        self.bad = {
            **self.bad,
            **{image: bad[str(path)] for image, path in zip(images, paths, strict=True) if str(path) in bad},
        }
        left = len(self.waiting())
        total = len(self.project.state.images)
        self._publish({"type": "progress", "done": total - left, "total": total, "bad": self.bad})

    def _extract(
        self, paths: list[Path], store: FeatureStore | None
    ) -> tuple[dict[int, Array], dict[str, str]]:
        """Features [width] of pictures by their place, and the reasons why others cannot be read by path."""
        try:
            found = extract(self.encoder, paths, store=store, skip_bad=True)
        except NoImageLeft as none:
            return {}, dict(none.bad)
        return dict(zip(found.kept, found.features[0], strict=True)), dict(found.bad)

    def _fit(self) -> None:
        started, state, revision = time.perf_counter(), self.project.state, self.project.revision
        lesson = Lesson.of(state, self.features)
        for row in state.classes.values():
            self._text(row.spoken)
        model = None
        if lesson.ready:
            model = self._adapt(lesson, state)
        figures = figures_of(lesson, model, state, self.features, self.taught.figures)
        figures |= {
            "revision": revision,
            "seconds": time.perf_counter() - started,
            "undo": self.project.can_undo,
        }
        self.taught = TrainedSnapshot(model, lesson.classes, figures)
        self._publish(figures)

    def _adapt(self, lesson: Lesson, state: State) -> AdaptedModel:
        rows = [state.classes[key] for key in lesson.classes]
        names = tuple(row.name for row in rows)
        text = Text.from_features(
            np.stack([self._text(row.spoken) for row in rows], axis=1), self.encoder.text_head, names
        )
        task = Source.of(self.encoder).task(lesson.x[None], lesson.y, text)
        hashes = tuple(bytes.fromhex(image) for image in lesson.images)
        recipe = replace(self.recipe, prompt_names={row.name: row.text for row in rows if row.text})
        return fit_support(self.encoder, recipe, names, Support(hashes, task))

    def _text(self, spoken: str) -> Array:
        """Prompt features [templates, Dt] of a class, before the text head."""
        if spoken not in self._texts:
            text = self.encoder.text([clean_name(spoken)], self.recipe.templates)
            self._texts = {**self._texts, spoken: text.features[:, 0]}
        return self._texts[spoken]

    def _look_closer(self) -> None:
        """Figures that take seconds, each told as soon as it is there."""
        project, taught = self.project, self.taught
        snapshot = Snapshot(taught.model, project.state, self.features, project.thumbnail, self._check)
        for make in (duplicates, queue, curve):
            found = make(snapshot)
            self._check()
            self.slow = {**self.slow, **found, "revision": taught.figures["revision"]}
            self._publish(self.slow)


def warm_up(encoder: Encoder, recipe: Recipe) -> None:
    """Import and run once what a first fit would wait for: a second, while the user looks at the page."""
    rng = np.random.default_rng(0)
    size = encoder.preprocess.size
    encoder.encode(np.zeros((1, size, size, 3), np.uint8))
    x = rng.normal(size=(1, 4, encoder.width)).astype(np.float32)
    text = Text(rng.normal(size=(2, encoder.head.dim)), ("a", "b"))
    task: Task = Source.of(encoder).task(x, [0, 0, 1, 1], text)
    fit_support(encoder, replace(recipe), ("a", "b"), Support((), task))
