"""Transductive baselines: all test images, or a batch of them, are classified together.

Images are unit embeddings f_i, y_i their probabilities by a model for single images, w_ij = f_i . f_j for the
three nearest images j of each i. Both methods alternate between assignments z_i of images to classes and
Gaussians N(mu_k, S_k) with diagonal covariances:

    z_ik  ~  y_ik  N(f_i; mu_k, S_k)  exp( sum_j w_ij z_jk )          5 times, with the z_j of the last time

**TransCLIP** (Zanella et al., 2024, arXiv 2406.01837), its zero-shot form, has one covariance S:

    mu_k = mean of the f_i, weighted by z_ik,      S = mean_i sum_k z_ik (f_i - mu_k)^2

It starts from the mean of the 8 surest images of each class and S = 1 / D, with an assignment.

**StatA** (Zanella et al., 2025, arXiv 2501.03729) has no labels, and holds each Gaussian at one of its text,
N(t_k, S') with S' = mean_i sum_k y_ik (f_i - t_k)^2, by alpha KL( N(t_k, S') || N(mu_k, S_k) ), alpha = 1:

    mu_k = ( sum_i z_ik f_i + alpha t_k ) / ( n_k + alpha ),      n_k = sum_i z_ik
    S_k  = ( sum_i z_ik (f_i - mu_k)^2 + alpha (S' + (mu_k - t_k)^2) ) / ( n_k + alpha )

It starts from the Gaussians of z = y. A class that is not there keeps its text.

There are 10 rounds. Both are written from the equations of the papers, not from their programs: what
the equations leave open (neighbours, rounds, where StatA starts) is ours. Our own transductive prediction
(`evaluate.unlabelled`) is the third; it also takes labelled images.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from prolip.core import Fitted, Task, UsageError
from prolip.core.arrays import Array, log_softmax, unit_rows
from prolip.evaluate import Confidence, metrics
from prolip.evaluate.transductive import Axes, fit_gaussians
from prolip.evaluate.unlabelled import predict_transductive
from prolip.research.protocols.encoded_dataset import EncodedDataset
from prolip.research.protocols.run import Run

ROUNDS, Z_STEPS, NEIGHBOURS, SUREST = 10, 5, 3, 8
BATCHES, BATCH, BATCH_CLASSES = 100, 64, 4
BLOCK = 2048  # images whose neighbours are searched at a time


@dataclass(frozen=True, eq=False)
class Pool:
    """Images to classify together, and what is known of them."""

    x: Array  # features [n, width]
    f: Array  # unit embeddings [n, D]
    logits: Array  # of a model for single images [n, K]
    fitted: Fitted  # the model
    task: Task  # that it was fitted on
    confidence: Confidence | None = None  # of the model; None for zero-shot


def transclip(pool: Pool) -> Array:
    """Return assignments z [n, K] by TransCLIP."""
    f, own = pool.f, log_softmax(pool.logits)
    means = f[np.argsort(-own, axis=0)[:SUREST]].mean(axis=0)
    spread, near, z = np.full(f.shape[1], 1 / f.shape[1]), neighbours(f), np.exp(own)
    for _ in range(ROUNDS):
        z = _assign(own + log_density(f, means, spread[None]), near, z)
        count = z.sum(axis=0)
        means = z.T @ f / np.maximum(count, 1e-12)[:, None]
        around = np.square(f).sum(axis=0) - count @ np.square(means)
        spread = np.maximum(around / len(f), 1e-8)
    return z


def stata(pool: Pool) -> Array:
    """Return assignments z [n, K] by StatA."""
    f, own, text = pool.f, log_softmax(pool.logits), pool.task.text.rows.astype(pool.f.dtype)
    z, near, squares = np.exp(own), neighbours(f), np.square(f)
    anchor = (z.T @ squares - 2 * text * (z.T @ f) + z.sum(axis=0)[:, None] * np.square(text)).sum(axis=0)
    anchor /= len(f)  # S' [D]
    for _ in range(ROUNDS):
        z = _assign(own + log_density(f, *anchored_gaussians(f, z, text, anchor, 1.0)), near, z)
    return z


def anchored_gaussians(f: Array, z: Array, text: Array, anchor: Array, alpha: float) -> tuple[Array, Array]:
    """Return StatA's means and variances [K, D] for assignments z."""
    count = z.sum(axis=0)[:, None]
    sums = z.T @ f
    means = (sums + alpha * text) / (count + alpha)
    around = z.T @ np.square(f) - 2 * means * sums + count * np.square(means)
    return means, (around + alpha * (anchor + np.square(means - text))) / (count + alpha)


def joint(pool: Pool) -> Array:
    """Return our own transductive probabilities [n, K]."""
    if pool.confidence is not None:
        return predict_transductive(pool.fitted, pool.confidence, pool.task, pool.x).probabilities
    axes = Axes.of(pool.x, pool.logits.shape[1])
    f = axes(pool.x)
    found = fit_gaussians(f[:0], np.zeros(0, np.int64), f, pool.logits, np.ones(len(f), np.float32))
    return np.exp(found.log_posterior)


def log_density(f: Array, means: Array, spread: Array) -> Array:
    """Return log N(f_i; mu_k, diag S_k) [n, K] up to a constant; spread is [K, D], or [1, D] for all."""
    inverse = (1 / spread).astype(f.dtype)
    weight = means * inverse
    constant = (weight * means).sum(axis=1) + np.log(spread).sum(axis=1)
    densities: Array = -0.5 * (np.square(f) @ inverse.T - 2 * f @ weight.T + constant)
    return densities


def neighbours(f: Array) -> csr_array:
    """Return the cosines w [n, n] of each image with its nearest others; the rest are zero."""
    n, count = len(f), min(NEIGHBOURS, len(f) - 1)
    columns, values = np.zeros((n, count), np.int64), np.zeros((n, count), f.dtype)
    for first in range(0, n, BLOCK):
        cosines = f[first : first + BLOCK] @ f.T
        rows = np.arange(len(cosines))
        cosines[rows, first + rows] = -np.inf
        found = np.argpartition(-cosines, max(count - 1, 0), axis=1)[:, :count]
        columns[first : first + BLOCK] = found
        values[first : first + BLOCK] = np.maximum(cosines[rows[:, None], found], 0)
    return csr_array((values.ravel(), columns.ravel(), np.arange(0, n * count + 1, max(count, 1))), (n, n))


def _assign(logits: Array, near: csr_array, z: Array) -> Array:
    for _ in range(Z_STEPS):
        z = np.exp(log_softmax(logits + near @ z))
    return z


JOINT: dict[str, Callable[[Pool], Array]] = {"joint": joint, "transclip": transclip, "stata": stata}


def classify_together(
    dataset: EncodedDataset, run: Run, method: str = "joint", few_classes: bool = False
) -> dict[str, Any]:
    """Measure accuracy with all test images classified together, on top of the run's method.

    With `few_classes`, in 100 batches of 64 test images of 1 to 4 classes instead.
    """
    task, start = run.task(dataset, run.draw(dataset).train), run.create()
    if start.name == "zero_shot":
        fitted, confidence = start.fit(task), None
    elif method == "joint":
        fitted, held_out = start.fit_held_out(task)
        confidence = Confidence.of(fitted, task, held_out)
    else:
        raise UsageError(f"{method} takes no labelled images: its line is one of zero_shot")
    x, y = dataset.test_split(fitted)
    logits, f = fitted.logits(x), unit_rows(task.linear(x))
    accuracies = []
    for some in _batches(y, run.seed) if few_classes else [np.arange(len(y))]:
        pool = Pool(x[some], f[some], logits[some], fitted, task, confidence)
        accuracies.append(metrics.accuracy(JOINT[method](pool), y[some]))
    return {"accuracy": float(np.mean(accuracies))}


def _batches(y: Array, seed: int) -> Iterator[Array]:
    """Yield places of test images, a few classes at a time."""
    rng, classes = np.random.default_rng(seed), np.unique(y)
    for _ in range(BATCHES):
        count = rng.integers(1, min(BATCH_CLASSES, len(classes)) + 1)
        mine = np.flatnonzero(np.isin(y, rng.choice(classes, count, replace=False)))
        yield rng.permutation(mine)[:BATCH]
