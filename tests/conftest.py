"""Shared settings: one thread per worker, and the folder of real data."""

import os
from pathlib import Path

import pytest
import torch

# Two pytest workers with two threads each would wait for each other more than compute.
torch.set_num_threads(1)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder named by DNLNET_DATA; tests on real data are skipped without it."""
    folder = os.environ.get("DNLNET_DATA")
    if not folder:
        pytest.skip("real data not found: set DNLNET_DATA to its folder")
    return Path(folder)
