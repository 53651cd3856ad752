"""Keep the model of a project up to date: every change is trained on at once, in a thread of its own.

The thread does one thing at a time, the most urgent first:

1. fit, if an edit changed classes, or labels of encoded images;
2. encode new images, a few at a time;
3. fit the images encoded since, once for all files of a drop;
4. compute slow figures: the learning curve, what to label next, near-duplicates.

A change interrupts the last, so the thread always works on the newest state. After a change of the base model
all images are new; the page has the old model and its figures until all of them are encoded.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
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
from prolip.encoders import Encoder
from prolip.evaluate.near_copies import near_copy_groups, open_signature
from prolip.evaluate.out_of_distribution import directions

# Times are in seconds.
RETRY_PAUSE = 10.0  # after a failure, such as a full disk
DROP_PAUSE = 0.15  # without a change, after which a drop of several files is taken to be complete
SLOW_PAUSE = 0.4  # without a change, after which slow figures are computed


class Interrupted(Exception):  # noqa: N818 - not an error
    """The project changed while a slow figure was being computed."""


class Trainer:
    """Trains on a project's images; `publish` is called with each event for the page, from its thread."""

    def __init__(self, project: Project, encoder: Encoder, publish: Callable[[dict[str, Any]], None]) -> None:
        self.project, self.encoded = project, EncodedProject(project, encoder)
        self.recipe = Recipe()
        self.trained = TrainedSnapshot(-1, State(), {}, TrainingSet.of(State(), {}), None)
        self.figures = training_figures(self.trained)
        self.slow: dict[str, Any] = {"type": "slow"}
        self.trouble = ""  # what cannot be done at present, for people; empty if everything works
        self._signature = cache(lambda image: open_signature(project.thumbnail(image)))
        self._publish = publish
        self._changed = Condition()
        self._edited = False  # classes, or labels of encoded images, changed since the last step
        self._interrupted = False  # anything changed since the last step
        self._fit_due, self._slow_due, self._closed = True, False, False
        self._thread = Thread(target=self._run, name="prolip-trainer", daemon=True)

    def start(self) -> None:
        """Start the thread that encodes, fits and publishes."""
        self._thread.start()

    def close(self) -> None:
        """Stop after the step under way."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def notify(self, change: Change) -> None:
        """Take note of a change of the project."""
        with self._changed:
            known = self.encoded.features
            self._edited |= bool(change.classes) or any(key in known for key in change.images)
            self._interrupted = self._fit_due = True
            self._changed.notify()

    def use(self, encoded: EncodedProject) -> None:
        """Use another base model."""
        with self._changed:
            self.encoded = encoded
            self._interrupted = self._fit_due = True
            self._changed.notify()

    # The thread

    def _run(self) -> None:
        while not self._closed:
            trouble = ""
            try:
                self._step()
            except Interrupted:
                continue
            except Exception as error:  # the page stays usable, and says what happened
                trouble, self._fit_due = describe_failure(error), True
            if trouble != self.trouble:
                self.trouble = trouble
                self._publish({"type": "trouble", "message": trouble})
            if trouble:  # try again in a while, or when something changes
                self._wait(RETRY_PAUSE)

    def _step(self) -> None:
        with self._changed:
            edited, self._edited, self._interrupted = self._edited, False, False
        waiting, new_model = self.encoded.waiting(), self.trained.features is not self.encoded.features
        if waiting and (new_model or not edited):
            bad = self.encoded.encode(waiting)
            left = max(0, len(waiting) - ENCODE_BATCH)
            self._publish({"type": "progress", "waiting": left, "bad": bad})
        elif self._fit_due:
            if edited or not self._wait(DROP_PAUSE):
                self._fit(again=bool(waiting))
        elif not self._wait(SLOW_PAUSE if self._slow_due else None) and self._slow_due:
            self._compute_slow_figures()

    def _wait(self, seconds: float | None) -> bool:
        """Wait for a change, not longer than this; returns whether there was one."""
        with self._changed:
            return self._changed.wait_for(lambda: self._interrupted or self._closed, timeout=seconds)

    def _check(self, *_: int) -> None:
        """Give way to a newer state; called as progress callback."""
        if self._interrupted or self._closed:
            raise Interrupted

    def _fit(self, again: bool) -> None:
        with self._changed:  # a change from here on makes another fit due
            encoded, self._fit_due = self.encoded, again
        state = self.project.state
        training = TrainingSet.of(state, encoded.features)
        model = self._adapt(encoded, training, state) if len(np.unique(training.y)) > 1 else None
        self.trained = TrainedSnapshot(state.revision, state, encoded.features, training, model)
        self.figures = training_figures(self.trained)
        self._publish(self.figures)
        self._slow_due = True

    def _adapt(self, encoded: EncodedProject, training: TrainingSet, state: State) -> AdaptedModel:
        rows = [state.classes[key] for key in training.classes]
        names, encoder = tuple(row.name for row in rows), encoded.encoder
        prompts = [encoded.text(row.prompt_name, self.recipe.prompts) for row in rows]
        text = Text.from_features(np.stack(prompts, axis=1), encoder.text_head, names)
        groups = near_copy_groups(training.x, training.y, lambda i: self._signature(training.images[i]))
        task = make_task(encoder, training.x[None], training.y, text, groups)
        hashes = tuple(bytes.fromhex(image) for image in training.images)
        recipe = replace(self.recipe, prompt_names={row.name: row.prompt_name for row in rows if row.text})
        negatives = directions(training.negatives, encoder.head) if len(training.negatives) else None
        return fit_support(encoder, recipe, names, Support(hashes, task, negatives=negatives))

    def _compute_slow_figures(self) -> None:
        """Publish each slow figure as soon as it is computed."""
        trained = self.trained
        for name, compute in (
            ("duplicates", lambda: duplicate_groups(trained, self.project.thumbnail)),
            ("queue", lambda: label_queue(trained)),
            ("curve", lambda: curve_report(trained.model, self._check)),
        ):
            figure = compute()
            self._check()
            self.slow = {**self.slow, name: figure, "revision": trained.revision}
            self._publish(self.slow)
        self._slow_due = False


def describe_failure(error: Exception) -> str:
    """Describe an error to people; one that nobody expected with its kind."""
    return str(error) if isinstance(error, ProlipError) else f"{type(error).__name__}: {error}"
