"""BibTeX entries to cite. They are in citation.bib beside, because CITATION.cff is not in an installed package."""

from __future__ import annotations

import re
from importlib.resources import files

from nosnoc_py import __version__


def bibtex() -> str:
    """Return the BibTeX entries of this version and of the five articles."""
    text = files("nosnoc_py.cli").joinpath("citation.bib").read_text(encoding="utf-8")
    return text.replace("{VERSION}", f"{{{__version__}}}")


def keys() -> list[str]:
    """Return the keys of the entries, the package first."""
    return re.findall(r"^@\w+\{(\w+),", bibtex(), re.M)
