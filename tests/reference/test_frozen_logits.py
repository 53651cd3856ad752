"""Every method gives the logits that it gave when `frozen_logits.npz` was written (see `frozen.py`)."""

import pytest

from prolip import methods
from reference import frozen


@pytest.fixture(scope="module")
def stored():
    return frozen.read()


@pytest.mark.filterwarnings("ignore:lam = 0")
@pytest.mark.parametrize("case", frozen.CASES)
def test_logits_are_as_they_were(stored, case):
    assert frozen.difference(case, stored[case]) <= frozen.TOLERANCES.get(case, frozen.TOLERANCE)


def test_every_method_on_features_is_frozen():
    on_features = {name for name, method in methods.available().items() if not method.trains_tower}
    assert on_features - {method for method, _ in frozen.CASES.values()} == {"anchored"}  # a line of its own
