"""The trainer: what it does first, and how often it fits."""

import hashlib
import threading
import time
from contextlib import contextmanager

import pytest

from app_server import png
from pictures import COLOURS, blotch
from prolip.app import edits, encoding, trainer
from prolip.app.project import Project


class Recorder:
    """A trainer on a new project, and the events that it publishes."""

    def __init__(self, project, encoder):
        self.project, self.events = project, []
        self.trainer = trainer.Trainer(project, encoder, self.events.append)
        project.subscribe(lambda change, _: self.trainer.notify(change))

    def add(self, name, seeds):
        data = [png(blotch(COLOURS[name], seed)) for seed in seeds]
        key = next(k for k, row in self.project.state.classes.items() if row.name == name)
        images = [hashlib.sha256(each).hexdigest() for each in data]
        for image, each in zip(images, data, strict=True):
            self.project.add_image(image, each, b"small", name="a.png", label=key)
        return images

    def fits(self):
        return [event for event in self.events if event["type"] == "figures"]

    def wait(self, ready):
        deadline = time.monotonic() + 60
        while not ready():
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def wait_until_trained(self):
        self.wait(lambda: not self.trainer.encoded.waiting() and self.fits()[-1:] and self.is_current())

    def is_current(self):
        return self.trainer.figures["revision"] == self.project.revision


@pytest.fixture
def recorder(tmp_path, offline):
    @contextmanager
    def start():
        with Project.open(tmp_path / "p") as project:
            for name in ("red", "green"):
                project.commit(lambda state, name=name: edits.add_class(state, name))
            recorder = Recorder(project, offline)
            recorder.trainer.start()
            recorder.wait_until_trained()
            yield recorder
            recorder.trainer.close()

    with start() as made:
        yield made


def test_a_drop_is_encoded_first_and_fitted_once(recorder, monkeypatch):
    monkeypatch.setattr(trainer, "DROP_PAUSE", 1.0)
    before = len(recorder.fits())
    images = recorder.add("red", range(10)) + recorder.add("green", range(20, 30))
    recorder.wait_until_trained()
    (fit,) = recorder.fits()[before:]
    assert set(fit["held_out"]) == set(images)


def test_an_edit_of_encoded_images_is_fitted_before_others_are_encoded(recorder, monkeypatch):
    images = recorder.add("red", range(3)) + recorder.add("green", range(20, 23))
    recorder.wait_until_trained()
    real, entered, go = encoding.read_pixels, threading.Event(), threading.Event()

    def slow(data, preprocess):
        entered.set()
        assert go.wait(60)
        return real(data, preprocess)

    monkeypatch.setattr(encoding, "read_pixels", slow)
    monkeypatch.setattr(encoding, "ENCODE_BATCH", 1)
    new = recorder.add("red", range(50, 52))
    assert entered.wait(60)
    recorder.project.commit(lambda state: edits.label_images(state, [images[0]], "2"))
    go.set()
    recorder.wait(lambda: recorder.is_current())
    assert images[0] in recorder.trainer.trained.training.images
    first = next(event for event in recorder.fits() if event["revision"] == recorder.project.revision)
    assert new[1] not in first["held_out"], "the second image was not encoded yet"
    recorder.wait(lambda: new[1] in recorder.trainer.figures["held_out"])


def test_labels_of_predictions_count_once_they_are_confirmed(recorder):
    recorder.add("red", range(4))
    recorder.add("green", range(20, 24))
    data = png(blotch(COLOURS["red"], 60))
    image = hashlib.sha256(data).hexdigest()
    recorder.project.add_image(image, data, b"small", name="a.png")
    for edit, trained in ((edits.accept_predictions, False), (edits.label_images, True)):
        recorder.project.commit(lambda state, edit=edit: edit(state, [image], "1"))
        recorder.wait_until_trained()
        assert (image in recorder.trainer.trained.training.images) == trained
        assert (image in recorder.fits()[-1]["held_out"]) == trained
