"""What the tests of the command line share."""

from __future__ import annotations

import json
from typing import Any

from typer.testing import CliRunner, Result

from nosnoc_py.cli import app

PNG = b"\x89PNG\r\n\x1a\n"


def call(*arguments: object) -> Result:
    """Run a command in this process, as a user would type it."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def succeeded(*arguments: object) -> str:
    """Run a command that has to succeed; return what it writes."""
    done = call(*arguments)
    assert done.exit_code == 0, done.output
    return done.stdout


def as_json(*arguments: object, code: int = 0) -> dict[str, Any]:
    """Run a command with --json; return its last line."""
    done = call(*arguments, "--json")
    assert done.exit_code == code, done.output
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def refused(*arguments: object, code: int = 2) -> str:
    """Run a command that has to fail with one message and without a traceback; return the message."""
    done = call(*arguments)
    assert done.exit_code == code, done.output
    assert isinstance(done.exception, SystemExit), done.exception
    assert "Traceback" not in done.output
    assert done.stderr.startswith(("nosnoc-py: ", "Usage: "))
    assert not done.stdout.strip()
    return done.stderr
