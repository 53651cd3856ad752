"""Test images of an experiment that are classified together."""

import pytest

from prolip.research.protocols.protocols import PROTOCOLS, few_shot
from prolip.research.protocols.run import Run
from test_protocols import make_dataset


@pytest.mark.parametrize("run", [Run("zero_shot", shots=1), Run("prolip", {"lam": 0.1}, shots=4)])
def test_images_that_form_clusters_are_classified_better_together(run):
    dataset = make_dataset()
    alone = few_shot(dataset, run)["accuracy"]
    assert PROTOCOLS["transductive"](dataset, run)["accuracy"] > alone - 0.05
