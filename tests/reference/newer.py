"""Methods that experiments compare with, and an author's search: beside formulas, steps and plain loops."""

import numpy as np

from prolip.core.arrays import Array
from reference.closed_forms import Pair, cache_of, ours
from reference.problems import Problem
from reference.recipes import SEED, cache_loss, cached, searched
from reference.reference import (
    Loss,
    Numbers,
    Parameters,
    adam,
    cosine,
    cross_entropy,
    last,
    one_hot,
    sgd,
    through_unit,
    unit,
)


def clap_steps(rows: int, images: int) -> list[tuple[float, Array]]:
    """Rates and batches of CLAP's program: 300 epochs, each of whole batches of 256 for so many images."""
    rng, steps = np.random.default_rng(SEED), []
    for epoch in range(300):
        order = rng.permutation(rows)
        rate = 1e-5 if epoch == 0 else cosine(0.1, (epoch - 1) / 300)
        steps += [(rate, order[256 * k : 256 * (k + 1)]) for k in range(max(1, images // 256))]
    return steps


def clap_tip_adapter_f(problem: Problem) -> Pair:
    """CLAP's steps on keys and mean embeddings that are as long as the tower makes them."""
    numbers, classes = Numbers(problem), len(problem.task.text)
    v = numbers.v.reshape(numbers.views, numbers.n, -1).mean(axis=0)
    values, zero = one_hot(problem.task.y, classes), numbers.s * unit(v) @ numbers.t.T

    def loss(parameters: Parameters, rows: Array) -> tuple[float, Parameters]:
        (keys,) = parameters
        near = np.exp(v[rows] @ unit(keys).T - 1)
        value, slope = cross_entropy(zero[rows] + near @ values, problem.task.y[rows])
        return value, [through_unit(keys, (near * (slope @ values.T)).T @ v[rows])]

    (keys,) = last(sgd(loss, [v], clap_steps(numbers.n, numbers.n), 0.9))
    near = np.exp(numbers.embed(problem.x) @ unit(keys).T - 1)
    theirs = numbers.s * numbers.test @ numbers.t.T + near @ values
    return ours(problem, "clap_tip_adapter_f", seed=SEED), theirs


def clap_cross_modal(problem: Problem) -> Pair:
    """CLAP's steps on images and as many prompts; several prompts a class have their labels."""
    numbers, text = Numbers(problem), problem.task.text
    prompts = numbers.s / 10 * numbers.t[None]
    if text.features is not None:
        prompts = text.features.astype(np.float64) @ text.projection.weight.astype(np.float64)
    templates, classes, dim = prompts.shape
    samples, labels = prompts.transpose(2, 0, 1).reshape(dim, -1).T, np.repeat(np.arange(classes), templates)
    turns = np.random.default_rng(SEED).integers(templates, size=(numbers.views, numbers.n)).ravel()
    places = [np.flatnonzero(labels == y)[turn] for y, turn in zip(numbers.y, turns, strict=True)]
    f = unit(np.concatenate([numbers.v, samples[places]]))
    y = np.concatenate([numbers.y, numbers.y])

    def loss(parameters: Parameters, rows: Array) -> tuple[float, Parameters]:
        (w,) = parameters
        value, slope = cross_entropy(numbers.s * f[rows] @ unit(w).T, y[rows])
        return value, [through_unit(w, numbers.s * slope.T @ f[rows])]

    (w,) = last(sgd(loss, [prompts.mean(axis=0)], clap_steps(len(f), numbers.n), 0.9))
    return ours(problem, "clap_cross_modal", seed=SEED), numbers.s * numbers.test @ unit(w).T


def tip_adapter_f_star_shared(problem: Problem) -> Pair:
    """LP++'s program as it runs: ten trainings in a row on the same keys, then the search."""
    numbers = Numbers(problem)
    keys, values = cache_of(numbers)
    per_epoch = -(-numbers.n // 256)
    for alpha in range(10):
        rng = np.random.default_rng(SEED)
        steps: list[tuple[float, Array]] = []
        for epoch in range(20):
            order = numbers.view(epoch)[0] + rng.permutation(numbers.n)
            for k in range(per_epoch):
                steps.append((cosine(1e-3, len(steps) / (20 * per_epoch)), order[256 * k : 256 * (k + 1)]))
        loss: Loss = cache_loss(numbers, values, float(alpha))
        (keys,) = adam(loss, [keys], steps, decay=0.01)
    mine = ours(problem, "tip_adapter_f_star", validated=True, shared_keys=True, seed=SEED)
    return mine, cached(numbers, numbers.test, keys, *searched(numbers, keys))
