"""Files of parameters: what goes in comes out, and damage is noticed."""

from __future__ import annotations

import subprocess
import sys
import zipfile

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

import nnl_core as nnl
from nnl_core.errors import FileError, ParameterError
from nnl_core.graph.dtypes import bfloat16
from nnl_core.hooks import FileFormatSpec, Plugin
from nnl_core.io import Contents, StoredParameter, load, save
from nnl_core.parameters import (
    get_parameter_or_create,
    get_parameters,
    load_parameters,
    parameter_scope,
    save_parameters,
)

SUFFIXES = ["npz", "safetensors"]
DTYPES = ["float16", "float32", "float64", "int64", "uint8", "bool"]


@pytest.fixture(autouse=True)
def own_scope():
    with parameter_scope("", {}):
        yield


def same(left: Contents, right: Contents) -> bool:
    return (
        list(left.parameters) == list(right.parameters)
        and left.metadata == right.metadata
        and all(
            a.need_grad == b.need_grad
            and a.array.dtype == b.array.dtype
            and a.array.shape == b.array.shape
            and a.array.tobytes() == b.array.tobytes()
            for a, b in zip(left.parameters.values(), right.parameters.values(), strict=True)
        )
    )


shapes = array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
stored = st.builds(
    StoredParameter,
    st.sampled_from(DTYPES).flatmap(lambda dtype: arrays(dtype, shapes))
    | arrays("uint16", shapes).map(lambda bits: bits.view(bfloat16())),
    st.booleans(),
)
names = st.text("abc/._é ", min_size=1, max_size=8)


@pytest.mark.parametrize("suffix", SUFFIXES)
@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    parameters=st.dictionaries(names, stored, max_size=4),
    metadata=st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=2),
)
def test_what_is_saved_is_loaded(suffix, tmp_path, parameters, metadata):
    path = tmp_path / f"p.{suffix}"
    save(path, parameters, metadata)
    assert same(load(path), Contents(parameters, metadata))


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_strided_arrays_are_saved_by_value(suffix, tmp_path):
    array = np.arange(24.0).reshape(2, 3, 4).transpose(2, 0, 1)[::-2]
    save(tmp_path / f"p.{suffix}", {"x": StoredParameter(array)})
    assert np.array_equal(load(tmp_path / f"p.{suffix}").parameters["x"].array, array)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_bfloat16_is_read_by_a_program_that_never_asked_for_it(suffix, tmp_path):
    path = tmp_path / f"p.{suffix}"
    save(path, {"w": StoredParameter(np.array([0.5, -3.0], bfloat16()))})
    program = (
        "import sys; import nnl_core as nnl\n"
        "nnl.load_parameters(sys.argv[1])\n"
        "w = nnl.get_parameters()['w']; print(w.dtype, w.d)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True
    )
    assert done.stdout == "bfloat16 [0.5 -3]\n"


def small(path):
    save(
        path,
        {
            "b/W": StoredParameter(np.asarray([1.5, -2], np.float32)),
            "a": StoredParameter(np.asarray(3.0, np.float32), False),
        },
        {"solver": "Adam"},
    )
    return path.read_bytes()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_flipped_bit_anywhere_is_refused_or_harmless(suffix, tmp_path):
    path = tmp_path / f"p.{suffix}"
    whole = small(path)
    expected = load(path)
    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 1 << (position % 8)
        path.write_bytes(damaged)
        try:
            found = load(path)
        except FileError as error:
            assert str(path) in str(error)
        else:
            assert same(found, expected), f"damage at byte {position} was not noticed"


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_flipped_bit_in_the_elements_names_file_and_parameter(suffix, tmp_path):
    path = tmp_path / f"p.{suffix}"
    whole = small(path)
    value = np.float32(-2).tobytes()
    assert whole.count(value) == 1
    path.write_bytes(whole.replace(value, np.float32(-3).tobytes()))
    with pytest.raises(FileError, match=r"damaged.*'b/W'" if suffix != "npz" else "b/W"):
        load(path)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_truncated_file_is_refused(suffix, tmp_path):
    path = tmp_path / f"p.{suffix}"
    whole = small(path)
    for length in {*range(0, len(whole), 11), len(whole) - 1}:
        path.write_bytes(whole[:length])
        with pytest.raises(FileError, match=r"p\."):
            load(path)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_files_of_other_programs_are_read(suffix, tmp_path):
    path = tmp_path / f"p.{suffix}"
    array = np.arange(6.0).reshape(2, 3)
    if suffix == "npz":
        np.savez(path, **{"layer/W": array})
    else:
        from safetensors.numpy import save_file

        save_file({"layer/W": array}, path)
    assert same(load(path), Contents({"layer/W": StoredParameter(array, True)}, {}))


def test_npz_files_are_read_by_numpy(tmp_path):
    small(tmp_path / "p.npz")
    with np.load(tmp_path / "p.npz") as found:
        assert np.array_equal(found["b/W"], [1.5, -2])


def test_pickled_objects_are_refused(tmp_path):
    path = tmp_path / "p.npz"
    np.savez(path, x=np.array([{"a": 1}], dtype=object))
    with pytest.raises(FileError, match=r"p\.npz.*damaged"):
        load(path)


def test_a_file_of_a_newer_version_says_to_upgrade(tmp_path, monkeypatch):
    from nnl_core.io import manifest

    monkeypatch.setattr(manifest, "VERSION", 2)
    small(tmp_path / "p.npz")
    monkeypatch.undo()
    with pytest.raises(FileError, match=r"p\.npz.*upgrade"):
        load(tmp_path / "p.npz")


def test_a_damaged_directory_of_the_zip_cannot_hide_parameters(tmp_path):
    path = tmp_path / "p.npz"
    small(path)
    with zipfile.ZipFile(path) as archive:
        kept = [(info, archive.read(info)) for info in archive.infolist()][:1]
        comment = archive.comment
    with zipfile.ZipFile(path, "w") as archive:
        for info, content in kept:
            archive.writestr(info, content)
        archive.comment = comment
    with pytest.raises(FileError, match="damaged"):
        load(path)


# Finding formats ---------------------------------------------------------------------------------


def test_an_unknown_suffix_names_those_known(tmp_path):
    with pytest.raises(FileError, match=r"'\.xyz'.*\.npz.*\.safetensors"):
        save(tmp_path / "p.xyz", {})
    (tmp_path / "p.xyz").write_bytes(b"")
    with pytest.raises(FileError, match=r"'\.xyz'.*\.npz"):
        load(tmp_path / "p.xyz")


def test_a_missing_file_is_an_error(tmp_path):
    with pytest.raises(FileError, match=r"p\.npz: there is no such file"):
        load(tmp_path / "p.npz")


def test_an_extension_names_the_format_of_a_file_without_suffix(tmp_path):
    save(tmp_path / "p", {"x": StoredParameter(np.ones(2))}, extension=".npz")
    assert list(load(tmp_path / "p", extension="npz").parameters) == ["x"]


class ReversedFormat:
    """Not a useful format: names only, backwards."""

    def write_parameters(self, file, parameters, metadata):
        file.write(b"REV" + "\n".join(parameters).encode()[::-1])

    def read_parameters(self, path):
        text = path.read_bytes()[:2:-1].decode()
        return Contents({name: StoredParameter(np.zeros(1)) for name in text.split("\n")}, {})


class ReversedPlugin(Plugin):
    name = "reversed"

    def nnl_file_formats(self):
        return [
            FileFormatSpec(
                "reversed", f"{__name__}:ReversedFormat", "backwards", (".rev",), magic=b"REV"
            )
        ]


def test_a_plugin_contributes_a_format_found_by_suffix_and_by_content(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, __name__, sys.modules.get(__name__) or _this_module())
    with nnl.Session([ReversedPlugin], discover=False):
        save(tmp_path / "p.rev", {"abc": StoredParameter(np.zeros(1))})
        assert (tmp_path / "p.rev").read_bytes() == b"REVcba"
        (tmp_path / "p.rev").rename(tmp_path / "p.other")
        assert list(load(tmp_path / "p.other").parameters) == ["abc"]


def _this_module():
    import types

    module = types.ModuleType(__name__)
    module.ReversedFormat = ReversedFormat
    return module


def test_without_safetensors_the_error_says_what_to_install(tmp_path):
    code = (
        "import sys; sys.modules['safetensors'] = None\n"
        "import nnl_core as nnl\n"
        "try: nnl.save_parameters('p.safetensors')\n"
        "except nnl.NnlError as error: print(error)\n"
    )
    root = next(
        p for p in __import__("pathlib").Path(__file__).parents if (p / "nnl_core").is_dir()
    )
    result = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(root)!r})\n{code}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "pip install 'nnl-core[standard]'" in result.stdout
    assert list(tmp_path.iterdir()) == []


# Parameters --------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_parameters_come_back_with_order_and_need_grad(suffix, tmp_path):
    get_parameter_or_create("z/W", (2,), np.ones(2))
    get_parameter_or_create("a/mean", (1,), need_grad=False)
    save_parameters(tmp_path / f"p.{suffix}")
    with parameter_scope("", {}):
        load_parameters(tmp_path / f"p.{suffix}")
        found = get_parameters(grad_only=False)
    assert {name: p.need_grad for name, p in found.items()} == {"z/W": True, "a/mean": False}
    assert list(found) == ["z/W", "a/mean"]
    assert np.array_equal(found["z/W"].d, [1, 1])


def test_loading_fills_the_parameters_that_exist(tmp_path):
    w = get_parameter_or_create("W", (2,), np.ones(2))
    save_parameters(tmp_path / "p.npz")
    w.d = 0
    load_parameters(tmp_path / "p.npz")
    assert np.array_equal(w.d, [1, 1])


@pytest.mark.parametrize(
    ("stored_parameters", "message"),
    [
        ({"a": np.zeros(2), "b": np.zeros(4)}, r"'b' has shape \(4,\) in the file and \(3,\) here"),
        ({"a": np.zeros(2), "b": np.full(3, 1e300)}, "float32"),
        ({"a": np.zeros(2), "new": np.zeros(1), "b/c": np.zeros(1)}, "'b' is a parameter"),
        ({"a": np.zeros(2), "scope": np.zeros(1)}, "'scope' is a scope"),
    ],
)
def test_what_does_not_fit_changes_nothing(stored_parameters, message, tmp_path):
    a = get_parameter_or_create("a", (2,), np.ones(2))
    get_parameter_or_create("b", (3,))
    get_parameter_or_create("scope/x", (1,))
    save(
        tmp_path / "p.npz",
        {name: StoredParameter(array) for name, array in stored_parameters.items()},
    )
    before = list(get_parameters())
    with pytest.raises(nnl.NnlError, match=message):
        load_parameters(tmp_path / "p.npz")
    assert np.array_equal(a.d, [1, 1])
    assert list(get_parameters()) == before


def test_a_load_error_is_a_parameter_error_naming_the_file(tmp_path):
    get_parameter_or_create("a", (2,))
    save(tmp_path / "p.npz", {"a": StoredParameter(np.zeros(3))})
    with pytest.raises(ParameterError, match=r"p\.npz"):
        load_parameters(tmp_path / "p.npz")
