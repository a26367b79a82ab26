"""Bytes of a table file, mapped into memory or unpacked."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

from motet._core.visible_text import visible
from motet.errors import DataError, RequestError, one_line

ZIPPED = (".gz", ".bz2", ".zst", ".lz4", ".br")
KNOWN = ".csv, .tsv, .txt (also .gz), .parquet, .feather or .xlsx"


class EmptyTableError(DataError):
    """A file without a row, which may be left out if there are others."""


def bytes_of(path: Path) -> memoryview:
    """Map a file into memory, or unpack it if it is compressed."""
    import pyarrow

    packed = None
    try:
        with path.open("rb") as file:
            start = file.read(4)
        packed = {b"\x1f\x8b": "gzip", b"BZ": "bz2", b"\x28\xb5": "zstd"}.get(start[:2])
        if packed:
            with pyarrow.input_stream(str(path), compression=packed) as stream:
                return memoryview(stream.read())
        if not start:
            raise EmptyTableError(f"{path} is empty. Expected a header and one row per example.")
        return memoryview(pyarrow.memory_map(str(path)).read_buffer())
    except (OSError, pyarrow.ArrowException) as error:
        damaged = " It is damaged or incomplete; copy it again." if packed else ""
        raise DataError(f"{path} cannot be read: {one_line(error)}.{damaged}") from None


def source_of(path: Path, contents: memoryview) -> Any:
    """Open text for pyarrow: from the file where possible, so that its pages need no memory."""
    import pyarrow

    is_mapped = not isinstance(contents.obj, bytes)  # neither unpacked nor repaired
    return pyarrow.OSFile(str(path)) if is_mapped else pyarrow.BufferReader(contents)


def stem_of(path: Path) -> str:
    """Return a file's name without its endings: "zurich" for zurich.csv.gz."""
    name = path.name
    for ending in ZIPPED:
        name = name.removesuffix(ending)
    return Path(name).stem


def refuse_archive(path: Path) -> None:
    """Refuse a zip archive that is not an Excel file, and name a table in it."""
    try:
        with ZipFile(path) as archive:
            names = [name for name in archive.namelist() if not name.endswith("/")]
    except (OSError, ValueError, BadZipFile):
        return  # damaged, which its reader says
    if "[Content_Types].xml" in names:  # of Office
        return
    inside = f', such as "{visible(names[0])}"' if names else ""
    raise RequestError(
        f"{path} is a zip archive; expected a {KNOWN} file. Unpack it, and give a file that was "
        f"in it{inside}."
    )
