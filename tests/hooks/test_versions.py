"""Version comparison, held against the `packaging` library."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet

from nnl_core.hooks.versions import canonical, parse_requirement, satisfies

numbers = st.integers(0, 12)
releases = st.lists(numbers, min_size=1, max_size=4).map(lambda parts: ".".join(map(str, parts)))
suffixes = st.one_of(
    st.just(""),
    st.builds("{}{}".format, st.sampled_from(["a", "b", "rc", ".post", ".dev"]), numbers),
    st.builds("a{}.dev{}".format, numbers, numbers),
    st.builds(".post{}.dev{}".format, numbers, numbers),
)
versions = st.builds("{}{}".format, releases, suffixes)
plain_clauses = st.builds(
    "{}{}".format, st.sampled_from(["==", "!=", "<=", ">=", "<", ">"]), versions
)
wildcards = st.builds("{}{}.*".format, st.sampled_from(["==", "!="]), releases)
compatible = st.builds("~={}.{}".format, numbers, versions)


@given(version=versions, clause=st.one_of(plain_clauses, wildcards, compatible))
def test_a_clause_means_what_packaging_says(version, clause):
    assert satisfies(version, clause) == SpecifierSet(clause).contains(version, prereleases=True)


@given(version=releases, clauses=st.lists(plain_clauses, max_size=3).map(",".join))
def test_all_clauses_must_hold(version, clauses):
    assert satisfies(version, clauses) == SpecifierSet(clauses).contains(version, prereleases=True)


@pytest.mark.parametrize(
    ("text", "name", "versions", "marker"),
    [
        ("nnl-core", "nnl-core", "", ""),
        ("Nnl.Core >= 0.1 , < 2", "nnl-core", ">= 0.1 , < 2", ""),
        ("nnl_core[cuda]>=0.1; extra == 'x'", "nnl-core", ">=0.1", "extra == 'x'"),
        ("nnl-core (>=0.1)", "nnl-core", ">=0.1", ""),
    ],
)
def test_requirements_are_read(text, name, versions, marker):
    assert parse_requirement(text) == (name, versions, marker)


@pytest.mark.parametrize("text", ["", "nnl core", ">=1", "nnl-core>=x", "nnl-core=1", "a @ b"])
def test_what_is_no_requirement_is_refused(text):
    with pytest.raises(ValueError, match=r"requirement|clause|version"):
        parse_requirement(text)


@pytest.mark.parametrize("name", ["nnl-lime", "NNL_Lime", "nnl.lime", "nnl--lime"])
def test_distribution_names_are_compared_without_their_spelling(name):
    assert canonical(name) == "nnl-lime"
