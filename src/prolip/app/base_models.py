"""The base models that a project can use, and how it changes from one to another.

A model that is not on this machine is downloaded, and loaded, in a thread of its own, while the page works on
with the model that it has. Then the trainer encodes the images with it. Features of every model stay in the
project's folder, and the last model stays loaded: going back takes no time.
"""

from dataclasses import dataclass
from threading import Lock, Thread
from typing import Any

from prolip import encoders
from prolip.app.encoding import EncodedProject
from prolip.app.project import Project
from prolip.app.trainer import Publish, Trainer, warm_up
from prolip.core import ProlipError, UsageError
from prolip.encoders.pretrained import list_models


@dataclass(frozen=True)
class ModelChange:
    """A change to another base model, as the page shows it."""

    model: str
    done: int = 0  # bytes of a download
    total: int = 0
    error: str = ""


class BaseModels:
    """The base models of one open project. Thread-safe."""

    def __init__(self, project: Project, trainer: Trainer, publish: Publish, device: str = "auto") -> None:
        self.change: ModelChange | None = None
        self._project, self._trainer, self._publish, self._device = project, trainer, publish, device
        self._first = trainer.encoded.encoder.name  # may be one that is not in the menu
        self._loaded = {self._first: trainer.encoded}  # the model in use, and the one before it
        self._lock = Lock()

    def rows(self) -> list[dict[str, Any]]:
        """List models: name, title, megabytes, licence, `free`, `recommended` (first) and `downloaded`."""
        listed = [row for row in list_models() if row["menu"] or row["name"] == self._first]
        if all(row["name"] != self._first for row in listed):
            listed.insert(0, {"name": self._first, "title": self._first, "downloaded": True})
        return sorted(listed, key=lambda row: not row.get("recommended"))

    def choose(self, name: str) -> None:
        """Begin to change to another model; what was begun before is cancelled."""
        if name not in {row["name"] for row in self.rows()}:
            raise UsageError(f"there is no base model called {name[:80]!r}")
        self.cancel()
        if name != self._trainer.encoded.encoder.name:
            change = ModelChange(name)
            self._show(change)
            Thread(target=self._run, args=(change,), name="prolip-base-model", daemon=True).start()

    def cancel(self) -> None:
        """Stop a change, or no longer show one that failed."""
        self._show(None)

    def as_json(self) -> dict[str, Any]:
        """Return the model in use, and the change to another."""
        change = self.change and vars(self.change)
        return {"model": self._trainer.encoded.encoder.name, "change": change}

    def _show(self, new: ModelChange | None, old: ModelChange | None = None) -> None:
        """Replace what is shown; if that should be `old`, and is not, the change of `old` was cancelled."""
        with self._lock:
            if old is not None and self.change is not old:
                raise ProlipError("another model was chosen")
            self.change = new
        self._publish({"type": "model", **self.as_json()})

    def _run(self, change: ModelChange) -> None:
        def report(done: int, total: int) -> None:
            nonlocal change
            if done == total or not change.total or done - change.done > total / 200:
                new = ModelChange(change.model, done, total)
                self._show(new, change)
                change = new

        try:
            encoded = self._loaded.get(change.model) or self._load(change.model, report)
            old = self._trainer.encoded
            self._show(None, change)
            self._project.set_model(encoded.encoder)
            self._loaded = {old.encoder.name: old, encoded.encoder.name: encoded}
            self._trainer.use(encoded)
            self._show(None)
        except Exception as error:  # the page stays usable, and says what happened
            if self.change is change:  # otherwise it was cancelled; a download then fails in any way
                message = str(error) if isinstance(error, ProlipError) else f"{type(error).__name__}: {error}"
                self._show(ModelChange(change.model, error=message))

    def _load(self, name: str, report: Any) -> EncodedProject:
        encoders.fetch(name, report)
        encoder = encoders.load(name, self._device)
        warm_up(encoder, self._trainer.recipe)
        return EncodedProject(self._project, encoder)
