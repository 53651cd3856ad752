"""Progress bars of the Python interface."""

import io
from contextlib import redirect_stderr

import pytest

from pictures import COLOURS, blotch
from prolip import FewShotClassifier
from prolip.io import progress
from prolip.io.progress import Bar, ProgressBars

IMAGES = [blotch(colour, 700 + k) for k, colour in enumerate(COLOURS.values())]


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")


@pytest.mark.parametrize(
    ("shown", "seconds", "terminal", "drawn"),
    [(None, 2.0, True, False), (None, 0.0, True, True), (False, 0.0, True, False), (None, 0.0, False, False),
     (True, 10.0, False, False), (True, 0.0, False, True)],
)  # fmt: skip
def test_a_bar_is_drawn_where_somebody_looks_and_after_a_while(monkeypatch, shown, seconds, terminal, drawn):
    for name in ("DELAY", "LINE_SECONDS"):
        monkeypatch.setattr(progress, name, seconds)
    file = Terminal() if terminal else io.StringIO()
    with redirect_stderr(file), ProgressBars(shown) as bars:
        update = Bar(bars, "encoding images")
        for done in range(1, 11):
            update(done, 10)
    assert ("encoding images" in file.getvalue()) == drawn


def test_a_bar_starts_again_for_the_next_of_several_things():
    with redirect_stderr(Terminal()) as terminal, ProgressBars(True) as bars:
        Bar(bars, "encoding images")(5, 5)  # nothing to wait for
        assert terminal.getvalue() == ""
        bar = Bar(bars, "encoding")
        bar.note = "one failed"
        for done in (1, 4, 5, 0, 2):
            bar(done, 5)
    assert "0/5" in terminal.getvalue()
    assert "one failed" in terminal.getvalue()


def test_a_function_gets_the_progress_of_every_long_call(colour_model, monkeypatch, offline):
    monkeypatch.setattr(progress, "DELAY", 0.0)
    seen = []
    clf = FewShotClassifier(offline, store=False, progress=lambda *step: seen.append(step))
    with redirect_stderr(Terminal()) as terminal:
        clf.fit(IMAGES, list(COLOURS))
        clf.model_ = colour_model.model_
        for call in (clf.predict, clf.predict_proba, clf.transform, clf.suggest):
            call(IMAGES)
            assert seen.pop() == ("encoding images", 3, 3)
            seen.clear()
        clf.score(IMAGES, list(COLOURS))
        assert seen.pop() == ("encoding images", 3, 3)
        clf.learning_curve()
        assert seen.pop()[0] == "fitting"
    assert terminal.getvalue() == ""
