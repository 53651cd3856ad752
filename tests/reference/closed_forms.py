"""Methods that are a formula, or the minimum of one: beside the formula, or SciPy's minimum."""

from typing import Any

import numpy as np
from scipy import optimize

from prolip import methods
from prolip.core import Fitted, Projected
from prolip.core.arrays import Array
from reference.problems import Problem
from reference.reference import (
    Loss,
    Numbers,
    Parameters,
    cross_entropy,
    minimum,
    one_hot,
    softmax,
    through_unit,
    unit,
)

Pair = tuple[Array, Array]  # logits of the test images [m, K]: ours, and the others


def ours(problem: Problem, name: str, validated: bool = False, **options: Any) -> Array:
    """Our method's logits on the test images."""
    method = methods.create(name, **options)
    fitted = method.fit(problem.task, validation=problem.validation if validated else None)
    return fitted.logits(problem.x)


def zero_shot(problem: Problem) -> Pair:
    """The formula s f T'."""
    numbers = Numbers(problem)
    return ours(problem, "zero_shot"), numbers.s * numbers.test @ numbers.t.T


def prolip(problem: Problem) -> Pair | None:
    """The minimum over W of CE + |W - W0|^2 / N; of a black box it is RLA's."""
    numbers, head = Numbers(problem), problem.task.head
    if head is None:
        return None
    w0 = head.weight.astype(np.float64)
    fitted = methods.create("prolip", lam="1/N").fit(problem.task)
    bias = numbers.v - numbers.rows @ w0
    (w,) = minimum(matrix_loss(numbers, numbers.rows, w0, bias, 1 / numbers.shots), [w0], _all(numbers))
    moved = problem.x.astype(np.float64) @ w + (numbers.embed(problem.x) - problem.x @ w0)
    return fitted.logits(problem.x), numbers.s * unit(moved) @ numbers.t.T


def rla(problem: Problem) -> Pair:
    """The minimum over A of CE( s normalize(v A) T' ) + |A - I|^2 / N."""
    numbers = Numbers(problem)
    eye = np.eye(numbers.v.shape[1])
    fitted = methods.create("rla", lam="1/N").fit(problem.task)
    # A black box has a matrix of a million numbers: there the search starts where ours ends.
    start = eye if problem.task.head is not None else _matrix(fitted)
    (a,) = minimum(matrix_loss(numbers, numbers.v, eye, 0.0, 1 / numbers.shots), [start], _all(numbers))
    moved = numbers.embed(problem.x) @ a
    return fitted.logits(problem.x), numbers.s * unit(moved) @ numbers.t.T


def matrix_loss(numbers: Numbers, x: Array, w0: Array, bias: Array | float, lam: float) -> Loss:
    """CE( s normalize(x W + bias) T' ) + lam |W - W0|^2."""

    def loss(parameters: Parameters, rows: Array) -> tuple[float, Parameters]:
        (w,) = parameters
        v = x[rows] @ w + (bias[rows] if isinstance(bias, np.ndarray) else bias)
        value, slope = cross_entropy(numbers.s * unit(v) @ numbers.t.T, numbers.y[rows])
        gradient = x[rows].T @ through_unit(v, numbers.s * slope @ numbers.t)
        step = w - w0
        return value + lam * float((step**2).sum()), [gradient + 2 * lam * step]

    return loss


def prolip_text(problem: Problem) -> Pair | None:
    """The minimum over P of CE( s f T(P)' ) + |P - P0|^2 / N, each prompt normalised before their mean."""
    numbers, text = Numbers(problem), problem.task.text
    if text.features is None:
        return None
    m, p0 = text.features.astype(np.float64), text.projection.weight.astype(np.float64)

    def rows_of(p: Array) -> Array:
        return unit(unit(m @ p).mean(axis=0))

    def loss(parameters: Parameters, rows: Array) -> tuple[float, Parameters]:
        (p,) = parameters
        each = m @ p
        mean = unit(each).mean(axis=0)
        value, slope = cross_entropy(numbers.s * numbers.f[rows] @ unit(mean).T, numbers.y[rows])
        by_mean = through_unit(mean, numbers.s * slope.T @ numbers.f[rows]) / len(m)
        by_each = through_unit(each, np.broadcast_to(by_mean, each.shape))
        step = p - p0
        gradient = np.einsum("tki,tkd->id", m, by_each) + 2 / numbers.shots * step
        return value + float((step**2).sum()) / numbers.shots, [gradient]

    (p,) = minimum(loss, [p0], _all(numbers))
    return ours(problem, "prolip_text", lam="1/N"), numbers.s * numbers.test @ rows_of(p).T


def rows_loss(numbers: Numbers, start: Array, weights: Array, alpha: float = 1.0) -> Loss:
    """CE( s f normalize(start + alpha R)' ) + sum_k weights_k |r_k|^2."""

    def loss(parameters: Parameters, rows: Array) -> tuple[float, Parameters]:
        (r,) = parameters
        moved = start + alpha * r
        value, slope = cross_entropy(numbers.s * numbers.f[rows] @ unit(moved).T, numbers.y[rows])
        gradient = alpha * through_unit(moved, numbers.s * slope.T @ numbers.f[rows])
        pull = weights[:, None] * r
        return value + float((pull * r).sum()), [gradient + 2 * pull]

    return loss


def task_res(problem: Problem) -> Pair:
    """The minimum over R of CE( s f normalize(t + R / 2)' ) + (s / 100)^2 |R|^2 / N."""
    numbers = Numbers(problem)
    weights = np.full(len(numbers.t), (numbers.s / 100) ** 2 / numbers.shots)
    zero = np.zeros_like(numbers.t)
    (r,) = minimum(rows_loss(numbers, numbers.t, weights, 0.5), [zero], _all(numbers))
    return ours(problem, "task_res", lam="1/N"), numbers.s * numbers.test @ unit(numbers.t + 0.5 * r).T


def reliability(numbers: Numbers) -> Array:
    """CLAP's multipliers: the mean zero-shot probability of the true class, by class."""
    p = softmax(numbers.s * numbers.f @ unit(numbers.raw).T)
    return np.array([p[numbers.y == k, k].mean() for k in range(len(numbers.t))])


def clap(problem: Problem) -> Pair:
    """The minimum over W of CE( s f normalize(W)' ) + mean_k m_k |w_k - t_k|^2, texts of their own length."""
    numbers = Numbers(problem)
    weights = reliability(numbers) / len(numbers.t)
    (r,) = minimum(rows_loss(numbers, numbers.raw, weights), [np.zeros_like(numbers.t)], _all(numbers))
    return ours(problem, "clap"), numbers.s * numbers.test @ unit(numbers.raw + r).T


def cross_modal(problem: Problem) -> Pair:
    """The minimum over W of half the images' CE and half the texts', + (s / 100)^2 |W - T|^2 / N."""
    numbers, k = Numbers(problem), len(problem.task.text)
    lam = (numbers.s / 100) ** 2 / numbers.shots

    def loss(parameters: Parameters, rows: Array) -> tuple[float, Parameters]:
        (step,) = parameters
        w, s = numbers.t + step, numbers.s
        on_images, by_images = cross_entropy(s * numbers.f @ w.T, numbers.y)
        on_texts, by_texts = cross_entropy(s * numbers.t @ w.T, np.arange(k))
        gradient = s / 2 * (by_images.T @ numbers.f + by_texts.T @ numbers.t) + 2 * lam * step
        return (on_images + on_texts) / 2 + lam * float((step**2).sum()), [gradient]

    (step,) = minimum(loss, [np.zeros_like(numbers.t)], _all(numbers))
    found = ours(problem, "cross_modal", lam="1/N")
    return found, numbers.s * numbers.test @ (numbers.t + step).T


def linear_probe(problem: Problem) -> Pair:
    """The minimum over W, b of C sum_i CE + |W|^2 / 2, at C = 1."""
    numbers = Numbers(problem)
    w, b = regression(numbers, 1.0)
    found = ours(problem, "linear_probe", C=1.0)
    return _centred(found), _centred(numbers.test @ w.T + b)  # a constant for all classes is free


def regression(numbers: Numbers, c: float) -> Parameters:
    """Logistic regression with an l2 penalty, as scikit-learn writes it, in w / r and b / r.

    A small C makes w and b small, and a search in them would stop before it has found b, as scikit-learn's.
    """
    n, k = len(numbers.f), len(numbers.t)
    r = min(1.0, n * c)

    def loss(parameters: Parameters, rows: Array) -> tuple[float, Parameters]:
        u, a = parameters
        value, slope = cross_entropy(r * (numbers.f @ u.T + a), numbers.y)
        gradient = [slope.T @ numbers.f + r * u / (n * c), slope.sum(axis=0)]
        return (value - np.log(k)) / r + r * float((u**2).sum()) / (2 * n * c), gradient

    u, a = minimum(loss, [np.zeros((k, numbers.f.shape[1])), np.zeros(k)], _all(numbers))
    return [r * u, r * a]


def linear_probe_searched(problem: Problem) -> Pair:
    """CoOp's and LP++'s search: the first of the best of seven C, then eight bisections of its decades."""
    numbers = Numbers(problem)

    def right(exponent: float) -> float:
        w, b = regression(numbers, 10**exponent)
        return numbers.right(numbers.held @ w.T + b)

    swept = [6, 4, 2, 0, -2, -4, -6]
    peak = swept[int(np.argmax([right(exponent) for exponent in swept]))]
    left, stop, chosen = peak - 1.0, peak + 1.0, 0.0
    for _ in range(8):
        middle = (left + stop) / 2
        if right(left) < right(stop):
            chosen, left = stop, middle
        else:
            chosen, stop = left, middle
    # Minima at a large C are flat: this is about the search.
    return ours(problem, "linear_probe", validated=True, C="grid"), ours(
        problem, "linear_probe", C=10**chosen
    )


def tip_adapter(problem: Problem) -> Pair:
    """The formula s f T' + alpha exp(-beta (1 - f K')) V."""
    numbers = Numbers(problem)
    keys, values = cache_of(numbers)
    near = np.exp(-(1 - numbers.test @ keys.T))
    return ours(problem, "tip_adapter"), numbers.s * numbers.test @ numbers.t.T + 1.17 * near @ values


def cache_of(numbers: Numbers) -> tuple[Array, Array]:
    """Tip-Adapter's keys (the mean over views, of unit length) and one-hot values."""
    mean = numbers.f.reshape(numbers.views, numbers.n, -1).mean(axis=0)
    return unit(mean), one_hot(numbers.problem.task.y, len(numbers.t))


def gda(problem: Problem) -> Pair:
    """The authors' formula: D pinv((n - 1) cov + tr(cov) I), by NumPy's pinv; less what classes share."""
    numbers, classes = Numbers(problem), len(problem.task.text)
    f, y, (n, dim) = numbers.f, numbers.y, numbers.f.shape
    means = np.stack([f[y == k].mean(axis=0) for k in range(classes)])
    centred = f - means[y]
    if np.abs(centred).max() < 1e-9:  # one image a class in one view: no spread around class means
        centred = f - f.mean(axis=0)
    cov = np.cov(centred.T)
    precision = dim * np.linalg.pinv((n - 1) * cov + np.trace(cov) * np.eye(dim))
    bias = np.log(1 / classes) - 0.5 * np.einsum("kd,de,ke->k", means, precision, means)
    theirs = numbers.s * numbers.test @ numbers.t.T + numbers.test @ precision @ means.T + bias
    return _centred(ours(problem, "gda", alpha=1.0)), _centred(theirs)


def _matrix(fitted: Fitted) -> Array:
    """The matrix that a fit of RLA ends in."""
    assert isinstance(fitted, Projected)
    assert fitted.adapter is not None
    return fitted.adapter.astype(np.float64)


def _all(numbers: Numbers) -> Array:
    return np.arange(len(numbers.y))


def _centred(logits: Array) -> Array:
    return logits - logits.mean(axis=1, keepdims=True)


def anchored(problem: Problem) -> Pair:
    """The convex problem by SciPy, at the scale where texts make the labels likeliest; no matrix is made.

    That scale is compared to a thousandth, to which the method settles it, and then its number is taken.
    """
    numbers = Numbers(problem)
    classes = len(numbers.t)
    lengths = np.linalg.norm(numbers.rows, axis=1, keepdims=True)
    c = np.sqrt((numbers.v**2).sum(axis=1).mean() / (lengths**2).mean())
    f = numbers.rows / lengths
    spread = f.var(axis=0)
    e = 1 / np.sqrt(spread + spread.mean())
    e /= np.sqrt(((f * e) ** 2).sum(axis=1).mean())
    texts = np.linalg.pinv(numbers.t)  # [D, K]: what moves an embedding so that scores change as given

    def embed(x: Array) -> tuple[Array, Array]:
        """p + r [m, D] and f E [m, Do]."""
        length = np.linalg.norm(x, axis=1, keepdims=True)
        return numbers.embed(x) / (c * length), x / length * e

    p, features = embed(numbers.rows)

    def unlikelihood(log_b: float) -> float:
        value, _ = cross_entropy(np.exp(log_b) * p @ numbers.t.T, numbers.y)
        return numbers.n * value + (log_b - np.log(numbers.s)) ** 2 / 2

    bounds = (np.log(numbers.s) - 12, np.log(numbers.s))
    found = optimize.minimize_scalar(unlikelihood, bounds=bounds, method="bounded", options={"xatol": 1e-9})
    fitted = methods.create("anchored").fit(problem.task)
    b, lam = float(fitted.settings.options["text_weight"]), np.log(classes) / (12.5**2 * numbers.n)
    assert abs(b / (0.5 * np.exp(found.x)) - 1) < 2e-3

    def loss(parameters: Parameters, rows: Array) -> tuple[float, Parameters]:
        (step,) = parameters
        value, slope = cross_entropy(b * p[rows] @ numbers.t.T + features[rows] @ step, numbers.y[rows])
        return value + lam * float((step**2).sum()), [features[rows].T @ slope + 2 * lam * step]

    (step,) = minimum(loss, [np.zeros((features.shape[1], classes))], np.arange(len(p)))

    def moved(x: Array) -> Array:
        own, standardised = embed(np.asarray(x, np.float64))
        return own + standardised @ step @ texts.T / b

    scale = 2 * b * np.linalg.norm(moved(numbers.rows), axis=1).mean()
    return fitted.logits(problem.x), scale * unit(moved(problem.x)) @ numbers.t.T
