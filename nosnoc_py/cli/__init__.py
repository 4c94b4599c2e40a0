"""The command line, `nosnoc-py` or `python -m nosnoc_py`: everything here is about words on a terminal.

Exit codes: 0 success; 1 the work ended without success, and the status says why; 2 a mistake in what was asked for;
130 interrupted. Messages about mistakes go to standard error. With `--json` the last line of the output is one JSON
object, also after a mistake or an interruption: then it has the keys `error` (the kind) and `message`. (Not so where
the command line itself could not be read: an unknown option gives a message in words only.)
"""

from nosnoc_py.cli.app import app, main

__all__ = ["app", "main"]
