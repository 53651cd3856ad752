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


def check(tmp_path, text):
    (tmp_path / "script.py").write_text(text)
    cache, config = tmp_path / "cache", tmp_path / "mypy.ini"
    config.write_text("[mypy]\n[mypy-prolip.*]\nfollow_imports = silent\n")
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--cache-dir",
        cache,
        "--config-file",
        config,
        "script.py",
    ]
    return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)


def test_a_users_program_is_clean_in_strict_mode(tmp_path):
    done = check(tmp_path, SCRIPT.replace("np.ndarray", "np.ndarray[tuple[int, ...], np.dtype[np.float32]]"))
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_mistake_in_it_is_found(tmp_path):
    done = check(
        tmp_path, 'import prolip\n\nprolip.FewShotClassifier(modle="clip")\nx: int = prolip.methods.names()\n'
    )
    assert "modle" in done.stdout
    assert done.stdout.count("error:") == 2
