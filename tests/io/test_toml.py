from __future__ import annotations

import tomllib

from hypothesis import given
from hypothesis import strategies as st

from nnl_core.io.toml import to_toml

text = st.text(st.characters(exclude_categories=["Cs"]))  # TOML is UTF-8: no lone surrogates
plain = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | text
values = st.recursive(
    plain, lambda inner: st.lists(inner) | st.dictionaries(text, inner), max_leaves=20
)


@given(st.dictionaries(text, values))
def test_what_is_written_is_read_again(table):
    assert tomllib.loads(to_toml(table)) == table


def test_what_is_none_is_left_out():
    assert to_toml({"a": None, "b": {"c": None, "d": 1}}) == "[b]\nd = 1\n"


def test_nan_is_written_as_toml_has_it():
    assert to_toml({"a": float("nan")}) == "a = nan\n"
