import pytest
import torch

from pictures import COLOURS, blotch  # noqa: F401  (test files import them from whichever conftest they find)


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """Test processes run side by side, and torch would take every core for each."""
    torch.set_num_threads(1)
