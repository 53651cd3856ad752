"""Keep the model of a project up to date: every change is trained on at once, in a thread of its own.

The thread does one thing at a time, the most urgent first:

1. fit, if an edit changed classes, or labels of encoded images;
2. encode new images, a few at a time;
3. fit the images encoded since, once for all files of a drop;
4. compute slow figures: the learning curve, what to label next, near-duplicates.

A change interrupts the last, so the thread always works on the newest state.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Condition, Thread
from typing import Any

import numpy as np

from prolip.api.fit import fit_support
from prolip.api.model import AdaptedModel, Recipe, Support
from prolip.api.support import ImageSource
from prolip.app.figures import (
    TrainedSnapshot,
    TrainingSet,
    curve_report,
    duplicate_groups,
    label_queue,
    training_figures,
)
from prolip.app.project import Project
from prolip.app.state import Change, State
from prolip.core import ProlipError, Text
from prolip.core.arrays import Array
from prolip.data import clean_name
from prolip.encoders import Encoder
from prolip.features import FeatureStore, NoImageLeft, extract

Publish = Callable[[dict[str, Any]], None]

# Times are in seconds.
ENCODE_BATCH = 16  # images encoded between two looks at what is most urgent: half a second of work
RETRY_PAUSE = 10.0  # after a failure, such as a full disk
DROP_PAUSE = 0.15  # without a change, after which a drop of several files is taken to be complete
MAX_FIT_DELAY = 2.0  # after which a fit that is due does not wait for the rest of a long drop
SLOW_PAUSE = 0.4  # without a change, after which slow figures are computed


class Interrupted(Exception):  # noqa: N818 - not an error
    """The project changed while a slow figure was being computed."""


class Trainer:
    """Trains on a project's images; `publish` is called with each event for the page, from its thread."""

    def __init__(self, project: Project, encoder: Encoder, publish: Publish) -> None:
        self.project, self.encoder = project, encoder
        self.recipe = Recipe()
        self.trained = TrainedSnapshot(-1, State(), {}, TrainingSet.of(State(), {}), None)
        self.figures = training_figures(self.trained, {})
        self.slow: dict[str, Any] = {"type": "slow"}
        self.features: dict[str, Array] = {}  # [width] by image
        self.bad: dict[str, str] = {}  # why an image cannot be encoded
        self._failure = self._store_failure = ""  # of the last step, and of writing features
        self._store_retry = 0.0  # when features may be written again
        self._publish = publish
        self._store = FeatureStore(project.folder / "features")
        self._texts: dict[str, Array] = {}  # prompt features [templates, Dt] by prompt name
        self._changed = Condition()
        self._edited = False  # classes, or labels of encoded images, changed since the last step
        self._interrupted = False  # anything changed since the last step
        self._fit_due, self._slow_due, self._closed = True, False, False
        self._changed_at = 0.0
        self._due_at = time.monotonic()  # since when a fit is due
        self._thread = Thread(target=self._run, name="prolip-trainer", daemon=True)

    def start(self) -> None:
        """Start the thread that encodes, fits and publishes."""
        self._thread.start()

    def close(self) -> None:
        """Stop after the step under way."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join()

    def notify(self, change: Change) -> None:
        """Take note of a change of the project."""
        with self._changed:
            self._edited |= bool(change.classes) or any(key in self.features for key in change.images)
            self._changed_at = time.monotonic()
            self._due_at = self._due_at if self._fit_due else self._changed_at
            self._interrupted = self._fit_due = True
            self._changed.notify()

    def waiting(self) -> list[str]:
        """Images that are not encoded yet, those with a label first."""
        images = self.project.state.images
        left = [key for key in images if key not in self.features and key not in self.bad]
        return sorted(left, key=lambda key: images[key].label is None)

    @property
    def trouble(self) -> str:
        """What cannot be done at present, for people; empty if everything works."""
        return self._failure or self._store_failure

    # The thread

    def _run(self) -> None:
        self._attempt(lambda: warm_up(self.encoder, self.recipe))
        self._due_at = time.monotonic()
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
            self._wait(RETRY_PAUSE)

    def _step(self) -> None:
        with self._changed:
            edited, self._edited, self._interrupted = self._edited, False, False
        waiting, now = self.waiting(), time.monotonic()
        pause = now - self._changed_at
        drop_complete = not waiting and pause > DROP_PAUSE
        if edited or (self._fit_due and (drop_complete or now > self._due_at + MAX_FIT_DELAY)):
            self._fit_due = self._slow_due = True
            self._fit()
            with self._changed:  # a fit that failed stays due, and so does one of later changes
                self._fit_due = self._interrupted or bool(self.waiting())
                self._due_at = time.monotonic()
        elif waiting:
            self._encode(waiting[:ENCODE_BATCH])
        elif self._fit_due:
            self._wait(DROP_PAUSE / 2)
        elif self._slow_due and pause > SLOW_PAUSE:
            self._compute_slow_figures()
            self._slow_due = False
        else:
            self._wait(SLOW_PAUSE / 4 if self._slow_due else None)

    def _wait(self, seconds: float | None) -> None:
        """Wait for a change, not longer than this."""
        with self._changed:
            self._changed.wait_for(lambda: self._interrupted or self._closed, timeout=seconds)

    def _check(self, *_: int) -> None:
        """Give way to a newer state; called as progress callback."""
        if self._interrupted or self._closed:
            raise Interrupted

    def _encode(self, images: list[str]) -> None:
        paths: list[Path] = [self.project.image(image) for image in images]
        store = self._store if time.monotonic() > self._store_retry else None
        try:
            rows, bad = self._extract(paths, store)
            self._store_failure = self._store_failure if store is None else ""
        except ProlipError as error:  # such as a full disk: train without storing the features
            rows, bad = self._extract(paths, None)
            self._store_failure, self._store_retry = str(error), time.monotonic() + RETRY_PAUSE
        self.features = {**self.features, **{images[i]: row for i, row in rows.items()}}
        unreadable = {image: bad.get(str(path)) for image, path in zip(images, paths, strict=True)}
        self.bad = {**self.bad, **{image: why for image, why in unreadable.items() if why is not None}}
        total = len(self.project.state.images)
        done = total - len(self.waiting())
        self._publish({"type": "progress", "done": done, "total": total, "bad": self.bad})

    def _extract(
        self, paths: list[Path], store: FeatureStore | None
    ) -> tuple[dict[int, Array], dict[str, str]]:
        """Return features [width] of images by index, and why others cannot be read, by path."""
        try:
            found = extract(self.encoder, paths, store=store, skip_bad=True)
        except NoImageLeft as none:
            return {}, dict(none.bad)
        return dict(zip(found.kept, found.features[0], strict=True)), dict(found.bad)

    def _fit(self) -> None:
        state, revision = self.project.state, self.project.revision
        training = TrainingSet.of(state, self.features)
        for row in state.classes.values():
            self._text(row.prompt_name)
        model = self._adapt(training, state) if len(training.classes) > 1 else None
        trained = TrainedSnapshot(revision, state, self.features, training, model)
        figures = training_figures(trained, self.figures)
        self.trained, self.figures = trained, figures
        self._publish(figures)

    def _adapt(self, training: TrainingSet, state: State) -> AdaptedModel:
        rows = [state.classes[key] for key in training.classes]
        names = tuple(row.name for row in rows)
        text = Text.from_features(
            np.stack([self._text(row.prompt_name) for row in rows], axis=1), self.encoder.text_head, names
        )
        task = ImageSource.of(self.encoder).task(training.x[None], training.y, text)
        hashes = tuple(bytes.fromhex(image) for image in training.images)
        recipe = replace(self.recipe, prompt_names={row.name: row.text for row in rows if row.text})
        return fit_support(self.encoder, recipe, names, Support(hashes, task))

    def _text(self, prompt_name: str) -> Array:
        """Return prompt features [templates, Dt] of a class, before the text head."""
        if prompt_name not in self._texts:
            text = self.encoder.text([clean_name(prompt_name)], self.recipe.templates)
            assert text.features is not None
            self._texts = {**self._texts, prompt_name: text.features[:, 0]}
        return self._texts[prompt_name]

    def _compute_slow_figures(self) -> None:
        """Publish each slow figure as soon as it is computed."""
        trained = self.trained
        for name, compute in (
            ("duplicates", lambda: duplicate_groups(trained, self.project.thumbnail)),
            ("queue", lambda: label_queue(trained)),
            ("curve", lambda: curve_report(trained.model, self._check)),
        ):
            found = compute()
            self._check()
            self.slow = {**self.slow, name: found, "revision": trained.revision}
            self._publish(self.slow)


def warm_up(encoder: Encoder, recipe: Recipe) -> None:
    """Import and run once what the first fit needs: a second, while the user looks at the page."""
    rng = np.random.default_rng(0)
    size = encoder.preprocess.size
    encoder.encode(np.zeros((1, size, size, 3), np.uint8))
    x = rng.normal(size=(1, 4, encoder.width)).astype(np.float32)
    text = Text(rng.normal(size=(2, encoder.head.dim)), ("a", "b"))
    task = ImageSource.of(encoder).task(x, [0, 0, 1, 1], text)
    fit_support(encoder, recipe, ("a", "b"), Support((), task))
