"""A regression on top of zero-shot scores, which is still one matrix.

    logits_i = b (m p_i + r_i) T'  +  f_i E C,     f_i = x_i / |x_i|,   p_i = x_i W0 / c |x_i|

c is such that |p_i| is 1 on average, so that p_i T' are about the zero-shot cosines; r_i = offset_i / c |x_i|
where the head has an offset (a bias, a residual). b >= 0 says how far the texts are believed, m how much of
that is left beside labelled images. C [Do, K] minimises the mean cross-entropy plus lam |C|^2: a convex
problem (`regression`).

E is diagonal: each feature is divided by the root of its deviation over the labelled images, to which the
mean deviation of all is added (in squares). A few coordinates of CLIP's embeddings are ten to thirty times as
large as the others, and would have all the weight. |f_i E|^2 is 1 on average.

What is divided by is |x_i|, not the length of the embedding: a positive factor of an image changes no answer.
So with T = U S V' the answers are those of the matrix

    W = W0 (I - V V')  +  m W0 V V'  +  (c / b) E C U S^-1 V'

in the place of W0: x_i W T' is what stands above, times c |x_i| / b. Nothing is fitted outside span(T), where
W0 keeps its full weight for the sake of classes that are asked for later. With m = b = 0 it would be logistic
regression; with C = 0 it is zero-shot.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from prolip.core import Task
from prolip.core.arrays import Array, log_softmax, row_lengths
from prolip.solvers.regression import SoftmaxRegression
from prolip.solvers.threads import product

RANK = 1e-3  # singular values of T below this share of the largest are none: two classes of one name
EVENING = 0.5  # power of deviations; 1/3 and 1 are 0.1 to 0.2 points behind on average, 0 is 0.2
LEAST = 1e-3  # of the model's own scale: the smallest b, so that W0 is not lost altogether


@dataclass(frozen=True, eq=False)
class Residual:
    """A task in these terms: n rows (images times views), K classes, rank k of the texts."""

    task: Task
    y: Array  # [n]
    f: Array  # f E [n, Do]
    feature_weights: Array  # the diagonal of E [Do]
    c: float
    u: Array  # U [K, k]
    s: Array  # S [k]
    v: Array  # V [D, k]
    inside: Array  # p V [n, k]
    fixed: Array | float  # r V [n, k]
    outside: Array  # squared length of what p + r has outside span(T) [n]

    @classmethod
    def of(cls, task: Task) -> Residual:
        """Every view is rows of its own."""
        rows, y = task.rows()
        x, offset = task.linear.split(rows)
        lengths = np.maximum(row_lengths(x), 1e-30)
        embeddings = task.linear(rows).astype(np.float32)
        squared = np.square(embeddings).sum(axis=1)
        c = math.sqrt(max(float(squared.mean()), 1e-30) / float(np.square(lengths).mean()))
        u, s, vt = np.linalg.svd(task.text.rows.astype(np.float64), full_matrices=False)
        keep = s > RANK * s[0]
        u, s, v = u[:, keep], s[keep], vt[keep].T
        units = (c * lengths).astype(np.float32)
        whole = product(embeddings, v.astype(np.float32)) / units
        fixed: Array | float = 0.0
        if offset is not None:
            fixed = (np.atleast_2d(offset) @ v).astype(np.float32) / units
        outside = np.maximum(squared / units[:, 0] ** 2 - np.square(whole).sum(axis=1), 0)
        f = (x / lengths).astype(np.float32)
        weights = _feature_weights(f)
        return cls(task, y, f * weights, weights, c, u, s, v, whole - fixed, fixed, outside)

    def zero_shot(self, share: float = 1.0) -> Array:
        """(m p + r) T' [n, K]."""
        return ((share * self.inside + self.fixed) * self.s) @ self.u.T

    def trust(self) -> float:
        """b: how far the labelled images say the texts can be believed.

        It maximises the likelihood of the images under b times the zero-shot scores, with a normal prior
        whose deviation is the model's own scale: a few images that zero-shot gets right do not say that it is
        never wrong. The function is concave, and b is its root of the slope.
        """
        scores, every, images = self.zero_shot().astype(np.float64), np.arange(len(self.y)), self.task.views
        scale = self.task.scale

        def slope(b: float) -> float:
            p = np.exp(log_softmax(b * scores))
            gain = scores[every, self.y] - np.einsum("nk,nk->n", p, scores)
            return float(gain.sum()) / images - b / scale**2

        from scipy.optimize import brentq

        if slope(0.0) <= 0:
            return LEAST * scale
        high = scale
        while slope(high) > 0:
            high *= 2
        return max(float(brentq(slope, 0.0, high, xtol=1e-3 * scale, rtol=1e-3)), LEAST * scale)

    def regression(self, weights: Array | None = None) -> SoftmaxRegression:
        """The convex problem, for one or several weightings of the rows; its base is still zero."""
        basis = self.u if len(self.s) < self.task.classes else None
        return SoftmaxRegression(
            self.f, self.y, self.task.classes, weights=weights, intercept=False, basis=basis
        )

    def cosines(self, scores: Array, b: float, share: float) -> tuple[Array, Array]:
        """Cosines [n, K] with the texts under the matrix that f C [n, K] gives, and |x W| / c |x| [n]."""
        v = share * self.inside + self.fixed + (scores @ self.u) / (b * self.s)
        length = np.sqrt(np.maximum(np.square(v).sum(axis=1) + self.outside, 1e-30))
        return ((v * self.s) @ self.u.T) / length[:, None], length

    def weight(self, coefficients: Array, b: float, share: float) -> Array:
        """W [Do, D] of C [Do, K]."""
        w0 = self.task.linear.weight.astype(np.float64)
        step = self.feature_weights[:, None] * (coefficients @ self.u)
        inside = (share - 1) * (w0 @ self.v) + (self.c / b) * step / self.s
        return (w0 + inside @ self.v.T).astype(self.task.linear.weight.dtype)


def _feature_weights(f: Array) -> Array:
    """The diagonal of E [Do] for unit rows f [n, Do]."""
    squares = np.einsum("nd,nd->d", f, f, dtype=np.float64) / len(f)
    variances = np.maximum(squares - np.square(f.mean(axis=0, dtype=np.float64)), 0)
    weights = (variances + variances.mean() + 1e-12) ** (-EVENING / 2)
    return (weights / math.sqrt(squares @ np.square(weights))).astype(np.float32)
