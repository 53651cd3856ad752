"""The scalar side of a line search, for B problems at once.

A step is far if it does not lower the value enough, and short if it lowers it by nearly all that the slope
promised: then there is more to gain further on. No slope but the first is needed, and none is computed.
Numbers per problem are NumPy's: on arrays this small they take a fraction of the time that tensors take.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from torch import Tensor

Numbers = npt.NDArray[np.float64]  # [B]

ENOUGH, ALL = 1e-4, 0.9  # of what the slope promised: what a step must gain, and what it must not


def numbers(x: Tensor) -> Numbers:
    """One number per problem [B], where Python can use it."""
    return x.cpu().double().numpy()


class LineSearch:
    """Lengths to try. A far step is shortened, to the last short one if there is any; a short one lengthened.

    Parameters
    ----------
    value, slope
        At the start [B]; the slope is negative.
    noise
        What values may differ by for rounding alone [B].
    """

    def __init__(self, value: Numbers, slope: Numbers, noise: Numbers) -> None:
        self.value, self.slope, self.noise = value, slope, noise
        self.best, self.best_value = np.zeros_like(slope), value  # of the steps known to be short
        self.bounded = np.zeros(len(slope), dtype=bool)  # whether a step is known to be far

    def next(self, t: Numbers, value: Numbers, last: bool) -> Numbers | None:
        """Better steps than t [B], where values are these; None if all are good.

        `last`: of the problems whose step is still too far, the best step known.
        """
        promised = t * self.slope
        far = ~(value <= np.minimum(self.value + ENOUGH * promised, self.best_value) + self.noise)
        short = ~far & ~self.bounded & (value < self.value + ALL * promised - self.noise)
        if not (far | short).any():
            return None
        self.bounded = self.bounded | far
        self.best, self.best_value = np.where(short, (t, value), (self.best, self.best_value))
        with np.errstate(all="ignore"):  # inf and nan are dealt with
            lowest = -promised * t / (2 * (value - self.value - promised))  # of a parabola
        inner = np.clip(np.nan_to_num(lowest, nan=0.0), 0.05 * t, 0.5 * t)
        back = self.best if last else np.where(self.best > 0, self.best, inner)
        return np.where(far, back, np.where(short, 2.5 * t, t))
