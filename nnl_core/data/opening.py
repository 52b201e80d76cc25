"""Finding out which data source opens a location."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from nnl_core.data.locations import split_options
from nnl_core.data.source import DataSource
from nnl_core.errors import DataError
from nnl_core.hooks import DataSourceSpec

if TYPE_CHECKING:
    from nnl_core.session import Session

Opener = Callable[[str, Sequence[str] | None], DataSource]


def open_source(
    location: str,
    session: Session,
    *,
    folder: Path | None = None,
    wanted: Sequence[str] | None = None,
) -> DataSource:
    """Open ``scheme:...``, or a file or folder (relative to ``folder``) by its suffix.

    The suffix of a folder is ``"/"``; behind ``?`` there may be options. What follows the scheme of
    something that has suffixes is a path as well. ``wanted`` names the arrays that are needed.
    Raises DataError where no plugin can open it.
    """
    known = session.manager.collect(DataSourceSpec)
    start = Path(folder or ".")
    scheme = re.match(r"[A-Za-z][\w+.-]+:", location)  # one letter alone is a drive
    if scheme:
        for record in known:
            if scheme[0] in record.schemes:
                rest = location[len(scheme[0]) :]
                inside = str(start / rest) if record.suffixes else rest
                return _open(record, inside, session, wanted)
    whole = str(start / location)
    path = Path(split_options(whole)[0])
    suffix = "/" if path.is_dir() else path.suffix.lower()
    for record in known:
        if suffix in record.suffixes:
            return _open(record, whole, session, wanted)
    endings = [ending for record in known for ending in (*record.schemes, *record.suffixes)]
    raise DataError(f"nothing opens the data source {location!r}; known: {', '.join(endings)}")


def _open(
    record: DataSourceSpec, location: str, session: Session, wanted: Sequence[str] | None
) -> DataSource:
    return cast(Opener, session.manager.resolve(record))(location, wanted)
