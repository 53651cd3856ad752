"""torch tensors wherever arrays are taken; NumPy is what comes out."""

import numpy as np
import pytest
import torch

from prolip import Head, Task, methods
from prolip.io.files import sha256_tensors
from prolip.io.reading import parse_tensors
from prolip.io.writing import write_tensors


def gaussian(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_task_of_tensors_is_the_task_of_their_values(dtype):
    x, y, text = gaussian(12, 6).to(dtype), torch.arange(12) % 3, gaussian(3, 4, seed=1)
    weight = gaussian(6, 4, seed=2).requires_grad_()
    tensors = Task(x, y, text, Head(weight), 20.0)
    values = x.float().numpy()
    arrays = Task(values, y.numpy(), text.numpy(), Head(weight.detach().numpy()), 20.0)
    method = methods.create("prolip", lam=0.1)
    found, expected = method.fit(tensors).logits(x), method.fit(arrays).logits(values)
    assert isinstance(found, np.ndarray)
    np.testing.assert_array_equal(found, expected)


def test_tensors_are_written_and_hashed_like_arrays(tmp_path):
    tensor = gaussian(3, 4).T  # not contiguous
    path = tmp_path / "t.safetensors"
    write_tensors(path, {"t": tensor})
    np.testing.assert_array_equal(parse_tensors(path.read_bytes(), path)["t"], tensor.numpy())
    assert sha256_tensors([("t", tensor)]) == sha256_tensors([("t", tensor.numpy())])
