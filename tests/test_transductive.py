"""Transductive baselines of experiments, beside loops written out and a minimiser of SciPy."""

import numpy as np
import pytest
from scipy.optimize import minimize

from prolip import methods
from prolip.core import UsageError
from prolip.core.arrays import softmax, unit_rows
from prolip.research.protocols import transductive as module
from prolip.research.protocols.protocols import PROTOCOLS, few_shot
from prolip.research.protocols.run import Run
from test_protocols import make_dataset


@pytest.fixture
def pool():
    dataset = make_dataset()
    run = Run("zero_shot", shots=1)
    task = run.task(dataset, run.draw(dataset).train)
    fitted = methods.create("zero_shot").fit(task)
    x, _ = dataset.splits["test"].all()
    x = x.astype(np.float64)
    return module.Pool(x, unit_rows(task.linear(x)), fitted.logits(x), fitted, task)


def densities(f, means, spread):
    """log N(f; mu, diag S) image by image and class by class."""
    return np.array(
        [
            [-0.5 * (((v - m) ** 2 / s).sum() + np.log(s).sum()) for m, s in zip(means, spread, strict=True)]
            for v in f
        ]
    )


def assign(pool, z, log_p):
    cosines = pool.f @ pool.f.T
    for _ in range(5):
        pulls = np.zeros_like(z)
        for i in range(len(z)):
            others = [j for j in np.argsort(-cosines[i]) if j != i][:3]
            pulls[i] = sum(max(cosines[i, j], 0) * z[j] for j in others)
        z = softmax(np.log(softmax(pool.logits)) + log_p + pulls)
    return z


def test_transclip_is_its_equations_one_by_one(pool):
    f, z = pool.f, softmax(pool.logits)
    classes, dim = z.shape[1], f.shape[1]
    means = np.array([f[np.argsort(-z[:, k])[:8]].mean(axis=0) for k in range(classes)])
    spread = np.full((classes, dim), 1 / dim)
    for _ in range(10):
        z = assign(pool, z, densities(f, means, spread))
        means = np.array([(z[:, k, None] * f).sum(axis=0) / z[:, k].sum() for k in range(classes)])
        total = sum((z[:, k, None] * (f - means[k]) ** 2).sum(axis=0) for k in range(classes))
        spread = np.tile(total / len(f), (classes, 1))
    assert np.allclose(module.transclip(pool), z, atol=1e-6)


def test_statas_gaussians_are_the_minimum_of_its_objective(pool):
    """Of weighted negative log-likelihoods and KL( N(t, S') || N(mu, S) ), for one class."""
    f, z, text = pool.f, softmax(pool.logits), pool.task.text.rows.astype(float)
    anchor = np.full(f.shape[1], 0.3)
    means, spread = module.anchored_gaussians(f, z, text, anchor, alpha=2.0)
    dim, k = f.shape[1], 1

    def objective(parameters):
        mu, s = parameters[:dim], np.exp(parameters[dim:])
        likelihood = z[:, k] @ (0.5 * (((f - mu) ** 2 / s).sum(axis=1) + np.log(s).sum()))
        ratio = np.log(s / anchor) + anchor / s + (mu - text[k]) ** 2 / s - 1
        return likelihood + 2.0 * 0.5 * ratio.sum()

    found = minimize(objective, np.zeros(2 * dim), options={"gtol": 1e-8})
    assert np.allclose(found.x[:dim], means[k], atol=1e-4)
    assert np.allclose(np.exp(found.x[dim:]), spread[k], atol=1e-4)


def test_stata_alternates_between_gaussians_and_assignments(pool):
    f, z, text = pool.f, softmax(pool.logits), pool.task.text.rows.astype(float)
    anchor = sum(z[:, k] @ (f - text[k]) ** 2 for k in range(len(text))) / len(f)
    for _ in range(10):
        means, spread = module.anchored_gaussians(f, z, text, anchor, 1.0)
        z = assign(pool, z, densities(f, means, spread))
    assert np.allclose(module.stata(pool), z, atol=1e-6)


def test_all_test_images_or_batches_of_few_classes_are_classified_together():
    dataset = make_dataset()
    alone = few_shot(dataset, Run("zero_shot", shots=1))["accuracy"]
    for name in ("transductive", "transductive_transclip", "transductive_stata"):
        assert PROTOCOLS[name](dataset, Run("zero_shot", shots=1))["accuracy"] > alone - 0.1
    y = dataset.test_split(methods.create("zero_shot").fit(Run("zero_shot").task(dataset, [0])))[1]
    batches = list(module._batches(y, seed=1))
    assert {len(set(y[places])) for places in batches} == {1, 2, 3, 4}
    assert max(map(len, batches)) == 64
    for name in ("few_classes", "few_classes_transclip", "few_classes_stata"):
        assert 0 <= PROTOCOLS[name](dataset, Run("zero_shot", shots=1))["accuracy"] <= 1


def test_only_our_own_prediction_takes_labelled_images():
    dataset, run = make_dataset(), Run("prolip", {"lam": 0.1}, shots=4)
    assert PROTOCOLS["transductive"](dataset, run)["accuracy"] > 0.5
    with pytest.raises(UsageError):
        PROTOCOLS["transductive_stata"](dataset, run)
