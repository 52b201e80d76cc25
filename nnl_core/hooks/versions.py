"""As much of version numbers and requirements as the engine needs to compare them."""

from __future__ import annotations

import re
from typing import NamedTuple

_VERSION = re.compile(
    r"v?(?:(?P<epoch>\d+)!)?(?P<release>\d+(?:\.\d+)*)"
    r"(?:[-_.]?(?P<pre>alpha|beta|preview|pre|rc|a|b|c)[-_.]?(?P<pre_number>\d*))?"
    r"(?P<post>-\d+|[-_.]?(?:post|rev|r)[-_.]?\d*)?"
    r"(?P<dev>[-_.]?dev[-_.]?\d*)?(?:\+(?P<local>[a-z0-9]+(?:[-_.][a-z0-9]+)*))?"
)
_REQUIREMENT = re.compile(
    r"([A-Za-z0-9][\w.-]*)\s*(?:\[[^\]]*\])?\s*(?:@\s*\S+|\(?([^;()@]*)\)?)\s*(;.*)?"
)
_CLAUSE = re.compile(r"(~=|===?|!=|<=|>=|<|>)\s*(\S+?)(\.\*)?")
_PRE_ORDER = {"a": 1, "alpha": 1, "b": 2, "beta": 2}  # the rest are release candidates

_FINAL = (4, 0)
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
    """Parse ``"nnl-core>=0.1,<0.2; python_version < '3.13'"``; of a URL, any version will do.

    Raises ValueError where it is none, or its versions cannot be compared.
    """
    match = _REQUIREMENT.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"cannot read the requirement {text!r}")
    name, versions, marker = match[1], (match[2] or "").strip(), (match[3] or "").lstrip("; ")
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
    operator, bound, wildcard = match.groups()
    if operator == "===":
        return version.lower() == f"{bound}{wildcard or ''}".lower()
    have, want = _key(version), _key(bound)
    release, local = _release(bound), _match(bound)["local"]
    if (
        (wildcard and (operator not in ("==", "!=") or local))
        or (local and operator not in ("==", "!="))
        or (operator == "~=" and len(release) == 1)
    ):
        raise ValueError(f"{operator} takes no version such as {bound + (wildcard or '')!r}")
    if wildcard:
        return _is_in_series(version, bound, len(release)) == (operator == "==")
    is_equal = have == want and (local is None or local == _match(version)["local"])
    is_pre_release = want[1] < _FINAL or want[3] < _NEVER
    match operator:
        case "==":
            return is_equal
        case "!=":
            return not is_equal
        case "<=":
            return have <= want
        case ">=":
            return have >= want
        case "~=":
            return have >= want and _is_in_series(version, bound, len(release) - 1)
        case "<":  # which does not mean the pre-releases of a release
            return have < (want if is_pre_release else _key(f"{bound}.dev0"))
    # ">" does not mean the post-releases of what is none.
    is_exact = want[2] >= 0 or want[3] < _NEVER
    return have > want and (is_exact or have[:2] != want[:2])


def _is_in_series(version: str, bound: str, length: int) -> bool:
    """Whether the first numbers agree, and the epoch."""
    have, want = _release(version), _release(bound)
    same = (*have, *(0,) * length)[:length] == want[:length]
    return same and _key(version)[0][0] == _key(bound)[0][0]


def _match(version: str) -> re.Match[str]:
    match = _VERSION.fullmatch(version.strip().lower())
    if match is None:
        raise ValueError(f"{version!r} is not a version number")
    return match


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in _match(version)["release"].split("."))


def _key(version: str) -> Key:
    match = _match(version)
    release = list(_release(version))
    while release and release[-1] == 0:
        release.pop()
    if match["pre"]:
        pre = (_PRE_ORDER.get(match["pre"], 3), int(match["pre_number"] or 0))
    else:
        pre = (0, 0) if match["dev"] and not match["post"] else _FINAL
    post = _number(match["post"], absent=-1)
    dev = _number(match["dev"], absent=_NEVER)
    return (int(match["epoch"] or 0), *release), pre, post, dev


def _number(text: str | None, absent: int) -> int:
    return absent if text is None else int(re.sub(r"\D", "", text) or 0)
