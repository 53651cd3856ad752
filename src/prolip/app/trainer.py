"""Keep the model of a project up to date: every change is trained on at once, in a thread of its own.

The thread does one thing at a time, the most urgent first:

1. fit, if an edit changed classes, or labels of encoded images;
2. encode new images, a few at a time;
3. fit the images encoded since, once for all files of a drop;
4. compute slow figures: the learning curve, what to label next, near-duplicates.

A change interrupts the last, so the thread always works on the newest state. After a change of the base model
all images are new; the page has the old model and its figures until all of them are encoded.
"""

import math
import time
from collections.abc import Callable
from dataclasses import replace
from threading import Condition, Thread
from typing import Any

import numpy as np

from prolip.api.fit import fit_support
from prolip.api.model import AdaptedModel, Support, make_task
from prolip.api.recipe import Recipe
from prolip.app.encoding import ENCODE_BATCH, EncodedProject
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
from prolip.encoders import Encoder
from prolip.evaluate.near_copies import near_copy_groups, open_signature

Publish = Callable[[dict[str, Any]], None]

# Times are in seconds.
RETRY_PAUSE = 10.0  # after a failure, such as a full disk
DROP_PAUSE = 0.15  # without a change, after which a drop of several files is taken to be complete
MAX_FIT_DELAY = 2.0  # after which a fit that is due does not wait for the rest of a long drop
DROP_FIT_SHARE = 0.2  # of the time of a long drop that goes into fits on the way
SLOW_PAUSE = 0.4  # without a change, after which slow figures are computed


class Interrupted(Exception):  # noqa: N818 - not an error
    """The project changed while a slow figure was being computed."""


class Trainer:
    """Trains on a project's images; `publish` is called with each event for the page, from its thread."""

    def __init__(self, project: Project, encoder: Encoder, publish: Publish) -> None:
        self.project, self.encoded = project, EncodedProject(project, encoder)
        self.recipe = Recipe()
        self.trained = TrainedSnapshot(-1, State(), {}, TrainingSet.of(State(), {}), None)
        self.figures = training_figures(self.trained)
        self.slow: dict[str, Any] = {"type": "slow"}
        self._failure = ""  # of the last step
        self._signatures: dict[str, Array] = {}  # of images, to find near-copies
        self._publish = publish
        self._changed = Condition()
        self._edited = False  # classes, or labels of encoded images, changed since the last step
        self._interrupted = False  # anything changed since the last step
        self._fit_due, self._slow_due, self._closed = True, False, False
        self._changed_at = 0.0
        self._due_at = time.monotonic()  # since when a fit is due
        self._fit_seconds = 0.0  # that the last fit took
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
            known = self.encoded.features
            self._edited |= bool(change.classes) or any(key in known for key in change.images)
            self._changed_at = time.monotonic()
            self._due_at = self._due_at if self._fit_due else self._changed_at
            self._interrupted = self._fit_due = True
            self._changed.notify()

    def use(self, encoded: EncodedProject) -> None:
        """Use another base model."""
        with self._changed:
            self.encoded = encoded
            self._fit_seconds = math.inf  # no fit before all images are encoded
            self._interrupted = self._fit_due = True
            self._changed.notify()

    @property
    def trouble(self) -> str:
        """What cannot be done at present, for people; empty if everything works."""
        return self._failure or self.encoded.store_failure

    # The thread

    def _run(self) -> None:
        self._attempt(lambda: warm_up(self.encoded.encoder, self.recipe))
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
        waiting, now = self.encoded.waiting(), time.monotonic()
        pause = now - self._changed_at
        drop_complete = not waiting and pause > DROP_PAUSE
        delay = max(MAX_FIT_DELAY, self._fit_seconds / DROP_FIT_SHARE)
        if (edited and delay < math.inf) or (self._fit_due and (drop_complete or now > self._due_at + delay)):
            self._fit_due = self._slow_due = True
            revision, state = self.project.revision, self.project.state
            self._fit(state, revision)
            waiting = self.encoded.waiting()
            with self._changed:  # a fit that failed stays due, and so does one of later changes
                self._fit_due = self._interrupted or bool(waiting)
                self._due_at = time.monotonic()
                self._fit_seconds = self._due_at - now
        elif waiting:
            self._encode(waiting)
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
        left = len(images) - ENCODE_BATCH
        bad = self.encoded.encode(images)
        self._publish({"type": "progress", "waiting": max(0, left), "bad": bad})

    def _fit(self, state: State, revision: int) -> None:
        encoded = self.encoded
        training = TrainingSet.of(state, encoded.features)
        for row in state.classes.values():
            encoded.text(row.prompt_name, self.recipe)
        model = self._adapt(encoded, training, state) if len(np.unique(training.y)) > 1 else None
        trained = TrainedSnapshot(revision, state, encoded.features, training, model)
        figures = training_figures(trained)
        self.trained, self.figures = trained, figures
        self._publish(figures)

    def _adapt(self, encoded: EncodedProject, training: TrainingSet, state: State) -> AdaptedModel:
        rows = [state.classes[key] for key in training.classes]
        names, encoder = tuple(row.name for row in rows), encoded.encoder
        prompts = np.stack([encoded.text(row.prompt_name, self.recipe) for row in rows], axis=1)
        text = Text.from_features(prompts, encoder.text_head, names)
        groups = near_copy_groups(training.x, training.y, lambda i: self._signature(training.images[i]))
        task = make_task(encoder, training.x[None], training.y, text, groups)
        hashes = tuple(bytes.fromhex(image) for image in training.images)
        recipe = replace(self.recipe, prompt_names={row.name: row.prompt_name for row in rows if row.text})
        return fit_support(encoder, recipe, names, Support(hashes, task))

    def _signature(self, image: str) -> Array:
        if image not in self._signatures:
            self._signatures[image] = open_signature(self.project.thumbnail(image))
        return self._signatures[image]

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
    task = make_task(encoder, x, [0, 0, 1, 1], text)
    fit_support(encoder, recipe, ("a", "b"), Support((), task))
