"""Methods that experiments compare with, and authors' searches: beside formulas, steps and plain loops."""

import numpy as np

from prolip.core.arrays import Array
from reference.closed_forms import Pair, _centred, cache_of, ours, rows_loss
from reference.problems import Problem
from reference.recipes import SEED, cache_loss, cached
from reference.reference import (
    Loss,
    Numbers,
    Parameters,
    adam,
    cosine,
    cross_entropy,
    dassl_batches,
    last,
    one_hot,
    sgd,
    softmax,
    through_unit,
    unit,
)


def ss_text(problem: Problem) -> Pair:
    """The formula w_k = t_k + s / (n lam_k) sum of the images of k, lam_k = 1 / n_k."""
    numbers, y = Numbers(problem), problem.task.y
    f = numbers.f.reshape(numbers.views, numbers.n, -1).mean(axis=0)
    sums = np.stack([f[y == k].sum(axis=0) for k in range(len(numbers.t))])
    counts = np.bincount(y)[:, None]
    rows = numbers.raw + numbers.s / (numbers.n * np.maximum(1 / counts, 1e-3)) * sums
    return ours(problem, "ss_text"), numbers.s * numbers.test @ unit(rows).T


def wise_ft(problem: Problem) -> Pair:
    """Half of the way that CLAP's steps take from the texts without a penalty."""
    numbers = Numbers(problem)
    loss = rows_loss(numbers, numbers.raw, np.zeros(len(numbers.t)))
    steps = dassl_batches(numbers, 0.1, 300, SEED, pooled=True)
    (r,) = last(sgd(loss, [np.zeros_like(numbers.t)], steps, 0.9))
    mixed = 0.5 * numbers.raw + 0.5 * (numbers.raw + r)
    return ours(problem, "wise_ft", seed=SEED), numbers.s * numbers.test @ unit(mixed).T


def discriminants(f: Array, y: Array, classes: int, test: Array) -> Array:
    """GDA's scores of test images, by NumPy's pinv."""
    n, dim = f.shape
    means = np.stack([f[y == k].mean(axis=0) for k in range(classes)])
    cov = np.cov((f - means[y]).T)
    precision = dim * np.linalg.pinv((n - 1) * cov + np.trace(cov) * np.eye(dim))
    bias = np.log(1 / classes) - 0.5 * np.einsum("kd,de,ke->k", means, precision, means)
    return np.asarray(test @ precision @ means.T + bias)


def timo(problem: Problem) -> Pair:
    """Class after class: weights of prompts, prompts as samples, then GDA; alpha by the validation set."""
    numbers, classes = Numbers(problem), len(problem.task.text)
    text, prompts = problem.task.text, numbers.t[None]
    if text.features is not None:
        prompts = unit(text.features.astype(np.float64) @ text.projection.weight.astype(np.float64))
    rows, samples, labels = [], list(numbers.f), list(numbers.y)
    for k in range(classes):
        scores = prompts[:, k] @ unit(numbers.f[numbers.y == k].mean(axis=0))
        rows.append(unit(softmax(50 * unit(scores)[None])[0] @ prompts[:, k]))
        samples += list(scores[:, None] * prompts[:, k])
        labels += [k] * len(prompts)
    x, y, t = np.array(samples), np.array(labels), np.array(rows)
    held, test = (discriminants(x, y, classes, f) for f in (numbers.held, numbers.test))
    alphas = 10.0 ** np.arange(-4, 5)
    right = [numbers.right(alpha * numbers.held @ t.T + held) for alpha in alphas]
    theirs = alphas[np.argmax(right)] * numbers.test @ t.T + test
    return _centred(ours(problem, "timo", validated=True)), _centred(theirs)


def ape(problem: Problem) -> Pair:
    """The authors' loops over pairs of classes and samples, at alpha = 2, beta = 3, gamma = 0.2."""
    numbers, y = Numbers(problem), problem.task.y
    keys, values = cache_of(numbers)
    samples = [np.vstack([numbers.t[k : k + 1], keys[y == k]]) for k in range(len(numbers.t))]
    total, count = np.zeros(keys.shape[1]), 0
    for i, mine in enumerate(samples):
        for j, others in enumerate(samples):
            if i != j:
                total += (mine[:, None] * others[None]).sum(axis=(0, 1))
                count += len(mine) * len(others)
    criterion = -0.7 * total / count + 0.3 * numbers.t.var(axis=0, ddof=1)
    kept = np.argsort(-criterion)[: round(700 / 1024 * len(criterion))]
    small, texts, test = (unit(v[:, kept]) for v in (keys, numbers.t, numbers.test))
    read = softmax(small @ texts.T)
    misread = (values * np.log2((values + 1e-6) / (read + 1e-6))).sum(axis=1, keepdims=True)
    near = np.exp(-3 * (1 - test @ small.T))
    theirs = numbers.s * numbers.test @ numbers.t.T + 2 * near @ (values * np.exp(0.2 * misread))
    return ours(problem, "ape", alpha=2.0, beta=3.0, gamma=0.2), theirs


def tip_x(problem: Problem) -> Pair:
    """The formula, divergences one by one, at alpha = 2, beta = 3, gamma = 4."""
    numbers = Numbers(problem)
    keys, values = cache_of(numbers)
    q, p = (softmax(2 * v @ numbers.t.T) for v in (keys, numbers.test))

    def divergence(a: Array, b: Array) -> Array:
        return np.array([(row * (np.log(row) - np.log(b))).sum(axis=1) for row in a])

    known, cosines = divergence(q, q), keys @ keys.T
    spread = (divergence(p, q) - known.min()) / (known.max() - known.min())
    second = -(spread * (cosines.max() - cosines.min()) + cosines.min()) @ values
    theirs = cached(numbers, numbers.test, keys, 2.0, 3.0) + 4 * second
    return ours(problem, "tip_x", alpha=2.0, beta=3.0, gamma=4.0), theirs


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

    rng, steps = np.random.default_rng(SEED), []
    for epoch in range(300):
        order = rng.permutation(numbers.n)
        rate = 1e-5 if epoch == 0 else cosine(0.1, (epoch - 1) / 300)
        steps += [(rate, order[256 * k : 256 * (k + 1)]) for k in range(max(1, numbers.n // 256))]
    (keys,) = last(sgd(loss, [v], steps, 0.9))
    near = np.exp(numbers.embed(problem.x) @ unit(keys).T - 1)
    theirs = numbers.s * numbers.test @ numbers.t.T + near @ values
    return ours(problem, "clap_tip_adapter_f", seed=SEED), theirs


def searched(numbers: Numbers, keys: Array, alphas: Array, betas: Array) -> tuple[float, float]:
    """The first of the best alphas and betas on validation images, beta outside."""
    zero, values = numbers.s * numbers.held @ numbers.t.T, cache_of(numbers)[1]
    best, chosen = -1.0, (1.0, 1.0)
    for beta in betas.tolist():
        near = np.exp(-beta * (1 - numbers.held @ keys.T)) @ values
        found = (zero + alphas[:, None, None] * near).argmax(axis=2)
        right = (found == numbers.problem.validation.y).mean(axis=1)
        if right.max() > best:
            best, chosen = float(right.max()), (float(alphas[right.argmax()]), beta)
    return chosen


def tip_adapter_searched(problem: Problem) -> Pair:
    """Tip-Adapter's own search on DTD: 20 alphas and 200 betas up to 13."""
    numbers = Numbers(problem)
    alphas, betas = (np.array([i * (13 - 0.1) / count + 0.1 for i in range(count)]) for count in (20, 200))
    keys = cache_of(numbers)[0]
    options = {"alpha": "auto", "beta": "auto", "max_alpha": 13.0, "max_beta": 13.0, "alphas": 20}
    mine = ours(problem, "tip_adapter", validated=True, **options)
    return mine, cached(numbers, numbers.test, keys, *searched(numbers, keys, alphas, betas))


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
    grid = np.array([i * (50 - 0.1) / 200 + 0.1 for i in range(200)])
    mine = ours(problem, "tip_adapter_f_star", validated=True, shared_keys=True, seed=SEED)
    return mine, cached(numbers, numbers.test, keys, *searched(numbers, keys, grid, grid))


def gda_grid(problem: Problem) -> Pair | None:
    """GDA's own search: decades, the first of the best on the validation set."""
    numbers, classes = Numbers(problem), len(problem.task.text)
    if len(numbers.f) == classes:
        return None  # no spread around class means
    held, test = (discriminants(numbers.f, numbers.y, classes, f) for f in (numbers.held, numbers.test))
    alphas = [0.0001, 0.001, 0.01, 0.1, 1.0, 10.0, 100.0]
    right = [numbers.right(numbers.s * numbers.held @ numbers.t.T + alpha * held) for alpha in alphas]
    theirs = numbers.s * numbers.test @ numbers.t.T + alphas[int(np.argmax(right))] * test
    return _centred(ours(problem, "gda", validated=True, alpha="grid")), _centred(theirs)


def proker_program(numbers: Numbers, f: Array, lam: float, beta: float) -> Array:
    """The program's cosines and kernel term, every view a row of its own."""
    kernel, near = (np.exp(-beta * (1 - v @ numbers.f.T)) for v in (numbers.f, f))
    left = one_hot(numbers.y, len(numbers.t)) - numbers.f @ numbers.t.T
    return np.asarray(f @ numbers.t.T + near @ np.linalg.solve(kernel / lam + np.eye(len(kernel)), left))


def proker_imagenet(problem: Problem) -> Pair:
    """The constants carried over from ImageNet."""
    numbers = Numbers(problem)
    lam, beta = {1: (0.05, 3.0), 4: (0.05, 1.5), 16: (0.1, 1.7)}[round(numbers.shots)]
    mine = ours(problem, "proker", lam="imagenet")
    return mine, numbers.s * proker_program(numbers, numbers.test, lam, beta)


def proker_grid(problem: Problem) -> Pair | None:
    """The program's search, pair by pair; in one view, so that it takes seconds."""
    numbers = Numbers(problem)
    if numbers.views > 1 or numbers.n > 400:
        return None
    best, chosen = -1.0, (1.0, 1.0)
    for beta in np.linspace(0.1, 10, 20).tolist():
        for lam in np.linspace(0.001, 10, 100).tolist():
            if (right := numbers.right(proker_program(numbers, numbers.held, lam, beta))) > best:
                best, chosen = right, (lam, beta)
    mine = ours(problem, "proker", validated=True, lam="grid")
    return mine, numbers.s * proker_program(numbers, numbers.test, *chosen)
