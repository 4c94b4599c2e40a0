"""A folder of results: one file per finished task, written entirely or not at all, and a list of deaths.

runs/KEY.json        the row of a finished task, with the versions that wrote it
runs/KEY.SUFFIX      what else it produced, e.g. a trajectory; written before the row
deaths.jsonl         one line for every attempt that died
lock                 held by the process that works in the folder

Files are written under another name and renamed, a row after the files it lists, so after a kill at any moment every
row is complete. Invariant: a row that exists is never computed again unless the user asks for it or deletes it.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from nosnoc_py.errors import OptionError
from nosnoc_py.files import write_atomically
from nosnoc_py.solution.trajectory import jsonable

# Version of the files; results of another one are refused, not converted.
FORMAT_VERSION = 1
# Ends of names of files beside a row: no separators, which would lead into other folders.
SUFFIX = r"\.[A-Za-z0-9_][A-Za-z0-9_.-]*"
TEMPORARY = re.compile(r"\.[0-9a-f]{32}$")  # how names end that `write_atomically` uses meanwhile


def library_version() -> str:
    """Version of this library, that results remember."""
    return import_module("nosnoc_py").__version__


class Entry(BaseModel):
    """A file of results: the row, the sizes of the files beside it by suffix, and what has written it."""

    model_config = ConfigDict(frozen=True, strict=True)

    format_version: int
    version: str
    key: str
    row: dict[str, Any]
    files: dict[Annotated[str, Field(pattern=f"^{SUFFIX}$")], int]


class Store:
    """Results of tasks in a folder, which is made when something is written.

    Parameters
    ----------
    folder : path
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._runs = self.folder / "runs"
        self._deaths = self.folder / "deaths.jsonl"
        self._held = False

    def __repr__(self) -> str:
        return f"Store({str(self.folder)!r})"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Make the folder and keep every other process out of it, as long as this one lives; may be nested.

        Raises
        ------
        OptionError
            If it cannot be written, or another process is at work there.
        """
        if self._held:
            yield
            return
        try:
            self._runs.mkdir(parents=True, exist_ok=True)
            file = (self.folder / "lock").open("a")
        except OSError as error:
            raise self._unwritable(error) from None
        with file:
            _lock(file, self.folder)
            try:
                write_atomically(self._runs / ".writable", b"")  # not all folders that exist take files
                (self._runs / ".writable").unlink()
                self._mend()
            except OSError as error:
                raise self._unwritable(error) from None
            self._held = True
            try:
                yield
            finally:
                self._held = False

    def _unwritable(self, error: OSError) -> OptionError:
        return OptionError(
            f"output folder {self.folder}: cannot be written ({error.strerror or error}); name another one, or change "
            "its permissions."
        )

    def row(self, key: str) -> dict[str, Any] | None:
        """Return the row of a finished task, or None.

        Raises
        ------
        OptionError
            If the file is damaged, incomplete, or of another version.
        """
        path = self._runs / f"{key}.json"
        entry = self.entry(path)
        if entry is None:
            return None
        for suffix, size in entry.files.items():
            beside = self._file(key, suffix)
            if not beside.exists() or beside.stat().st_size != size:
                raise OptionError(
                    f"{beside}: expected {size} bytes; the file is missing or truncated. Delete {path} to compute it "
                    "again; the other finished runs are kept."
                )
        return entry.row

    def entry(self, path: Path) -> Entry | None:
        """Return the content of a file of results, None without one; raises as `row` does."""
        try:
            entry = Entry.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _unreadable(path, f"it is truncated or damaged ({error})") from None
        except ValidationError as error:
            cut = error.errors()[0]["type"] == "json_invalid"
            why = "it is truncated or damaged" if cut else "it is damaged, or of another origin"
            raise _unreadable(path, why) from None
        written_by = entry.format_version, entry.version
        if written_by != (FORMAT_VERSION, library_version()):
            raise _unreadable(
                path,
                f"it is from another version (nosnoc_py {written_by[1]}, format {written_by[0]}; this is "
                f"{library_version()}, format {FORMAT_VERSION})",
            )
        return entry

    def write(self, key: str, row: Mapping[str, Any], files: Mapping[str, bytes] | None = None) -> dict[str, Any]:
        """Keep the result of a task; the row comes last, so that what has a row is complete. Return it as it is read.

        NaN and infinity become null, since JSON has no word for them.
        """
        files = files or {}
        for suffix, content in files.items():
            write_atomically(self._file(key, suffix), content)
        sizes = {suffix: len(content) for suffix, content in files.items()}
        made_by = {"format_version": FORMAT_VERSION, "version": library_version()}
        entry = {**made_by, "key": key, "row": dict(row), "files": sizes}
        text = encoded(entry)
        write_atomically(self._runs / f"{key}.json", text.encode())
        return json.loads(text)["row"]

    def forget(self, key: str) -> None:
        """Remove the row of a task, and forget its deaths."""
        (self._runs / f"{key}.json").unlink(missing_ok=True)
        self.bury(key, None)

    def file(self, key: str, suffix: str) -> Path | None:
        """Path of something else that a finished task produced, or None."""
        path = self._file(key, suffix)
        return path if path.exists() else None

    def deaths(self) -> Counter[str]:
        """Return the number of attempts that died, by task."""
        counts: Counter[str] = Counter()
        text = self._deaths.read_text(encoding="utf-8") if self._deaths.exists() else ""
        for line in text.splitlines():
            with suppress(ValueError, KeyError, TypeError):  # the last line may be cut by a kill
                note = json.loads(line)
                counts[note["key"]] = 0 if note["how"] is None else counts[note["key"]] + 1
        return counts

    def bury(self, key: str, how: str | None) -> None:
        """Note that an attempt at a task has died; None forgets all of its deaths."""
        with self._deaths.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"key": key, "how": how}) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def _mend(self) -> None:
        """Remove what a killed process left: temporary files, and a line that has no end."""
        for left in (*self._runs.glob(".*"), *self.folder.glob(".*")):
            if TEMPORARY.search(left.name):
                left.unlink()
        if self._deaths.exists() and not (data := self._deaths.read_bytes()).endswith(b"\n"):
            write_atomically(self._deaths, data[: data.rfind(b"\n") + 1])

    def _file(self, key: str, suffix: str) -> Path:
        check_suffix(suffix)
        return self._runs / f"{key}{suffix}"


def check_suffix(suffix: object) -> None:
    """Raise `OptionError` for the end of a name that would lead elsewhere, or to the row itself."""
    if not isinstance(suffix, str) or not re.fullmatch(SUFFIX, suffix) or suffix == ".json":
        raise OptionError(f"file of a task: expected a suffix such as '.nc' (not '.json'), given {suffix!r}.")


def encoded(value: Any) -> str:
    """Return a row as JSON: NaN and infinity are null, scalars of NumPy numbers, and all words UTF-8."""
    text = json.dumps(jsonable(value), indent=1, allow_nan=False, default=_refused, ensure_ascii=False)
    # Half characters (surrogates, from names of files that are no UTF-8) are written as their escapes.
    return re.sub("[\ud800-\udfff]", lambda half: rf"\\u{ord(half[0]):04x}", text)


def _refused(value: Any) -> Any:
    raise OptionError(f"row: JSON cannot hold {value!r}; expected numbers, strings, lists and mappings.")


def _unreadable(path: Path, why: str) -> OptionError:
    return OptionError(
        f"{path}: this result cannot be used, {why}. Delete it to compute it again, or use another output folder; the "
        "other finished runs are kept."
    )


def _lock(file: Any, folder: Path) -> None:
    """Lock the folder until the file is closed or the process ends; go on without where there are no locks."""
    try:
        import fcntl
    except ImportError:
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise OptionError(
            f"output folder {folder}: another process is at work in it; wait for its end, or name another folder."
        ) from None
    except OSError:  # some network file systems have no locks
        return
