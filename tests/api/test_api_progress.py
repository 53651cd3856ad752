"""Progress bars and the log of the Python interface."""

import io
from contextlib import redirect_stderr

import numpy as np
import pytest

from pictures import COLOURS, blotch
from prolip import FewShotClassifier
from prolip.io import progress
from prolip.io.progress import ProgressBars

IMAGES = [blotch(colour, 700 + k) for k, colour in enumerate(COLOURS.values())]


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")


def in_terminal():
    """Make standard error a terminal."""
    return redirect_stderr(Terminal())


def run(shown, label="encoding images"):
    with ProgressBars(shown) as bars:
        update = bars.bar(label)
        if update is not None:
            for done in range(1, 11):
                update(done, 10)
    return update


def test_a_bar_is_drawn_in_a_terminal_after_a_while(monkeypatch):
    with in_terminal() as terminal:
        run(None)
    assert terminal.getvalue() == ""  # it took less than two seconds
    monkeypatch.setattr(progress, "DELAY", 0.0)
    with in_terminal() as terminal:
        run(None)
    assert "encoding images" in terminal.getvalue()


def test_a_bar_starts_again_for_the_next_of_several_things():
    with in_terminal() as terminal, ProgressBars(True) as bars:
        drawn = bars.bar("encoding")
        drawn.note("one failed")
        for done in (1, 4, 5, 0, 2):
            drawn(done, 5)
    assert "0/5" in terminal.getvalue()
    assert "one failed" in terminal.getvalue()


def test_nothing_is_drawn_where_nobody_looks(capsys, monkeypatch):
    assert run(None) is None
    assert run(False) is None
    assert capsys.readouterr() == ("", "")
    run(True)  # a log has a line every ten seconds
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    run(True)
    assert "encoding images" in capsys.readouterr().err


def test_false_is_silent_in_a_terminal(monkeypatch):
    monkeypatch.setattr(progress, "DELAY", 0.0)
    with in_terminal() as terminal:
        assert run(False) is None
    assert terminal.getvalue() == ""


def test_what_needs_no_waiting_gets_no_bar():
    with in_terminal() as terminal, ProgressBars(True) as bars:
        bars.bar("encoding images")(5, 5)
    assert terminal.getvalue() == ""


def test_a_function_gets_the_progress_of_every_long_call(colour_model, monkeypatch, offline):
    monkeypatch.setattr(progress, "DELAY", 0.0)
    seen = []
    clf = FewShotClassifier(offline, store=False, progress=lambda *step: seen.append(step))
    with in_terminal() as terminal:
        clf.fit(IMAGES, list(COLOURS))
        clf.model_ = colour_model.model_
        for call in (clf.predict, clf.predict_proba, clf.transform, clf.top_k, clf.suggest):
            call(IMAGES)
            assert seen.pop() == ("encoding images", 3, 3)
            seen.clear()
        clf.score(IMAGES, list(COLOURS))
        assert seen.pop() == ("encoding images", 3, 3)
        clf.learning_curve()
        assert seen.pop()[0] == "fitting"
    assert terminal.getvalue() == ""


def test_a_fit_draws_bars(offline):
    images = [blotch(colour, 10 * k + i) for k, colour in enumerate(COLOURS.values()) for i in range(20)]
    clf = FewShotClassifier(offline, "prolip", options={"lam": 0.3}, store=False, progress=True)
    with in_terminal() as terminal:
        clf.fit(images, np.repeat(list(COLOURS), 20))
    assert "encoding images" in terminal.getvalue()


def test_a_short_name_is_downloaded_only_with_permission(monkeypatch, offline):
    calls = []

    def load(name, device, **options):
        calls.append((name, options.get("download", False)))
        return offline

    monkeypatch.setattr("prolip.encoders.load", load)
    for download in (False, True):
        clf = FewShotClassifier("clip", "prolip", options={"lam": 0.3}, store=False, download=download)
        clf.fit(IMAGES, list(COLOURS))
    assert calls == [("clip", False), ("clip", True)]
