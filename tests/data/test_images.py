"""Folders of images: which are found, what they are read as, and what is wrong with them."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from nnl_core.data import ImageFolder, open_source
from nnl_core.errors import DataError
from nnl_core.session import Session


def take(source, *ids):
    return source.take(np.array(ids, np.int64))


def test_sub_folders_are_classes_in_the_order_of_their_names(tmp_path, picture):
    pixels = {
        name: picture(tmp_path / name, (4, 5, 3))
        for name in ("dog/b.png", "cat/z.png", "cat/a.png", "cat/more/c.png")
    }
    source = ImageFolder(tmp_path)
    assert source.classes == ("cat", "dog")
    assert source.files == ["cat/a.png", "cat/more/c.png", "cat/z.png", "dog/b.png"]
    samples = take(source, 3, 0)
    assert samples["y"].tolist() == [1, 0]
    np.testing.assert_array_equal(samples["x"][0], pixels["dog/b.png"].transpose(2, 0, 1))
    np.testing.assert_array_equal(samples["x"][1], pixels["cat/a.png"].transpose(2, 0, 1))


def test_a_folder_of_images_alone_has_no_classes(tmp_path, picture):
    picture(tmp_path / "b.png", (4, 5, 3))
    picture(tmp_path / "a.png", (4, 5, 3))
    (tmp_path / "notes.txt").write_text("no image")
    picture(tmp_path / ".hidden.png", (9, 9))
    source = ImageFolder(tmp_path)
    assert (len(source), source.files, source.classes) == (2, ["a.png", "b.png"], ())
    assert source.fields.keys() == take(source, 0).keys() == {"x"}


def test_what_fields_say_is_so(tmp_path, picture):
    picture(tmp_path / "k" / "a.png", (4, 5, 3))
    source = ImageFolder(tmp_path, colour="grey")
    for field, array in take(source, 0).items():
        assert (array.shape[1:], array.dtype) == source.fields[field]
    assert source.fields["x"].shape == (1, 4, 5)


def test_grey_images_become_three_equal_channels_where_colour_is_asked_for(tmp_path, picture):
    pixels = picture(tmp_path / "a.png", (3, 3))
    image = take(ImageFolder(tmp_path), 0)["x"][0]
    np.testing.assert_array_equal(image, np.stack([pixels] * 3))


def test_grey_of_a_colour_is_its_weighted_sum(tmp_path):
    Image.new("RGB", (2, 2), (200, 100, 50)).save(tmp_path / "a.png")
    grey = take(ImageFolder(tmp_path, colour="grey"), 0)["x"]
    assert np.unique(grey).tolist() == [round(0.299 * 200 + 0.587 * 100 + 0.114 * 50)]


@pytest.mark.parametrize(
    ("image", "colour"),
    [
        (Image.new("RGBA", (2, 2), (1, 2, 3, 0)), [1, 2, 3]),
        (Image.new("1", (2, 2), 1), [255, 255, 255]),
        (Image.fromarray(np.full((2, 2), 0x1234, np.uint16)), [0x12, 0x12, 0x12]),
    ],
    ids=["alpha", "bits", "16 bits"],
)
def test_other_modes_become_eight_bits_of_three_channels(tmp_path, image, colour):
    image.save(tmp_path / "a.png")
    assert take(ImageFolder(tmp_path), 0)["x"][0, :, 1, 1].tolist() == colour


@pytest.mark.parametrize("fit", ["stretch", "crop"])
def test_a_size_brings_all_images_to_it(tmp_path, picture, fit):
    picture(tmp_path / "a.png", (4, 4))
    picture(tmp_path / "b.png", (9, 3))
    picture(tmp_path / "c.png", (6, 8))
    source = ImageFolder(tmp_path, size=(6, 8), fit=fit)
    assert take(source, 0, 1, 2)["x"].shape == (3, 3, 6, 8)


def test_an_image_that_has_the_size_is_not_touched(tmp_path, picture):
    pixels = picture(tmp_path / "a.png", (6, 8, 3))
    image = take(ImageFolder(tmp_path, size=(6, 8)), 0)["x"][0]
    np.testing.assert_array_equal(image, pixels.transpose(2, 0, 1))


def test_crop_keeps_the_middle_and_stretch_keeps_all(tmp_path):
    pixels = np.zeros((2, 6), np.uint8)
    pixels[:, 2:4] = 255  # black, white, black, each a square
    Image.fromarray(pixels).save(tmp_path / "a.png")
    crop = take(ImageFolder(tmp_path, size=(2, 2), fit="crop", colour="grey"), 0)["x"]
    assert crop.min() == 255
    stretch = take(ImageFolder(tmp_path, size=(2, 3), colour="grey"), 0)["x"]
    assert (stretch[..., 0] < 128).all() and (stretch[..., 1] > 128).all()


def test_images_of_two_sizes_are_an_error_that_says_what_to_do(tmp_path, picture):
    picture(tmp_path / "a.png", (4, 4))
    picture(tmp_path / "b.png", (4, 6))
    source = ImageFolder(tmp_path)
    with pytest.raises(DataError, match=r"b\.png is of 4 x 6 pixels, a\.png of 4 x 4; give a size"):
        take(source, 1)


@pytest.mark.parametrize("keep", [0, 20, -60])
def test_a_damaged_image_is_an_error_that_names_it(tmp_path, picture, keep):
    for name in ("a.png", "b.png"):
        picture(tmp_path / name, (16, 16))
    path = tmp_path / "b.png"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(DataError, match=r"cannot read .*b\.png"):
        take(ImageFolder(tmp_path), 0, 1)


def test_a_folder_without_images_says_what_an_image_is(tmp_path):
    with pytest.raises(DataError, match=r"holds no images; known: \.png, \.jpg"):
        ImageFolder(tmp_path)


def test_images_beside_folders_of_images_are_refused(tmp_path, picture):
    picture(tmp_path / "a.png", (2, 2))
    picture(tmp_path / "class" / "b.png", (2, 2))
    with pytest.raises(DataError, match=r"a\.png.* and folders of images"):
        ImageFolder(tmp_path)


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(DataError, match=r"no folder .*nowhere"):
        ImageFolder(tmp_path / "nowhere")


def open_it(location, folder, wanted=None):
    with Session(discover=False) as session:
        return open_source(location, session, folder=folder, wanted=wanted)


@pytest.mark.parametrize(
    ("location", "shape"),
    [
        ("photos", (3, 4, 6)),
        ("images:photos", (3, 4, 6)),
        ("photos?size=2", (3, 2, 2)),
        ("photos?size=2x3&colour=grey&fit=crop", (1, 2, 3)),
    ],
)
def test_a_folder_is_opened_by_its_path_or_its_scheme_with_options(
    tmp_path, picture, location, shape
):
    picture(tmp_path / "photos" / "a" / "1.png", (4, 6, 3))
    assert open_it(location, tmp_path).fields["x"].shape == shape


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("sise=2", "did you mean 'size'"),
        ("size=2x3x4", "write size=32 or size=32x48"),
        ("size=0", "at least one pixel"),
        ("fit=squeeze", "fit is stretch or crop, not 'squeeze'"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused(tmp_path, picture, options, message):
    picture(tmp_path / "photos" / "1.png", (4, 6))
    with pytest.raises(DataError, match=message):
        open_it(f"photos?{options}", tmp_path)


def test_a_wanted_field_that_is_not_there_is_an_error(tmp_path, picture):
    picture(tmp_path / "1.png", (4, 6))
    with pytest.raises(DataError, match="no field 'y'; it has x"):
        open_it(".", tmp_path, ["y"])


def test_floating_pixels_are_refused_rather_than_clipped(tmp_path):
    Image.fromarray(np.full((2, 3), 0.5, np.float32)).save(tmp_path / "a.tiff")
    with pytest.raises(DataError, match=r"a\.tiff: .*floating-point numbers; keep such as \.npy"):
        ImageFolder(tmp_path)
