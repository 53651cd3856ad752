"""The scalar side of a line search, for B problems at once.

A step is far if it does not lower the value enough, and short if the slope there is still steep. Numbers per
problem are NumPy's: on arrays this small they take a fraction of the time that tensors take.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from torch import Tensor

Numbers = npt.NDArray[np.float64]  # [B]

STEEP = 0.9  # a step is too short while the slope is more than this share of the first


def numbers(x: Tensor) -> Numbers:
    """One number per problem [B], where Python can use it."""
    return x.cpu().double().numpy()


class Bracket:
    """Between the longest step known to be short and the shortest known to be far.

    Parameters
    ----------
    value, slope
        At the start [B].
    noise
        What values may differ by for rounding alone [B].
    """

    def __init__(self, value: Numbers, slope: Numbers, noise: Numbers) -> None:
        self.value, self.slope, self.noise = value, slope, noise
        self.low, self.high = np.zeros_like(slope), np.full_like(slope, np.inf)
        self.low_value = value

    def next(self, t: Numbers, value: Numbers, slope: Numbers, last: bool) -> Numbers | None:
        """Better steps than t [B], where value and slope are these; None if all are good.

        `last`: of the problems whose step is still too far, the best step known.
        """
        enough = np.minimum(self.value + 1e-4 * t * self.slope, self.low_value) + self.noise
        far = ~(value <= enough)
        short = ~far & (slope < STEEP * self.slope) & (t > 0)
        if not (far | short).any():
            return None
        self.low_value = np.where(short, value, self.low_value)
        self.low, self.high = np.where(short, t, self.low), np.where(far, t, self.high)
        with np.errstate(all="ignore"):  # inf and nan are dealt with
            excess = value - self.value - self.slope * t
            parabola = np.nan_to_num(-self.slope * t * t / (2 * excess), nan=0.0)
            width = self.high - self.low
            inner = np.clip(parabola, self.low + 0.05 * width, self.low + 0.5 * width)
            outer = np.where(np.isinf(self.high), 2.5 * t, self.low + 0.5 * width)
        t = np.where(far, inner, np.where(short, outer, t))
        return np.where(far, self.low, t) if last else t
