"""Finding out which data source opens a location."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

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
    """Open ``scheme:...`` or a file (relative to ``folder``) by its suffix.

    ``wanted`` names the arrays that are needed. Raises DataError where no plugin can open it.
    """
    known = session.manager.collect(DataSourceSpec)
    scheme = re.match(r"[A-Za-z][\w+.-]+:", location)  # one letter alone is a drive
    if scheme:
        for record in known:
            if scheme[0] in record.schemes:
                return _open(record, location[len(scheme[0]) :], session, wanted)
    path = Path(folder or ".") / location
    for record in known:
        if path.suffix.lower() in record.suffixes:
            return _open(record, str(path), session, wanted)
    endings = [ending for record in known for ending in (*record.schemes, *record.suffixes)]
    raise DataError(f"nothing opens the data source {location!r}; known: {', '.join(endings)}")


def _open(
    record: DataSourceSpec, location: str, session: Session, wanted: Sequence[str] | None
) -> DataSource:
    return cast(Opener, session.manager.resolve(record))(location, wanted)
