"""Version comparison, held against the `packaging` library."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.specifiers import InvalidSpecifier, SpecifierSet

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


FAMILY = [
    f"{release}{suffix}"
    for release in ("1.0", "1", "1.0.1", "1!1.0")
    for suffix in ("", "a1", "a1.post2", "rc1.dev2", ".dev3", ".post1", ".post1.dev3", "+a.b")
]


@pytest.mark.parametrize("operator", ["==", "!=", "<=", ">=", "<", ">", "~="])
def test_versions_of_one_release_are_told_apart_as_packaging_does(operator):
    for bound in FAMILY:
        try:
            clause = SpecifierSet(operator + bound)
        except InvalidSpecifier:
            with pytest.raises(ValueError, match=r"takes no version such as|is not a version"):
                satisfies("1.0", operator + bound)
            continue
        for version in FAMILY:
            expected = clause.contains(version, prereleases=True)
            assert satisfies(version, operator + bound) == expected, (version, operator + bound)


@pytest.mark.parametrize("clause", [">=1.*", "~=1", "<1.0+local", "==1.0+local.*", "=>1", "1"])
def test_a_clause_that_means_nothing_is_refused(clause):
    with pytest.raises(InvalidSpecifier):
        SpecifierSet(clause)
    with pytest.raises(ValueError, match=r"clause|takes no version|not a version"):
        satisfies("1.0", clause)


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
        ("nnl-core @ git+https://host/x@v1 ; os_name == 'nt'", "nnl-core", "", "os_name == 'nt'"),
    ],
)
def test_requirements_are_read(text, name, versions, marker):
    assert parse_requirement(text) == (name, versions, marker)


@pytest.mark.parametrize("text", ["", "nnl core", ">=1", "nnl-core>=x", "nnl-core=1", "a @ b c"])
def test_what_is_no_requirement_is_refused(text):
    with pytest.raises(ValueError, match=r"requirement|clause|version"):
        parse_requirement(text)


@pytest.mark.parametrize("name", ["nnl-lime", "NNL_Lime", "nnl.lime", "nnl--lime"])
def test_distribution_names_are_compared_without_their_spelling(name):
    assert canonical(name) == "nnl-lime"
