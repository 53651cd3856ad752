"""Comparing NumPy arrays with torch tensors."""

import numpy as np

from prolip.core.arrays import to_numpy


def assert_close(found, expected, atol=1e-5, rtol=1e-6):
    np.testing.assert_allclose(to_numpy(found), to_numpy(expected), atol=atol, rtol=rtol)
