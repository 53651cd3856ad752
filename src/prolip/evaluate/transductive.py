"""Many images classified together: each class is a cluster that labelled and unlabelled ones share.

With f the direction of an image before the projection, in its r first principal axes, classes are Gaussians
with one covariance S,

    g_ik   = f_i . S^-1 mu_k  -  mu_k' S^-1 mu_k / 2  +  tr(S^-1 W) var_k / 2
    q_ik  ~  p_ik  exp(beta g_ik)  pi_k

where p_ik are the model's own answers about image i alone, and mean, covariance and shares come from what all
images are taken for, in turns (EM), with every labelled image in its class and each unlabelled one there in
the parts q_i:

    mu_k = (sum of the labelled images + sum_i r_i q_ik f_i) / (their number + n_k),    n_k = sum_i r_i q_ik
    W    = the scatter of all around their means,     S = (1 - s) W + s tr(W) / r I,    s = 2 r / (2 r + n)
    pi_k = (n_k / n + UNIFORM / K) / (1 + UNIFORM)

So a mean goes from its labelled images to the cluster around them as far as that has images; a class that is
absent keeps its own. var_k is the variance of mu_k in units of W: a mean of few images is longer than the
class's, and without this term such a class would lose what belongs to it. The shares let any number of
classes be present; a third of them is uniform, so that none is ruled out. beta is the number at which
softmax(beta g + log pi) is likeliest to give the q of the turn before: Gaussians in many dimensions are far
too sure of themselves. r_i in [0, 1] says how far an image belongs to any class (`Outsiders.weights`).

All of it is sums over images: time and memory grow in proportion to their number.

Related: TransCLIP (arXiv 2406.01837) and StatA (arXiv 2501.03729) fit such mixtures, with diagonal
covariances around text statistics. docs/unlabelled.md has what was tried and measured.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from prolip.core.arrays import Array, log_softmax, one_hot_sum, unit_rows
from prolip.solvers.threads import parallel_matmul, single_thread

DIMENSIONS, PER_CLASS = 96, 4  # r is the larger of the first and K times the second; at most MOST
MOST = 512
SAMPLE = 4096  # rows that the axes are found from, and 1/8 of it those that beta is
UNIFORM = 0.5
TURNS = 12
RENEWED = (0, 1, 3, 7)  # turns in which the covariance is; between them it hardly changes
TOLERANCE = 3e-3  # mean change of an image's answers, summed over classes, at which the turns end
BETA = (math.log(1e-3), math.log(10.0))


@dataclass(frozen=True, eq=False)
class Axes:
    """Principal axes of directions: f = (x / |x| - mean) axes."""

    mean: Array  # [Do]
    axes: Array  # [Do, r]
    variances: Array  # [r]

    @classmethod
    def of(cls, x: Array, classes: int) -> Axes:
        """The axes of inputs [n, Do]; of very many, of so many spread evenly over them.

        By a random start and a turn of the power method (Halko, Martinsson and Tropp, 2011, algorithm
        4.3), with a few axes more than are wanted.
        """
        from scipy.linalg import qr

        x = unit_rows(x[:: -(-len(x) // SAMPLE)].astype(np.float32, copy=False))
        mean = x.mean(axis=0)
        x = x - mean
        rank = max(1, min(max(DIMENSIONS, PER_CLASS * classes), MOST, len(x) - 1, x.shape[1]))
        start = np.random.default_rng(0).standard_normal((len(x), min(rank + 16, *x.shape)), np.float32)
        with single_thread():
            q = parallel_matmul(x.T, parallel_matmul(x, parallel_matmul(x.T, start)))
            q = qr(q, mode="economic", overwrite_a=True, check_finite=False)[0]  # NumPy's is in float64
            inside = parallel_matmul(x, q)
            values, vectors = np.linalg.eigh(inside.T @ inside)
        axes = q @ vectors[:, ::-1][:, :rank]
        return cls(mean, axes, np.maximum(values[::-1][:rank], 0) / len(x))

    def __call__(self, x: Array) -> Array:
        """Coordinates f [n, r] of inputs [n, Do]."""
        x = x.astype(np.float32, copy=False)
        lengths = np.sqrt(np.einsum("nd,nd->n", x, x))
        return parallel_matmul(x, self.axes) / np.maximum(lengths, 1e-30)[:, None] - self.mean @ self.axes


@dataclass(frozen=True, eq=False)
class Gaussians:
    """The Gaussians that were found.

    Attributes
    ----------
    weight, offset
        Discriminants S^-1 mu_k [K, r] and the rest of g [K].
    beta
        What g is multiplied by.
    counts
        n_k [K]: how many unlabelled images each class has.
    answers
        log q [m, K] of the unlabelled images.
    """

    weight: Array
    offset: Array
    beta: float
    counts: Array
    answers: Array

    def scores(self, f: Array) -> Array:
        """What the clusters say, beta g [n, K], of coordinates [n, r]."""
        return self.beta * (parallel_matmul(f, self.weight.T) + self.offset)


def fit_gaussians(f: Array, y: Array, pool: Array, logits: Array, weights: Array) -> Gaussians:
    """Gaussians of labelled images f [n, r] with labels y [n] and unlabelled ones [m, r].

    `logits` [m, K] are the model's calibrated ones for the unlabelled images, `weights` r [m].
    """
    classes, own = logits.shape[1], log_softmax(logits).astype(np.float32)
    weights = np.maximum(weights, 1e-6).astype(np.float32)[:, None]
    labelled = np.bincount(y, minlength=classes).astype(np.float32)
    sums = one_hot_sum(f, y, classes)
    scatter = f.T @ f + parallel_matmul((weights * pool).T, pool)
    some = slice(None, None, -(-len(pool) * 8 // SAMPLE))
    with single_thread():
        q = _by_shares(own, weights)
        for turn in range(TURNS):
            parts = weights * q
            means = _Means.of(sums + parts.T @ pool, labelled, parts)
            if turn in RENEWED:
                precision, effective = means.precision(scatter)
            weight, offset = means.discriminants(precision, effective)
            shares = _shares(parts)
            g = parallel_matmul(pool, weight.T) + offset
            beta = _likeliest_beta(g[some], np.log(shares), parts[some])
            answers = log_softmax(own + beta * g + np.log(shares))
            before, q = q, np.exp(answers)
            if float(np.abs(q - before).sum(axis=1).mean()) < TOLERANCE:
                break
    return Gaussians(weight, offset, beta, parts.sum(axis=0), answers)


def recognise(gaussians: Gaussians, pool: Array, weights: Array, f: Array, y: Array) -> Array:
    """Which labelled images [n] the classes recognise by their unlabelled images alone: 1, 0, or NaN where a
    class has none. The labelled images had a say in which these are, but are in no mean.
    """
    parts = np.maximum(weights, 1e-6).astype(np.float32)[:, None] * np.exp(gaussians.answers)
    scatter = parallel_matmul((parts.sum(axis=1)[:, None] * pool).T, pool)
    means = _Means.of(parts.T @ pool, np.zeros(len(gaussians.counts), np.float32), parts)
    weight, offset = means.discriminants(*means.precision(scatter))
    right = ((f @ weight.T + offset).argmax(axis=1) == y).astype(np.float64)
    return np.where(parts.sum(axis=0)[y] >= 1, right, np.nan)


@dataclass(frozen=True, eq=False)
class _Means:
    """Class means mu [K, r], of how many images each [K], and their variances in units of W [K]."""

    mean: Array
    count: Array
    variance: Array

    @classmethod
    def of(cls, sums: Array, labelled: Array, parts: Array) -> _Means:
        """Of sums [K, r] over labelled images, so many a class, and unlabelled ones in these parts [m, K]."""
        count = np.maximum(labelled + parts.sum(axis=0), 1e-6)
        variance = (labelled + np.square(parts).sum(axis=0)) / count**2
        return cls(sums / count[:, None], count, variance)

    def precision(self, scatter: Array) -> tuple[Array, float]:
        """S^-1 [r, r] and tr(S^-1 W), of the whole scatter around zero."""
        rank, total = len(scatter), float(self.count.sum())
        between = (self.mean * self.count[:, None]).T @ self.mean
        within = (scatter - between) / max(total - len(self.count), 1.0)
        spread = max(float(np.trace(within)) / rank, 1e-12)
        share = 2 * rank / (2 * rank + total)
        inverse = np.linalg.inv((1 - share) * within + share * spread * np.eye(rank, dtype=within.dtype))
        return inverse, float((inverse * within).sum())

    def discriminants(self, precision: Array, effective: float) -> tuple[Array, Array]:
        """S^-1 mu [K, r], and the rest of g [K]."""
        weight = self.mean @ precision
        return weight, 0.5 * (effective * self.variance - (weight * self.mean).sum(axis=1))


def _shares(parts: Array) -> Array:
    counts = parts.sum(axis=0)
    return (counts / counts.sum() + UNIFORM / len(counts)) / (1 + UNIFORM)


def _by_shares(own: Array, weights: Array) -> Array:
    """The model's own answers, with the shares of classes among them taken into account."""
    q = np.exp(own)
    for _ in range(5):
        q = np.exp(log_softmax(own + np.log(_shares(weights * q))))
    return q


def _likeliest_beta(g: Array, log_shares: Array, parts: Array) -> float:
    from scipy.optimize import minimize_scalar

    def cost(log_beta: float) -> float:
        return -float((parts * log_softmax(math.exp(log_beta) * g + log_shares)).sum())

    return math.exp(minimize_scalar(cost, bounds=BETA, method="bounded", options={"xatol": 0.05}).x)
