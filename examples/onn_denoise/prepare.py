"""Make pictures.npz from pictures of scikit-image: ``python prepare.py`` (needs scikit-image)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from skimage import data
from skimage.color import rgb2gray
from skimage.transform import downscale_local_mean

# All of them are in the public domain, or given to it by their authors (CC0).
TRAIN = {"astronaut": 16, "coffee": 15, "rocket": 15, "brick": 12, "gravel": 12}
TEST = {"camera": 16, "chelsea": 6}
SIDE = 60


def crops(name: str, count: int) -> np.ndarray:
    """Return squares of a picture, grey and half as large, spread evenly over it."""
    picture = getattr(data, name)()
    grey = 255 * rgb2gray(picture) if picture.ndim == 3 else picture
    half = downscale_local_mean(grey, (2, 2)).round().astype(np.uint8)
    rows, columns = (length // SIDE for length in half.shape)
    squares = half[: rows * SIDE, : columns * SIDE].reshape(rows, SIDE, columns, SIDE)
    squares = squares.swapaxes(1, 2).reshape(-1, SIDE, SIDE)
    return squares[np.linspace(0, len(squares) - 1, count).round().astype(int)]


if __name__ == "__main__":
    np.savez_compressed(
        Path(__file__).with_name("pictures.npz"),
        train=np.concatenate([crops(name, count) for name, count in TRAIN.items()]),
        test=np.concatenate([crops(name, count) for name, count in TEST.items()]),
    )
