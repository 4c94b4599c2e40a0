"""Checks of one member of a family: all of them are made, and what fails is reported together."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from nosnoc_py.errors import NosnocError

# Lines of the message of a check that are shown.
LINES = 4


def expect(holds: Any, message: str) -> None:
    """Raise `AssertionError` with a message unless something holds; not an `assert`, which `python -O` leaves out."""
    if not holds:
        raise AssertionError(message)


def expect_refusals(run: Callable[..., Any], mistakes: Iterable[dict[str, Any]]) -> None:
    """Raise `AssertionError` unless a call refuses each of these arguments with an error of the library."""
    for mistake in mistakes:
        try:
            run(**mistake)
        except NosnocError:
            continue
        raise AssertionError(f"no error for {mistake}")


def run_checks(title: str, checks: Iterable[Callable[..., None]], *member: Any) -> None:
    """Make all checks of a member.

    Raises
    ------
    AssertionError
        With the names and the beginnings of the messages of all checks that fail.

    Examples
    --------
    >>> def is_positive(x): expect(x > 0, f"{x} is not positive")
    >>> run_checks("number", [is_positive], -1)
    Traceback (most recent call last):
        ...
    AssertionError: number: 1 of 1 checks fails
      is positive: -1 is not positive
    """
    failed, checks = list[str](), tuple(checks)
    for check in checks:
        try:
            check(*member)
        except AssertionError as error:
            said = "; ".join([line.strip() for line in str(error).splitlines() if line.strip()][:LINES])
            failed.append(f"{check.__name__.replace('_', ' ')}: {said or 'it does not hold'}")
        except Exception as error:  # what it refuses here, or cannot do, it has to do
            failed.append(f"{check.__name__.replace('_', ' ')}: {type(error).__name__}: {error}")
    if failed:
        many = "s" if len(failed) == 1 else ""
        raise AssertionError("\n  ".join([f"{title}: {len(failed)} of {len(checks)} checks fail{many}", *failed]))
