"""Methods that experiments compare with: searches beside plain fits, and models restored."""

import numpy as np
import pytest

from prolip import methods
from prolip.methods.registry import fitted_class
from prolip.methods.selection import Splits
from prolip.research.methods import ape, tip_x
from reference.problems import made_up


@pytest.fixture(scope="module")
def problem():
    return next(made_up(shots=(4,), views=(1,), classes=5, width=24, dim=16, per_class=60))


GRIDS = {
    "ape": (("beta", "alpha", "gamma"), tuple(ape.APE.grid.values())),
    "tip_x": (("alpha", "beta", "gamma"), tuple(tip_x.TipX.grid.values())),
}


@pytest.mark.parametrize("name", GRIDS)
def test_a_search_counts_what_fits_get_right(problem, name):
    options, grid = GRIDS[name]
    x, y = problem.validation.x[0], problem.validation.y

    def chosen(place):
        return {option: values[i] for option, values, i in zip(options, grid, place, strict=True)}

    def right(place):
        return int((methods.create(name, **chosen(place)).fit(problem.task).predict(x) == y).sum())

    (part,) = Splits(problem.task, problem.validation).parts
    counted = methods.create(name, alpha="auto").count_right(part)
    rng = np.random.default_rng(0)
    for place in rng.integers(0, counted.shape, size=(40, 3)):
        assert abs(counted[tuple(place)] - right(place)) <= 1  # a tie may be settled by rounding
    found = methods.create(name, alpha="auto").fit(problem.task, validation=problem.validation)
    best = np.unravel_index(counted.argmax(), counted.shape)
    assert {option: found.settings.options[option] for option in options} == chosen(best)


@pytest.mark.parametrize("name", ["ape", "tip_x", "clap_tip_adapter_f"])
def test_a_fitted_model_is_restored_from_tensors_and_config(problem, name):
    fitted = methods.create(name).fit(problem.task)
    kind = fitted_class(fitted.kind)
    again = kind.restore(fitted.tensors(), fitted.config(), problem.task.linear, problem.task.text)
    assert np.allclose(again.logits(problem.x), fitted.logits(problem.x), atol=1e-5)


def test_ss_text_plus_counts_every_image_alike(problem):
    uneven = problem.task.subset(np.flatnonzero((problem.task.y > 0) | (np.arange(problem.task.n) == 0)))
    f = uneven.linear(uneven.x[0])
    f /= np.linalg.norm(f, axis=1, keepdims=True)
    text = uneven.text
    rows = text.projection(text.features).mean(axis=0)
    for k in range(uneven.classes):
        rows[k] += uneven.scale * f[uneven.y == k].sum(axis=0)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    fitted = methods.create("ss_text", balanced=True).fit(uneven)
    assert np.allclose(fitted.weight, uneven.scale * rows, atol=1e-4)
