"""Files inside a published .tar.gz, read without unpacking it to disk."""

from __future__ import annotations

import io
import tarfile
import zlib
from collections.abc import Collection
from pathlib import PurePosixPath

from motet.data.sets.files import Held
from motet.errors import DataError


def read_members(held: Held, wanted: Collection[str]) -> dict[str, bytes]:
    """Return the contents of the wanted files, by their names without folders."""
    [(name, path)] = held.paths.items()
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(held.read(name)), mode="r:gz") as archive:
            for member in archive:
                file = archive.extractfile(member)
                base = PurePosixPath(member.name).name
                if file is not None and base in wanted:
                    found[base] = file.read()
    except (tarfile.TarError, EOFError, OSError, zlib.error) as exc:
        raise DataError(
            f"{path} should be a complete .tar.gz archive, but it does not unpack ({exc}). "
            f"Get it again: {held.where}"
        ) from exc
    absent = sorted(set(wanted) - set(found))
    if absent:
        raise DataError(
            f"{path} should contain {', '.join(absent)}, and does not. "
            f"Get the right archive: {held.where}"
        )
    return found
