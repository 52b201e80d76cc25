"""Data sets of image files: folders of them, one folder for each class, or all in one."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

import numpy as np

from nnl_core.data.locations import read_options, split_options
from nnl_core.data.source import Array, Ids
from nnl_core.errors import DataError
from nnl_core.graph.spec import Spec
from nnl_core.hooks.loading import describe

if TYPE_CHECKING:
    from PIL.Image import Image

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm")

Colour: TypeAlias = Literal["rgb", "grey", "as stored"]
Fit: TypeAlias = Literal["stretch", "crop"]


class ImageFolder:
    """Images below a folder: field ``x``, and the number ``y`` of the sub-folder that each is in.

    Classes are the sub-folders in the order of their names; a folder that holds the images itself
    has no ``y``. An image is ``uint8`` of shape (channels, height, width), 3 channels or, with
    ``colour="grey"``, one. With ``size``, (height, width), it is brought to that: ``"stretch"``
    scales height and width each on its own, ``"crop"`` scales both alike until the image covers
    the size, and cuts off what stands over. Without, all images must have the same size.

    Raises DataError where there is no image, one cannot be read, or sizes differ.
    """

    def __init__(
        self,
        folder: Path,
        *,
        size: tuple[int, int] | None = None,
        colour: Literal["rgb", "grey"] = "rgb",
        fit: Fit = "stretch",
        wanted: Sequence[str] | None = None,
    ) -> None:
        folder = Path(folder)
        if not folder.is_dir():
            raise DataError(f"no folder {folder}")
        if size is not None and min(size) < 1:
            raise DataError(f"{folder}: an image has at least one pixel, not {size}")
        self.name = folder.name
        self._folder = folder
        self._how = (size, colour, fit)
        flat = sorted(path.name for path in folder.iterdir() if _is_image(path))
        sub_folders = sorted(path for path in folder.iterdir() if _is_class(path))
        inside = [_images_in(path) for path in sub_folders]
        if flat and any(inside):
            raise DataError(
                f"{folder} holds images ({flat[0]}) and folders of images; a class is a folder"
            )
        self.classes = tuple(path.name for path in sub_folders) if any(inside) else ()
        self.files = flat or [
            path.relative_to(folder).as_posix() for found in inside for path in found
        ]
        if not self.files:
            raise DataError(f"{folder} holds no images; known: {', '.join(SUFFIXES)}")
        self._labels = np.repeat(np.arange(len(inside)), [len(found) for found in inside])
        first = self._read(0)
        self.fields = {"x": Spec.of(first)}
        if self.classes:
            self.fields["y"] = Spec((), self._labels.dtype)
        for field in wanted or ():
            if field not in self.fields:
                raise DataError(f"{folder} has no field {field!r}; it has {', '.join(self.fields)}")

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.files)

    @property
    def fingerprint(self) -> str:
        """What tells these contents from others: names, sizes and times of the files."""
        return f"{self._how} {files_digest(self._folder, self.files)}"

    def take(self, ids: Ids) -> dict[str, Array]:
        """Read the images of these numbers, and stack them."""
        spec = self.fields["x"]
        images = np.empty((len(ids), *spec.shape), spec.dtype)
        for row, number in enumerate(ids.tolist()):
            images[row] = self._read(number)
        return {"x": images, "y": self._labels[ids]} if self.classes else {"x": images}

    def _read(self, number: int) -> Array:
        size, colour, fit = self._how
        path = os.path.join(self._folder, self.files[number])
        image = read_image(path, size=size, colour=colour, fit=fit)
        if number and image.shape != self.fields["x"].shape:
            shape = self.fields["x"].shape
            raise DataError(
                f"{path} is of {image.shape[1]} x {image.shape[2]} pixels, {self.files[0]} of "
                f"{shape[1]} x {shape[2]}; give a size to bring all images to"
            )
        return image


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in SUFFIXES and not path.name.startswith(".") and path.is_file()


def _is_class(path: Path) -> bool:
    return path.is_dir() and not path.name.startswith(".")


def _images_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if _is_image(path))


def files_digest(folder: Path, files: Iterable[str]) -> str:
    """Digest the names, sizes and times of files, so that a change to one of them shows."""
    digest = hashlib.blake2b(digest_size=16)
    for name in files:
        try:
            found = (folder / name).stat()
        except OSError as error:
            raise DataError(f"cannot read {folder / name}: {describe(error)}") from error
        digest.update(f"{name}\0{found.st_size}\0{found.st_mtime_ns}\0".encode())
    return digest.hexdigest()


def read_image(
    path: str | os.PathLike[str],
    *,
    size: tuple[int, int] | None = None,
    colour: Colour = "rgb",
    fit: Fit = "stretch",
) -> Array:
    """Read an image file as ``uint8`` of shape (channels, height, width).

    ``"as stored"`` gives one channel for grey images, three for all others. Of 16 bits the upper 8
    are kept. Raises DataError where the file cannot be read.
    """
    try:
        from PIL import Image, ImageOps
    except ImportError as error:
        raise DataError(
            f"{path}: images are read with pillow, which is not installed; "
            "pip install 'nnl-core[standard]'"
        ) from error
    try:
        with Image.open(path) as opened:
            if opened.mode == "F":  # of no known range: clipped to 0 to 255, little would be left
                raise DataError("its pixels are floating-point numbers; keep such as .npy or .npz")
            image: Image.Image = opened if not _is_deep(opened) else _upper_bits(opened)
            grey = colour == "grey" or (colour == "as stored" and image.mode in ("1", "L", "LA"))
            mode = "L" if grey else "RGB"
            image = image if image.mode == mode else image.convert(mode)
            if size is not None and (image.height, image.width) != size:
                target = size[1], size[0]
                bilinear = Image.Resampling.BILINEAR
                image = (
                    ImageOps.fit(image, target, method=bilinear)
                    if fit == "crop"
                    else image.resize(target, bilinear)
                )
            pixels = np.asarray(image)
    except Exception as error:  # damaged files raise anything from SyntaxError to struct.error
        raise DataError(f"cannot read {os.fspath(path)}: {describe(error)}") from error
    return np.ascontiguousarray(pixels[np.newaxis] if grey else pixels.transpose(2, 0, 1))


def _is_deep(image: Image) -> bool:
    return image.mode.startswith("I")


def _upper_bits(image: Image) -> Image:
    from PIL import Image as module

    return module.fromarray(
        (np.asarray(image).astype(np.int64).clip(0, 65535) >> 8).astype(np.uint8)
    )


def open_images(location: str, wanted: Sequence[str] | None = None) -> ImageFolder:
    """Open ``FOLDER?size=32x48&colour=grey&fit=crop``; each of the options may be missing."""
    path, text = split_options(location)
    options = read_options(
        text, location, {"size": None, "colour": ("rgb", "grey"), "fit": get_args(Fit)}
    )
    size = None
    if "size" in options:
        parts = options["size"].split("x")
        if len(parts) > 2 or not all(part.isdecimal() for part in parts):
            raise DataError(f"{location}: size = {options['size']!r}: write size=32 or size=32x48")
        size = int(parts[0]), int(parts[-1])
    return ImageFolder(
        Path(path),
        size=size,
        colour="grey" if options.get("colour") == "grey" else "rgb",
        fit="crop" if options.get("fit") == "crop" else "stretch",
        wanted=wanted,
    )
