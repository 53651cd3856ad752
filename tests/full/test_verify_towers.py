"""Methods that train through a tower, beside loops of torch."""

import pytest

from prolip.core.arrays import unit_rows
from reference import towers
from reference.compare import LIMITS, differences


@pytest.fixture(scope="module")
def task():
    return towers.textures_task()


@pytest.mark.parametrize("name", towers.TOWERS)
def test_a_method_is_a_loop_of_torch(task, name):
    mine, theirs = towers.TOWERS[name](task)
    start = (task.scale * unit_rows(task.embeddings()[0])) @ task.text.rows.T
    assert differences(mine, theirs, task.y)["logits"] <= LIMITS["logits"]
    assert differences(mine, start, task.y)["logits"] > 10 * LIMITS["logits"]  # it has moved
