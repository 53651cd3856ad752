"""Class clusters of labelled and unlabelled images: a Gaussian mixture, fitted by EM.

With f the direction of an image before the projection, in its r first principal axes, classes are Gaussians
with one covariance S,

    g_ik   = f_i . S^-1 mu_k  -  mu_k' S^-1 mu_k / 2  +  tr(S^-1 W) var_k / 2
    q_ik  ~  p_ik  exp(beta g_ik)  pi_k

where p_ik are the model's probabilities for image i alone. Means, covariance and shares come from the labels
of labelled images and the posteriors q_i of unlabelled ones:

    mu_k = (sum of the labelled images + sum_i r_i q_ik f_i) / (their number + n_k),    n_k = sum_i r_i q_ik
    W    = the scatter of all around their means,     S = (1 - s) W + s tr(W) / r I,    s = 2 r / (2 r + n)
    pi_k = (n_k / n + UNIFORM / K) / (1 + UNIFORM)

var_k is the variance of mu_k in units of W: the mean of few images is too long, and without this term its
class would lose images. A third of the shares is uniform, so that no class is ruled out. beta is the most
likely number for softmax(beta g + log pi) to give the last q: Gaussians in many dimensions are overconfident.
r_i in [0, 1] is the weight of an image (`OutOfDistribution.weights`). Time and memory are linear in the
number of images.

Related: TransCLIP (arXiv 2406.01837) and StatA (arXiv 2501.03729) fit such mixtures, with diagonal
covariances around text statistics. docs/measurements/unlabelled.md has what was tried and measured.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from prolip.core.arrays import Array, log_softmax, one_hot_sum, unit_rows
from prolip.solvers.threads import parallel_matmul, single_thread

MIN_AXES, AXES_PER_CLASS, MAX_AXES = 96, 4, 512  # for r
MAX_AXES_ROWS = 4096  # rows that the axes are computed from; beta from 1/8 as many
UNIFORM = 0.5
MAX_EM_STEPS = 12
COVARIANCE_STEPS = (0, 1, 3, 7)  # steps that update the covariance, which hardly changes between them
EM_TOLERANCE = 3e-3  # mean change of the posterior of an image, summed over classes
LOG_BETA_RANGE = (math.log(1e-3), math.log(10.0))


@dataclass(frozen=True, eq=False)
class Axes:
    """Principal axes of directions: f = (x / |x| - mean) axes."""

    mean: Array  # [Do]
    axes: Array  # [Do, r]
    variances: Array  # [r]

    @classmethod
    def of(cls, x: Array, classes: int) -> Axes:
        """Compute the axes of inputs [n, Do], or of an even sample of them."""
        x = unit_rows(x[:: -(-len(x) // MAX_AXES_ROWS)].astype(np.float32, copy=False))
        mean = x.mean(axis=0)
        x = x - mean
        rank = max(1, min(max(MIN_AXES, AXES_PER_CLASS * classes), MAX_AXES, len(x) - 1, x.shape[1]))
        values, vectors = np.linalg.eigh(parallel_matmul(x.T, x))
        return cls(mean, vectors[:, ::-1][:, :rank], np.maximum(values[::-1][:rank], 0) / len(x))

    def __call__(self, x: Array) -> Array:
        """Return coordinates f [n, r] of inputs [n, Do]."""
        x = x.astype(np.float32, copy=False)
        lengths = np.sqrt(np.einsum("nd,nd->n", x, x))
        f: Array = parallel_matmul(x, self.axes) / np.maximum(lengths, 1e-30)[:, None] - self.mean @ self.axes
        return f


@dataclass(frozen=True, eq=False)
class Gaussians:
    """Fitted Gaussians."""

    weight: Array  # discriminants S^-1 mu_k [K, r]
    offset: Array  # the constant part of g [K]
    beta: float  # factor of g
    counts: Array  # n_k [K], the number of unlabelled images of each class

    def scores(self, f: Array) -> Array:
        """Return the scores beta g [n, K] of coordinates [n, r]."""
        return self.beta * (parallel_matmul(f, self.weight.T) + self.offset)


def fit_gaussians(f: Array, y: Array, pool: Array, logits: Array, weights: Array) -> Gaussians:
    """Fit Gaussians to labelled images f [n, r] with labels y [n] and unlabelled ones [m, r].

    `logits` [m, K] are the calibrated logits of the model for the unlabelled images, `weights` r [m].
    """
    classes, own = logits.shape[1], log_softmax(logits).astype(np.float32)
    weights = np.maximum(weights, 1e-6).astype(np.float32)[:, None]
    labelled = np.bincount(y, minlength=classes).astype(np.float32)
    sums = one_hot_sum(f, y, classes)
    scatter = f.T @ f + parallel_matmul((weights * pool).T, pool)
    some = slice(None, None, -(-len(pool) * 8 // MAX_AXES_ROWS))
    with single_thread():
        q = _by_shares(own, weights)
        for step in range(MAX_EM_STEPS):
            parts = weights * q
            means = _Means.of(sums + parts.T @ pool, labelled, parts)
            if step in COVARIANCE_STEPS:
                precision, effective = means.precision(scatter)
            weight, offset = means.discriminants(precision, effective)
            shares = _shares(parts)
            g = parallel_matmul(pool, weight.T) + offset
            beta = _likeliest_beta(g[some], np.log(shares), parts[some])
            before, q = q, np.exp(log_softmax(own + beta * g + np.log(shares)))
            if float(np.abs(q - before).sum(axis=1).mean()) < EM_TOLERANCE:
                break
    return Gaussians(weight, offset, beta, parts.sum(axis=0))


@dataclass(frozen=True, eq=False)
class _Means:
    """Class means mu [K, r], the number of images of each [K], and their variances in units of W [K]."""

    mean: Array
    count: Array
    variance: Array

    @classmethod
    def of(cls, sums: Array, labelled: Array, parts: Array) -> _Means:
        """Compute means from sums [K, r], labelled counts [K] and weighted posteriors [m, K]."""
        count = np.maximum(labelled + parts.sum(axis=0), 1e-6)
        variance = (labelled + np.square(parts).sum(axis=0)) / count**2
        return cls(sums / count[:, None], count, variance)

    def precision(self, scatter: Array) -> tuple[Array, float]:
        """Return S^-1 [r, r] and tr(S^-1 W), from the scatter around zero."""
        rank, total = len(scatter), float(self.count.sum())
        between = (self.mean * self.count[:, None]).T @ self.mean
        within = (scatter - between) / max(total - len(self.count), 1.0)
        spread = max(float(np.trace(within)) / rank, 1e-12)
        share = 2 * rank / (2 * rank + total)
        inverse = np.linalg.inv((1 - share) * within + share * spread * np.eye(rank, dtype=within.dtype))
        return inverse, float((inverse * within).sum())

    def discriminants(self, precision: Array, effective: float) -> tuple[Array, Array]:
        """Return S^-1 mu [K, r], and the constant part of g [K]."""
        weight = self.mean @ precision
        return weight, 0.5 * (effective * self.variance - (weight * self.mean).sum(axis=1))


def _shares(parts: Array) -> Array:
    counts = parts.sum(axis=0)
    shares: Array = (counts / counts.sum() + UNIFORM / len(counts)) / (1 + UNIFORM)
    return shares


def _by_shares(own: Array, weights: Array) -> Array:
    """Return the posteriors of the model, given the shares of classes among them."""
    q = np.exp(own)
    for _ in range(5):
        q = np.exp(log_softmax(own + np.log(_shares(weights * q))))
    return q


def _likeliest_beta(g: Array, log_shares: Array, parts: Array) -> float:
    from scipy.optimize import minimize_scalar

    def cost(log_beta: float) -> float:
        return -float((parts * log_softmax(math.exp(log_beta) * g + log_shares)).sum())

    return math.exp(minimize_scalar(cost, bounds=LOG_BETA_RANGE, method="bounded", options={"xatol": 0.05}).x)
