"""The base models that a project can use, and how it changes from one to another.

A model that is not on this machine is downloaded, and loaded, in a thread of its own, while the page works on
with the model that it has. Then the trainer encodes the images with it. Features of every model stay in the
project's folder: going back takes no longer than loading the model.
"""

from threading import Thread
from typing import Any

from prolip import encoders
from prolip.app.encoding import EncodedProject
from prolip.app.project import Project
from prolip.app.trainer import Trainer, describe_failure
from prolip.core import ProlipError, UsageError
from prolip.encoders.pretrained import list_models


class BaseModels:
    """The base models of one open project."""

    def __init__(self, project: Project, trainer: Trainer, publish: Any, device: str = "auto") -> None:
        # What the page shows of a change to another model: `model`, bytes `done` of `total`, and `error`.
        self.change: dict[str, Any] | None = None
        self._project, self._trainer, self._publish, self._device = project, trainer, publish, device
        self._first = trainer.encoded.encoder.name  # may be one without a short name

    def rows(self) -> list[dict[str, Any]]:
        """List models: name, title, megabytes, licence, `recommended` (first) and `downloaded`."""
        listed = list_models()
        if all(row["name"] != self._first for row in listed):
            listed.insert(0, {"name": self._first, "title": self._first, "downloaded": True})
        return sorted(listed, key=lambda row: not row.get("recommended"))

    def choose(self, name: str) -> None:
        """Begin to change to another model; what was begun before is cancelled."""
        if name not in {row["name"] for row in self.rows()}:
            raise UsageError(f"there is no base model called {name[:80]!r}")
        change = {"model": name, "done": 0, "total": 0, "error": ""}
        self._show(change)
        Thread(target=self._run, args=(change,), name="prolip-base-model", daemon=True).start()

    def cancel(self) -> None:
        """Stop a change, or no longer show one that failed."""
        self._show(None)

    def as_json(self) -> dict[str, Any]:
        """Return the model in use, and the change to another."""
        return {"model": self._trainer.encoded.encoder.name, "change": self.change}

    def _show(self, change: dict[str, Any] | None) -> None:
        self.change = change
        self._publish({"type": "model", **self.as_json()})

    def _run(self, change: dict[str, Any]) -> None:
        def report(done: int, total: int) -> None:
            if self.change is not change:
                raise ProlipError("another model was chosen")
            change.update(done=done, total=total)
            self._show(change)

        try:
            encoders.fetch(change["model"], report)
            encoder = encoders.load(change["model"], self._device)
            report(1, 1)
            self._project.set_model(encoder.name)
            self._trainer.use(EncodedProject(self._project, encoder))
            self._show(None)
        except Exception as error:  # the page stays usable, and says what happened
            if self.change is change:  # otherwise it was cancelled; a download then fails in any way
                change["error"] = describe_failure(error)
                self._show(change)
