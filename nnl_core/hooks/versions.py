"""As much of version numbers and requirements as the engine needs to compare them."""

from __future__ import annotations

import re
from typing import NamedTuple

_VERSION = re.compile(
    r"v?(?:(?P<epoch>\d+)!)?(?P<release>\d+(?:\.\d+)*)"
    r"(?:[-_.]?(?P<pre>alpha|beta|preview|pre|rc|a|b|c)[-_.]?(?P<pre_number>\d*))?"
    r"(?P<post>-\d+|[-_.]?(?:post|rev|r)[-_.]?\d*)?"
    r"(?P<dev>[-_.]?dev[-_.]?\d*)?(?:\+[a-z0-9._-]+)?"
)
_REQUIREMENT = re.compile(r"([A-Za-z0-9][\w.-]*)\s*(?:\[[^\]]*\])?\s*\(?([^;()@]*)\)?\s*(;.*)?")
_CLAUSE = re.compile(r"(~=|===?|!=|<=|>=|<|>)\s*(\S+?)(\.\*)?")
_PRE_ORDER = {"a": 1, "alpha": 1, "b": 2, "beta": 2}  # the rest are release candidates

_NEVER = 1 << 62

Key = tuple[tuple[int, ...], tuple[int, int], int, int]


class Requirement(NamedTuple):
    """A distribution and the versions of it that will do; ``marker`` is the part after ``;``."""

    name: str
    versions: str
    marker: str


def canonical(distribution: str) -> str:
    """Return a distribution's name as names are compared: ``Nnl_Lime`` becomes ``nnl-lime``."""
    return re.sub(r"[-_.]+", "-", distribution).lower()


def parse_requirement(text: str) -> Requirement:
    """Parse ``"nnl-core>=0.1,<0.2; python_version < '3.13'"``.

    Raises ValueError where it is none, or its versions cannot be compared.
    """
    match = _REQUIREMENT.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"cannot read the requirement {text!r}")
    name, versions, marker = match[1], match[2].strip(), (match[3] or "").lstrip("; ")
    satisfies("0", versions)
    return Requirement(canonical(name), versions, marker)


def satisfies(version: str, versions: str) -> bool:
    """Tell whether a version fulfils clauses such as ``">=0.1,<0.2"``.

    Pre-releases count as the versions they are. Raises ValueError where something is no version.
    """
    return all(
        _fulfils(version, clause.strip()) for clause in versions.split(",") if clause.strip()
    )


def _fulfils(version: str, clause: str) -> bool:
    match = _CLAUSE.fullmatch(clause)
    if match is None:
        raise ValueError(f"cannot read the version clause {clause!r}")
    operator, bound, wildcard = match[1], match[2], match[3]
    if operator == "===":
        return version == bound
    have, want = _key(version), _key(bound)
    prefix = _release(bound) if wildcard else _release(bound)[:-1]
    same_series = (_release(version) + (0,) * len(prefix))[: len(prefix)] == prefix
    if wildcard and operator in ("==", "!="):
        return same_series == (operator == "==")
    if operator == "~=":
        return have >= want and same_series
    return {
        "==": have == want,
        "!=": have != want,
        "<=": have <= want,
        ">=": have >= want,
        # "<0.2" does not mean 0.2's own pre-releases, nor ">0.2" its post-releases.
        "<": have < want and not (have[0] == want[0] and _is_pre(version) and not _is_pre(bound)),
        ">": have > want and not (have[0] == want[0] and _is_post(version) > _is_post(bound)),
    }[operator]


def _match(version: str) -> re.Match[str]:
    match = _VERSION.fullmatch(version.strip().lower())
    if match is None:
        raise ValueError(f"{version!r} is not a version number")
    return match


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in _match(version)["release"].split("."))


def _is_pre(version: str) -> bool:
    match = _match(version)
    return bool(match["pre"] or match["dev"])


def _is_post(version: str) -> bool:
    return bool(_match(version)["post"])


def _key(version: str) -> Key:
    match = _match(version)
    release = list(_release(version))
    while release and release[-1] == 0:
        release.pop()
    if match["pre"]:
        pre = (_PRE_ORDER.get(match["pre"], 3), int(match["pre_number"] or 0))
    else:
        pre = (0, 0) if match["dev"] and not match["post"] else (4, 0)
    post = _number(match["post"], absent=-1)
    dev = _number(match["dev"], absent=_NEVER)
    return (int(match["epoch"] or 0), *release), pre, post, dev


def _number(text: str | None, absent: int) -> int:
    return absent if text is None else int(re.sub(r"\D", "", text) or 0)
