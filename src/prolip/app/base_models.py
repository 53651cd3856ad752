"""The base models that a project can use, and how it changes from one to another.

A change runs in a thread of its own: it downloads the model where it is not on this machine, loads it, and
encodes the images of the project, while the page works on with the model that it has. Then the trainer takes
the features over and fits them, so that held-out accuracy can be compared on the same images. Features of
every model stay in the project's folder, and the last model stays loaded: going back takes no time.
"""

import time
from concurrent.futures import Future
from dataclasses import dataclass, replace
from threading import Lock, Thread
from typing import Any

from prolip import encoders
from prolip.app.encoding import EncodedProject
from prolip.app.project import Project
from prolip.app.trainer import Comparison, Publish, Trainer, warm_up
from prolip.core import ProlipError, UsageError
from prolip.encoders.pretrained import list_models

REPORT_PAUSE = 0.2  # seconds between two reports of progress


class Cancelled(ProlipError):  # noqa: N818 - not an error
    """The user does not want this model after all."""


@dataclass(frozen=True)
class ModelChange:
    """A change to another base model, as the page shows it."""

    model: str
    step: str = "load"  # "download" (in bytes), "load", "encode" (in images), "fit", "done" or "failed"
    done: int = 0
    total: int = 0
    error: str = ""
    before: dict[str, Any] | None = None  # the model that was used before: its name and held-out figures
    after: dict[str, Any] | None = None


class BaseModels:
    """The base models of one open project. Thread-safe."""

    def __init__(self, project: Project, trainer: Trainer, publish: Publish, device: str = "auto") -> None:
        self.change: ModelChange | None = None
        self._project, self._trainer, self._publish, self._device = project, trainer, publish, device
        self._own = trainer.encoded.encoder.name  # may be one that is not in the table
        self._loaded = {self._own: trainer.encoded}  # the model in use, and the one before it
        self._pending: Future[Comparison] = Future()  # of the trainer, which takes a model over
        self._lock, self._reported = Lock(), 0.0

    def rows(self) -> list[dict[str, Any]]:
        """List the models: name, title, megabytes, licence, whether it is free for every use and is here."""
        listed = [row for row in list_models() if row["menu"] or row["name"] == self._own]
        if all(row["name"] != self._own for row in listed):
            listed.insert(0, {"name": self._own, "title": self._own, "downloaded": True})
        return listed

    def choose(self, name: str) -> None:
        """Begin to change to another model; what was begun before is cancelled."""
        row = next((row for row in self.rows() if row["name"] == name), None)
        if row is None:
            raise UsageError(f"there is no base model called {name[:80]!r}")
        self.cancel()
        if name == self._trainer.encoded.encoder.name:
            return
        change = ModelChange(name)
        if not row["downloaded"]:
            change = ModelChange(name, "download", 0, 1_000_000 * row["megabytes"])
        self._show(change)
        Thread(target=self._run, args=(change,), name="prolip-base-model", daemon=True).start()

    def cancel(self) -> None:
        """Stop a change, or no longer show one that is done."""
        self._pending.cancel()
        self._show(None)

    def as_json(self) -> dict[str, Any]:
        """Return the model in use, and the change to another."""
        change = self.change
        return {
            "model": self._trainer.encoded.encoder.name,
            "change": None if change is None else vars(change),
        }

    def _show(self, new: ModelChange | None, old: ModelChange | None = None) -> None:
        """Replace what is shown; if that should be `old`, and is not, the change of `old` was cancelled."""
        with self._lock:
            if old is not None and self.change is not old:
                raise Cancelled("another model was chosen")
            self.change = new
        self._publish({"type": "model", **self.as_json()})

    def _run(self, change: ModelChange) -> None:
        def show(**fields: Any) -> None:
            nonlocal change
            new = replace(change, **fields)
            self._show(new, change)
            change = new

        def report(step: str, done: int, total: int) -> None:
            if self.change is not change:
                raise Cancelled("another model was chosen")
            if step != change.step or done == total or time.monotonic() > self._reported + REPORT_PAUSE:
                self._reported = time.monotonic()
                show(step=step, done=done, total=total)

        try:
            encoded = self._loaded.get(change.model) or self._load(change.model, report)
            while left := encoded.waiting():
                report("encode", len(encoded.features), len(encoded.features) + len(left))
                encoded.encode(left)
            show(step="fit", done=0, total=0)
            old, self._pending = self._trainer.encoded, self._trainer.use(encoded)
            before, after = self._pending.result()
            self._project.set_model(encoded.encoder)
            self._loaded = {old.encoder.name: old, encoded.encoder.name: encoded}
            show(step="done", before=_summary(old, before), after=_summary(encoded, after))
        except Exception as error:  # the page stays usable, and says what happened
            if self.change is not change:  # it was cancelled; a download then fails in any way
                self._publish({"type": "model", **self.as_json()})
                return
            message = str(error) if isinstance(error, ProlipError) else f"{type(error).__name__}: {error}"
            show(step="failed", error=message)

    def _load(self, name: str, report: Any) -> EncodedProject:
        encoders.fetch(name, lambda done, total: report("download", done, total))
        report("load", 0, 0)
        encoder = encoders.load(name, self._device)
        warm_up(encoder, self._trainer.recipe)
        return EncodedProject(self._project, encoder)


def _summary(encoded: EncodedProject, figures: dict[str, Any]) -> dict[str, Any]:
    """Return the held-out figures that are compared."""
    return {
        "model": encoded.encoder.name,
        "accuracy": figures.get("accuracy"),
        "interval": figures.get("interval"),
        "images": len(figures.get("held_out", ())),
        "flips": figures.get("flips"),
    }
