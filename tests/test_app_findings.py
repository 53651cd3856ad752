"""What held-out answers and features tell about the labels."""

import numpy as np
from PIL import Image

from pictures import COLOURS, blotch
from prolip.app.findings import flips, suspects, zero_shot_right
from prolip.app.slow_figures import Snapshot, duplicates
from prolip.app.state import ImageRow, State
from prolip.core import Task
from prolip.features import extract


def test_suspects_are_the_wrong_ones_the_surest_first():
    probabilities = np.array([[0.9, 0.1], [0.4, 0.6], [0.05, 0.95], [0.2, 0.8]])
    assert suspects(probabilities, np.array([0, 0, 0, 1])).tolist() == [2, 1]


def test_a_cropped_copy_is_found_and_another_colour_is_not(offline, tmp_path):
    ramp = Image.linear_gradient("L")
    pictures = [blotch(colour, 7, 256) for colour in COLOURS.values()]
    pictures += [ramp.convert("RGB"), ramp.crop((4, 4, 252, 252)).convert("RGB")]
    for i, picture in enumerate(pictures):
        picture.save(tmp_path / f"{i}.png")
    features = dict(zip("01234", extract(offline, pictures).features[0], strict=True))

    def found(keys):
        state = State(images={key: ImageRow(key) for key in keys})
        snapshot = Snapshot(None, state, features, lambda key: tmp_path / f"{key}.png", lambda: None)
        return duplicates(snapshot)["duplicates"]

    assert found("01234") == [["3", "4"]]
    assert found("01") == found("0") == found("") == []


def test_flips_count_pictures_that_became_right_or_wrong():
    labels = {"a": "1", "b": "1", "c": "2", "new": "1"}
    before, now = {"a": "2", "b": "1", "c": "2"}, {"a": "1", "b": "2", "c": "2", "new": "1"}
    assert flips(before, now, labels) == {"right": 1, "wrong": 1}


def test_text_alone_is_judged_by_the_nearest_row():
    task = Task(np.array([[1.0, 0.1], [0.1, 1.0], [1.0, 0.2]]), [0, 1, 1], np.eye(2))
    assert zero_shot_right(task).tolist() == [True, True, False]
