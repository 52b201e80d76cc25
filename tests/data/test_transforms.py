"""Transforms: what each does, and randomness that belongs to seed, epoch and sample alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from nnl_core.data import (
    ArraySource,
    DataIterator,
    Draws,
    EachSample,
    Field,
    FunctionSource,
    TransformedSource,
    make_transforms,
    select_fields,
    transform_source,
)
from nnl_core.data.source import take_at
from nnl_core.errors import ConfigurationError, DataError, NnlError

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (12, 3, 6, 7), np.uint8)
LABELS = np.arange(12)
SOURCE = ArraySource({"x": IMAGES, "y": LABELS}, "pictures")

RANDOM = [
    {"name": "random_crop", "size": [4, 5]},
    {"name": "random_crop", "padding": 2, "border": "reflect"},
    "random_flip",
    {"name": "random_flip", "direction": "vertical", "probability": 0.3},
    {"name": "random_shift", "pixels": 1},
    {"name": "cutout", "size": 3},
]


def name_of(entry):
    return entry if isinstance(entry, str) else entry["name"]


def changed(*entries, source=SOURCE, seed=0, epoch=0):
    transformed = TransformedSource(source, make_transforms(entries))
    return transformed.take_at(np.arange(len(source)), seed, epoch)


# -------------------------------------------------------------------- randomness


@given(
    ids=st.lists(st.integers(0, 11), min_size=1, max_size=20),
    seed=st.integers(0, 3),
    epoch=st.integers(0, 3),
)
def test_what_becomes_of_a_sample_depends_on_seed_epoch_and_its_number_alone(ids, seed, epoch):
    chain = [*RANDOM, "to_float", {"name": "noise", "deviation": 0.1}]
    source = TransformedSource(SOURCE, make_transforms(chain))
    together = source.take_at(np.arange(12), seed, epoch)["x"]
    np.testing.assert_array_equal(source.take_at(np.array(ids), seed, epoch)["x"], together[ids])


@pytest.mark.parametrize("entry", RANDOM, ids=name_of)
def test_samples_differ_between_epochs_and_seeds(entry):
    first = changed(entry)["x"]
    assert (changed(entry, epoch=1)["x"] != first).any()
    assert (changed(entry, seed=1)["x"] != first).any()
    np.testing.assert_array_equal(changed(entry)["x"], first)


@pytest.mark.parametrize("entry", RANDOM, ids=name_of)
def test_equal_samples_are_changed_differently(entry):
    same = ArraySource({"x": np.repeat(IMAGES[:1], 50, axis=0)})
    assert len(np.unique(changed(entry, source=same)["x"], axis=0)) > 1


def test_an_iterator_takes_samples_of_its_epoch():
    source = TransformedSource(SOURCE, make_transforms(["random_flip"]))
    iterator = DataIterator(source, 5, seed=4)
    for batch in iterator.epoch(2):
        expected = source.take_at(batch.ids, 4, 2)["x"]
        np.testing.assert_array_equal(batch["x"], expected)


def test_without_an_epoch_samples_are_those_of_the_first():
    source = TransformedSource(SOURCE, make_transforms(["random_flip"]))
    ids = np.arange(12)
    np.testing.assert_array_equal(source.take(ids)["x"], source.take_at(ids, 0, 0)["x"])


def test_randomness_reaches_through_wrappers():
    inner = TransformedSource(SOURCE, make_transforms(["random_flip"]))
    outer = transform_source(
        select_fields(inner, {"image": Field("x", divide=255)}, "wrapped"),
        make_transforms([{"name": "to_float", "field": "image"}]),
    )
    ids = np.arange(12)
    for epoch in range(2):
        expected = inner.take_at(ids, 0, epoch)["x"] / np.float32(255)
        np.testing.assert_array_equal(take_at(outer, ids, 0, epoch)["image"], expected)


def test_the_generators_of_two_samples_are_independent_streams():
    generators = Draws(np.arange(50), 0, 0).generators
    assert len({generator.integers(2**63) for generator in generators}) == 50


# -------------------------------------------------------------------- each of them


def test_to_float_maps_unsigned_integers_to_0_to_1():
    x = np.array([[0, 51, 255]], np.uint8)
    made = changed("to_float", source=ArraySource({"x": x}))["x"]
    assert made.dtype == np.float32
    np.testing.assert_allclose(made, [[0, 0.2, 1]], rtol=1e-6)


def test_to_float_only_converts_other_numbers():
    made = changed("to_float", source=ArraySource({"x": np.array([-3, 7])}))["x"]
    assert (made.dtype, made.tolist()) == (np.float32, [-3, 7])


def test_normalize_gives_mean_0_and_deviation_1_for_the_statistics_of_the_data():
    mean, deviation = IMAGES.mean((0, 2, 3)), IMAGES.std((0, 2, 3))
    entry = {"name": "normalize", "mean": mean.tolist(), "deviation": deviation.tolist()}
    made = changed(entry)["x"]
    np.testing.assert_allclose(made.mean((0, 2, 3)), 0, atol=1e-6)
    np.testing.assert_allclose(made.std((0, 2, 3)), 1, rtol=1e-5)


def test_one_hot_has_a_1_at_the_label():
    made = changed({"name": "one_hot", "classes": 12})["y"]
    np.testing.assert_array_equal(made, np.eye(12, dtype=np.float32))
    column = ArraySource({"y": LABELS[:, np.newaxis]})
    np.testing.assert_array_equal(
        changed({"name": "one_hot", "classes": 12}, source=column)["y"], made
    )


@pytest.mark.parametrize(("direction", "axis"), [("horizontal", -1), ("vertical", -2)])
def test_a_flip_of_probability_1_mirrors_and_one_of_0_does_not(direction, axis):
    entry = {"name": "random_flip", "direction": direction}
    np.testing.assert_array_equal(changed({**entry, "probability": 1})["x"], np.flip(IMAGES, axis))
    np.testing.assert_array_equal(changed({**entry, "probability": 0})["x"], IMAGES)


def test_a_flip_happens_about_as_often_as_it_should():
    same = ArraySource({"x": np.repeat(IMAGES[:1], 4000, axis=0)})
    made = changed({"name": "random_flip", "probability": 0.3}, source=same)["x"]
    flipped = (made != IMAGES[0]).any((1, 2, 3)).mean()
    assert abs(flipped - 0.3) < 4 * np.sqrt(0.3 * 0.7 / 4000)


@pytest.mark.parametrize("border", ["constant", "edge", "reflect"])
def test_a_crop_is_a_window_of_the_padded_image_and_every_window_occurs(border):
    count, padding, size = 600, 1, (5, 7)
    image = IMAGES[0]
    same = ArraySource({"x": np.repeat(image[None], count, axis=0)})
    entry = {"name": "random_crop", "size": list(size), "padding": padding, "border": border}
    padded = np.pad(image, [(0, 0), (1, 1), (1, 1)], mode=border)
    windows = {
        padded[:, top : top + 5, left : left + 7].tobytes() for top in range(4) for left in range(3)
    }
    assert {made.tobytes() for made in changed(entry, source=same)["x"]} == windows


def test_a_shift_moves_by_at_most_so_many_pixels_and_brings_in_zeros():
    image = np.zeros((1, 9, 9), np.uint8)
    image[0, 4, 4] = 1
    same = ArraySource({"x": np.repeat(image[None], 300, axis=0)})
    made = changed({"name": "random_shift", "pixels": 2}, source=same)["x"]
    _, _, rows, columns = made.nonzero()
    assert set(rows) == set(columns) == {2, 3, 4, 5, 6}


def test_the_middle_is_cut_out():
    np.testing.assert_array_equal(
        changed({"name": "center_crop", "size": [2, 3]})["x"], IMAGES[:, :, 2:4, 2:5]
    )


def test_cutout_blanks_a_rectangle_in_all_channels_that_may_hang_over_the_edge():
    same = ArraySource({"x": np.ones((500, 2, 6, 7), np.uint8)})
    made = changed({"name": "cutout", "size": 3}, source=same)["x"]
    areas = set()
    for first, second in made:
        np.testing.assert_array_equal(first, second)
        rows, columns = (first == 0).nonzero()
        height, width = np.ptp(rows) + 1, np.ptp(columns) + 1
        assert height <= 3 and width <= 3
        assert (first == 0).sum() == height * width
        areas.add(height * width)
    assert areas == {4, 6, 9}  # a centre at an edge blanks 2 of 3


def test_noise_has_the_deviation_that_was_asked_for():
    flat = ArraySource({"x": np.zeros((50, 2000), np.float32)})
    made = changed({"name": "noise", "deviation": 0.5}, source=flat)["x"]
    assert made.dtype == np.float32
    assert abs(made.mean()) < 4 * 0.5 / np.sqrt(made.size)
    np.testing.assert_allclose(made.std(), 0.5, rtol=0.01)


@pytest.mark.parametrize("size", [(3, 4), (6, 7), (12, 21), (4, 9)])
def test_resize_agrees_with_pillow(size):
    made = changed("to_float", {"name": "resize", "size": list(size)})["x"]
    for before, found in zip(IMAGES.reshape(-1, 6, 7), made.reshape(-1, *size), strict=True):
        image = Image.fromarray(before.astype(np.float32) / np.float32(255))
        expected = np.asarray(image.resize((size[1], size[0]), Image.Resampling.BILINEAR))
        np.testing.assert_allclose(found, expected, atol=1e-5)


def test_resize_rounds_integers():
    made = changed({"name": "resize", "size": 3})["x"]
    exact = changed({"name": "resize", "size": 3}, source=ArraySource({"x": IMAGES / 1.0}))["x"]
    assert made.dtype == np.uint8
    np.testing.assert_allclose(made, exact, atol=0.5 + 1e-4)


def test_the_source_is_not_written_to():
    before = IMAGES.copy()
    changed(*RANDOM)
    np.testing.assert_array_equal(IMAGES, before)


def test_a_function_of_one_sample_gets_its_generator_and_arguments():
    def brighten(sample, generator, most):
        return {**sample, "x": sample["x"] + np.float32(most * generator.random())}

    source = ArraySource({"x": np.zeros((5, 2), np.float32), "y": np.arange(5)})
    made = TransformedSource(source, [EachSample(brighten, most=3)]).take(np.arange(5))
    expected = [generator.random() * 3 for generator in Draws(np.arange(5)).generators]
    np.testing.assert_allclose(made["x"], np.transpose([expected] * 2), rtol=1e-6)
    assert made["y"].tolist() == [0, 1, 2, 3, 4]


# -------------------------------------------------------------------- fields and errors


def test_fields_are_those_of_what_comes_out():
    source = TransformedSource(SOURCE, make_transforms(["to_float", {"name": "resize", "size": 2}]))
    assert source.fields == {"x": ((3, 2, 2), np.float32), "y": ((), np.int64)}
    empty = source.take(np.arange(0))
    assert (empty["x"].shape, empty["y"].shape) == ((0, 3, 2, 2), (0,))


def test_without_transforms_the_source_stays_itself():
    assert transform_source(SOURCE, []) is SOURCE


def test_a_source_varies_where_something_is_random():
    assert TransformedSource(SOURCE, make_transforms(["random_flip"])).varies
    assert not TransformedSource(SOURCE, make_transforms(["to_float"])).varies


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([{"name": "to_float", "field": "z"}], "no field 'z' to transform; there are x, y"),
        ([{"name": "random_crop", "size": 7}], "7 pixels cannot be cut out of 6"),
        ([{"name": "center_crop", "size": [2, 8]}], "8 pixels cannot be cut out of 7"),
        ([{"name": "random_crop", "size": [1, 2, 3]}], "a size is height and width"),
        ([{"name": "noise", "deviation": 1}], "not uint8; put to_float first"),
        ([{"name": "one_hot", "classes": 1, "field": "x"}], "'x' holds no labels"),
        ([{"name": "random_flip", "field": "y"}], r"a sample has shape \(\)"),
        ([{"name": "normalize", "mean": [0, 0], "deviation": 1}], "2 numbers do not go with"),
    ],
)
def test_transforms_that_do_not_fit_are_refused_at_once(entries, message):
    with pytest.raises(DataError, match=message) as raised:
        TransformedSource(SOURCE, make_transforms(entries))
    assert "of pictures" in raised.value.__notes__[0]


def test_a_label_beyond_the_classes_is_an_error():
    with pytest.raises(DataError, match="label 3 is not one of 3 classes"):
        changed({"name": "one_hot", "classes": 3})


def test_samples_that_come_out_unlike_are_an_error():
    def grow(sample, generator):
        return {"x": np.zeros(1 + int(sample["y"]) // 6)}

    source = TransformedSource(SOURCE, [EachSample(grow)])
    with pytest.raises(DataError, match="grow gave: field 'x' has shape"):
        source.take(np.arange(12))
    with pytest.raises(DataError, match=r"pictures: a batch .* shape \[2\]"):
        source.take(np.array([7]))


def test_a_batch_that_loses_samples_is_an_error():
    with pytest.raises(DataError, match="not one row for each of 1 samples"):
        TransformedSource(SOURCE, [lambda batch, draws: {"x": batch["x"][:0]}])


def test_an_exception_of_a_transform_names_it():
    def broken(sample, generator):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as raised:
        TransformedSource(SOURCE, [EachSample(broken)])
    assert "broken of pictures" in raised.value.__notes__[0]


# -------------------------------------------------------------------- in a project file


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("random_flop", r"transforms\[0\]: no transform 'random_flop'; did you mean 'random_flip'"),
        ({"name": "cutout", "sise": 3}, "cutout takes no 'sise'; did you mean 'size'"),
        ({"name": "cutout"}, "missing 1 required .* 'size'"),
        ({"size": 3}, "write a name, or a table with a name"),
        ({"name": "random_flip", "probability": 2}, "probability from 0 to 1"),
        ({"name": "random_crop", "padding": -1}, "padding is not negative"),
        ({"name": "normalize", "mean": 0, "deviation": 0}, "deviation must not be 0"),
        ("worker_functions:nothing", "has no attribute 'nothing'"),
        ("nnl_core.data:__all__", "neither a class nor a function"),
    ],
)
def test_a_list_that_is_wrong_is_refused_with_the_place(functions, entry, message):
    with pytest.raises(NnlError, match=message):
        make_transforms([entry])


def test_the_place_in_the_list_is_named():
    with pytest.raises(ConfigurationError, match=r"^data\.train\.transforms\[1\]: no transform 'x"):
        make_transforms(["to_float", "xyz"], "data.train.transforms")


def test_a_name_with_a_colon_is_a_function_of_one_sample_or_a_class(functions):
    source = FunctionSource(functions.square, 5)
    (noise,) = make_transforms([{"name": "worker_functions:add_noise", "size": 2.0}])
    made = TransformedSource(source, [noise]).take(np.arange(5))["x"]
    plain = source.take(np.arange(5))["x"]
    assert ((made > plain) & (made < plain + 2)).all()
    (made_of_class,) = make_transforms(["nnl_core.data.transforms:ToFloat"])
    assert made_of_class == make_transforms(["to_float"])[0]
