"""Common parts of the commands: the exit codes, one clear message instead of a traceback, the output of `--json`."""

from __future__ import annotations

import json
import traceback
from collections.abc import Mapping
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from nosnoc_py.errors import NosnocError
from nosnoc_py.solution.trajectory import jsonable

SUCCESS, FAILURE, MISTAKE, INTERRUPTED = 0, 1, 2, 130
JSON = "nosnoc_py.json"  # whether JSON was asked for, among what click keeps for a call


class Commands(TyperGroup):
    """Commands whose errors become a message on standard error and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command; what the user can mend costs no traceback."""
        try:
            return super().invoke(ctx)
        except NosnocError as error:
            _show_own_traceback(error)
            _fail(ctx, type(error).__name__, str(error), MISTAKE)
        except BrokenPipeError:
            raise  # the reader of our output left: nothing to tell
        except OSError as error:
            _fail(ctx, type(error).__name__, _about(error), MISTAKE)
        except KeyboardInterrupt as error:
            _fail(ctx, "Interrupted", str(error) or "interrupted.", INTERRUPTED)


def remember_json(ctx: typer.Context, value: bool) -> bool:
    """Note that `--json` was given, so that errors know."""
    ctx.meta[JSON] = value
    return value


def say(json: bool, report: Mapping[str, Any], text: str, *, quiet: bool = False) -> None:
    """Write a report as JSON, or as text for people unless they want it quiet."""
    if json:
        write_json(report)
    elif not quiet:
        typer.echo(text.rstrip("\n"))


def write_json(values: Mapping[str, Any]) -> None:
    """Write one JSON object on one line; NaN and infinity become null."""
    typer.echo(json.dumps(jsonable(values)))


def _fail(ctx: Any, kind: str, message: str, code: int) -> NoReturn:
    typer.echo(f"nosnoc-py: {message}", err=True)
    if ctx.meta.get(JSON):
        write_json({"error": kind, "message": message})
    raise typer.Exit(code)


def _show_own_traceback(error: NosnocError) -> None:
    """Write the traceback of a function of the user to standard error, without the calls of the library."""
    from nosnoc_py.sweep.references import RaisedError

    cause = error.__cause__
    if isinstance(error, RaisedError) and cause is not None and cause.__traceback__ is not None:
        own = cause.__traceback__.tb_next  # the first is that of our call
        typer.echo("".join(traceback.format_exception(type(cause), cause, own)), err=True, nl=False)


def _about(error: OSError) -> str:
    reason = error.strerror or str(error) or type(error).__name__
    return f"{error.filename}: {reason}." if error.filename else f"{reason}."
