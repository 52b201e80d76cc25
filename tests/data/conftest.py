"""What tests of data share."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image


@pytest.fixture
def functions(monkeypatch):
    """The module of functions that worker processes can import as well."""
    monkeypatch.syspath_prepend(Path(__file__).parent)
    return importlib.import_module("worker_functions")


@pytest.fixture
def picture():
    """Write an image of random pixels, (height, width) or (height, width, 3), and return them."""
    rng = np.random.default_rng(0)

    def write(path, shape):
        pixels = rng.integers(0, 256, shape, np.uint8)
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)
        return pixels

    return write
