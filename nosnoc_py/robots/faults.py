"""Faults of a robot file, collected so that one error names all of them, and what is left out, in one warning."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from nosnoc_py.errors import ModelError, ModelWarning

# From a warning up to the call of a user: here, `Robot.from_...`, and the check of its keywords.
LEVEL = 6


class Faults:
    """Faults and remarks of the file that is being read.

    Parameters
    ----------
    format_name : str
        Beginning of all messages.
    """

    def __init__(self, format_name: str) -> None:
        self.format, self.found, self.remarks = format_name, dict[str, None](), Counter[str]()

    def add(self, text: str) -> None:
        """Add a fault."""
        self.found[text] = None

    def remark(self, text: str) -> None:
        """Add something that is left out; equal texts are counted."""
        self.remarks[text] += 1

    @contextmanager
    def caught(self) -> Iterator[None]:
        """Collect a `ModelError` of the block, so that reading goes on."""
        try:
            yield
        except ModelError as error:
            self.add(str(error).removeprefix(f"{self.format}: "))

    def check(self) -> None:
        """Raise one `ModelError` with all faults, if there are any."""
        texts = list(self.found)
        if len(texts) == 1:
            raise ModelError(f"{self.format}: {texts[0]}")
        if texts:
            raise ModelError(f"{self.format}: {len(texts)} faults:\n" + "\n".join(f"- {text}" for text in texts))

    def said(self) -> tuple[str, ...]:
        """Return the remarks with their counts."""
        return tuple(f"{text} ({count})" for text, count in self.remarks.items())

    def warn(self, name: str, texts: tuple[str, ...], why: str) -> None:
        """Give one `ModelWarning` of some texts, if there are any."""
        if texts:
            warnings.warn(f"{self.format}: {name}: {'; '.join(texts)}: {why}.", ModelWarning, stacklevel=LEVEL)
