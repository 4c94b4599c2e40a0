"""Atomic writing of files."""

from __future__ import annotations

import os
from pathlib import Path
from uuid import uuid4


def write_atomically(path: Path, data: bytes) -> None:
    """Write beside the target and rename: a reader sees the old file or the new one, never half of it."""
    temporary = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno is not None:  # a full disc does not say which file it was
            raise OSError(error.errno, error.strerror, str(path)) from None
        raise
