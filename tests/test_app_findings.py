"""What held-out answers and features tell about the labels."""

import numpy as np
from PIL import Image

from pictures import COLOURS, blotch
from prolip.app.findings import flips, near_duplicates, suspects, zero_shot_right
from prolip.core import Task
from prolip.features import extract


def test_suspects_are_the_wrong_ones_the_surest_first():
    probabilities = np.array([[0.9, 0.1], [0.4, 0.6], [0.05, 0.95], [0.2, 0.8]])
    assert suspects(probabilities, np.array([0, 0, 0, 1])).tolist() == [2, 1]


def test_a_resaved_picture_is_found_and_others_are_not(offline):
    pictures = [
        blotch(colour, 10 * k + i, 200) for k, colour in enumerate(COLOURS.values()) for i in range(3)
    ]
    ramp = Image.linear_gradient("L").convert("RGB")
    x = extract(offline, [*pictures, ramp, ramp.crop((4, 4, 252, 252))]).features[0]
    assert [9, 10] in near_duplicates(x)
    assert near_duplicates(x[:2]) == []


def test_flips_count_pictures_that_became_right_or_wrong():
    labels = {"a": "1", "b": "1", "c": "2", "new": "1"}
    before, now = {"a": "2", "b": "1", "c": "2"}, {"a": "1", "b": "2", "c": "2", "new": "1"}
    assert flips(before, now, labels) == {"right": 1, "wrong": 1}


def test_text_alone_is_judged_by_the_nearest_row():
    task = Task(np.array([[1.0, 0.1], [0.1, 1.0], [1.0, 0.2]]), [0, 1, 1], np.eye(2))
    assert zero_shot_right(task).tolist() == [True, True, False]
