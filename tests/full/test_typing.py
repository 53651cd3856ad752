"""What a type checker says of a program that uses prolip, in its strictest form."""

import subprocess
import sys

SCRIPT = """
from pathlib import Path

import numpy as np

import prolip
from prolip import FewShotClassifier, Head, Task, methods


def teach(photos: Path, target: Path) -> float:
    clf: FewShotClassifier = FewShotClassifier("offline", "anchored", seed=1).fit(photos / "train")
    labels = clf.predict([photos / "a.jpg"])
    print(labels, clf.predict_proba([photos / "a.jpg"]).shape, clf.classes_)
    clf.save(target)
    return FewShotClassifier.load(target).score(photos / "test")


def research(x: np.ndarray, y: np.ndarray, text: np.ndarray, weight: np.ndarray) -> np.ndarray:
    task = Task(x, y, text, head=Head(weight), scale=100.0)
    fitted = methods.create("prolip", lam="1/N").fit(task)
    assert isinstance(fitted, prolip.Fitted)
    return fitted.logits(x)


try:
    teach(Path("photos"), Path("model"))
except prolip.ProlipError as error:
    print(error)
"""


MISTAKES = 'import prolip\n\nprolip.FewShotClassifier(modle="clip")\nx: int = prolip.methods.names()\n'


def test_a_users_program_is_clean_in_strict_mode_and_mistakes_in_another_are_found(tmp_path):
    arrays = "np.ndarray[tuple[int, ...], np.dtype[np.float32]]"
    (tmp_path / "clean.py").write_text(SCRIPT.replace("np.ndarray", arrays))
    (tmp_path / "mistakes.py").write_text(MISTAKES)
    (tmp_path / "mypy.ini").write_text("[mypy]\n[mypy-prolip.*]\nfollow_imports = silent\n")
    options = ["--strict", "--cache-dir", "cache", "--config-file", "mypy.ini"]
    command = [sys.executable, "-m", "mypy", *options, "clean.py", "mistakes.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    errors = [line.split(":")[:2] for line in done.stdout.splitlines() if "error:" in line]
    assert errors == [["mistakes.py", "3"], ["mistakes.py", "4"]], done.stdout + done.stderr
    assert "modle" in done.stdout
