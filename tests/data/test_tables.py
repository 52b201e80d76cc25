"""CSV files in nnabla's format: what their heads and cells mean, and what is wrong with them."""

from __future__ import annotations

import numpy as np
import pytest

from nnl_core.data import CsvSource, open_source
from nnl_core.errors import DataError
from nnl_core.session import Session


@pytest.fixture
def table(tmp_path):
    def write(text, **options):
        path = tmp_path / "table.csv"
        path.write_text(text, encoding=options.pop("encoding", "utf-8"))
        return CsvSource(path, **options)

    return write


def whole(source):
    return source.take(np.arange(len(source)))


def test_columns_with_an_index_are_the_elements_of_a_vector(table):
    source = table("x__0:height,x__1:width,y:kind\n1,2.5,0\n-3,4e1,7\n")
    assert source.labels == {"x": ("height", "width"), "y": ("kind",)}
    samples = whole(source)
    assert samples["x"].tolist() == [[1, 2.5], [-3, 40]]
    assert samples["x"].dtype == np.float32
    assert samples["y"].tolist() == [[0], [7]]
    assert samples["y"].dtype == np.int64


def test_a_column_with_a_fraction_is_floating(table):
    samples = whole(table("y\n1\n2.0\n"))
    assert samples["y"].dtype == np.float32
    assert samples["y"].tolist() == [[1], [2]]


def test_a_head_without_a_label_is_its_own(table):
    assert table("x,y\n1,2\n").labels == {"x": ("x",), "y": ("y",)}


def test_columns_that_are_comments_and_empty_lines_are_left_out(table):
    source = table("# note,x\nanything,1\n\nelse,2\n")
    assert whole(source)["x"].tolist() == [[1], [2]]
    assert source.fields.keys() == {"x"}


def test_a_mark_of_byte_order_is_no_part_of_the_head(table):
    assert table("x\n1\n", encoding="utf-8-sig").fields.keys() == {"x"}


def test_cells_name_images_beside_the_table(tmp_path, table, picture):
    grey = [picture(tmp_path / f"images/{n}.png", (4, 5)) for n in range(2)]
    source = table("x:image,y:label\nimages/0.png,3\n.\\images\\1.png,4\n")
    samples = source.take(np.array([1, 0]))
    np.testing.assert_array_equal(samples["x"][:, 0], [grey[1], grey[0]])
    assert samples["x"].dtype == np.uint8
    assert samples["y"].ravel().tolist() == [4, 3]


def test_colour_images_have_their_channels_first(tmp_path, table, picture):
    pixels = picture(tmp_path / "a.png", (4, 5, 3))
    np.testing.assert_array_equal(whole(table("x\na.png\n"))["x"][0], pixels.transpose(2, 0, 1))


def test_cells_name_arrays_and_matrices(tmp_path, table):
    array = np.arange(6, dtype=np.int16).reshape(2, 3)
    np.save(tmp_path / "a.npy", array)
    (tmp_path / "m.csv").write_text("1,2\n3,4.5\n")
    samples = whole(table("a,m\na.npy,m.csv\n"))
    np.testing.assert_array_equal(samples["a"], array[np.newaxis])
    assert samples["a"].dtype == np.int16
    assert samples["m"].tolist() == [[[1, 2], [3, 4.5]]]


def test_only_wanted_columns_are_read(tmp_path, table):
    source = table("x,y\nmissing.png,1\n", wanted=["y"])
    assert whole(source).keys() == {"y"}


def test_a_table_is_opened_by_its_suffix(tmp_path, table):
    table("x\n1\n")
    with Session(discover=False) as session:
        assert len(open_source("table.csv", session, folder=tmp_path)) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no rows below its head"),
        ("x,y\n", "no rows below its head"),
        ("x,y\n1,2\n3\n", "line 3: 1 cells, but the head has 2"),
        ("x,x\n1,2\n", "two columns are called 'x'"),
        ("x,x__0\n1,2\n", "two columns are called 'x'|comes where"),
        ("x__0,x__2\n1,2\n", "'x__2' comes where x__1 should"),
        ("x__a\n1\n", "'x__a' is not name, name__0, or name:label"),
        (":label\n1\n", "':label' is not name"),
        ("# a\n1\n", "names no column"),
        ("x\n1\ntwo\n", "line 3: column 'x' holds numbers, not \\['two'\\]"),
        ("x__0\na.png\n", "line 2: column 'x' holds numbers"),
        ("x\nnothing.png\n", r"line 2: no file .*nothing\.png"),
        ("x\ntable.csv\n", "line 2: could not convert"),
    ],
)
def test_a_table_that_is_wrong_is_refused_with_the_place(table, text, message):
    with pytest.raises(DataError, match=message):
        table(text)


def test_a_cell_of_unknown_kind_is_an_error(tmp_path, table):
    (tmp_path / "a.xyz").touch()
    with pytest.raises(DataError, match=r"a\.xyz is no image, \.npy or \.csv, and no number"):
        table("x\na.xyz\n")


def test_a_file_of_another_shape_is_an_error_with_its_line(tmp_path, table, picture):
    picture(tmp_path / "a.png", (4, 5))
    picture(tmp_path / "b.png", (5, 4))
    source = table("x\na.png\nb.png\n")
    with pytest.raises(DataError, match=r"line 3: b\.png holds uint8 of shape \[1, 5, 4\], a\.png"):
        whole(source)


def test_a_wanted_column_that_is_missing_is_named_with_the_nearest(table):
    with pytest.raises(DataError, match="no column 'lable'; did you mean 'label'"):
        table("x,label\n1,2\n", wanted=["lable"])


def test_a_missing_table_is_named(tmp_path):
    with pytest.raises(DataError, match=r"no file .*none\.csv"):
        CsvSource(tmp_path / "none.csv")


@pytest.mark.parametrize(("rows", "line"), [(",1\n2,3\n", 2), ("a.png,1\n,2\n", 3)])
def test_an_empty_cell_is_named_by_its_line_and_column(table, rows, line):
    with pytest.raises(DataError, match=f"line {line}: column 'x' has an empty cell"):
        table(f"x,y\n{rows}")
