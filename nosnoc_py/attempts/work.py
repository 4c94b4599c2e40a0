"""Work of a computation, counted in evaluations: the same on every machine and beside any other process.

A search that is limited by the clock finds other motions on a busy machine. Here iterations and steps are counted,
each weighted by the size of what it evaluates, and limits are limits of this count. One unit is about a second of
processor time on a core of 2025; it is no measurement, so that the same search always costs the same.

Solvers and simulators `count` what they do. Whoever limits them opens an account (`counted`): the accounts of a
thread are nested, and work counts in all of them. A solver ends when `exhausted()`, as it does at a deadline.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

# Units of work of one operation of a CasADi function, of one nonzero entry of a factorisation, and of an iteration of
# IPOPT besides its evaluations; the same of the interior-point method of the library, which evaluates programs as
# numbers. Fitted, like the following ones, to processor times of searches with four to thirty-seven states.
OPERATION, ENTRY, ITERATION = 5e-9, 1.5e-7, 2e-4
INTERIOR_OPERATION, INTERIOR_ENTRY, INTERIOR_ITERATION = 2e-9, 6e-8, 4.2e-4
# Of a step of an integrator besides its evaluations, of a step that is a single compiled call, and of an event.
STEP, SMALL, EVENT = 8e-4, 4e-4, 1.5e-3
# Of the functions of a motion at one time, where an event is located, and of a linear program by a general solver.
SAMPLE, LINEAR_PROGRAM = 1e-4, 3e-3
# Of an operation that is differentiated and of a program of expressions besides its derivatives; of an entry of the
# Jacobian of a program of blocks, and of such a program with its readout.
BUILT, PROGRAM = 6e-7, 2e-2
ASSEMBLED, NUMERIC_PROGRAM = 5e-7, 9e-3
# Evaluations of the model in a step of the integrator, with those at its samples.
EVALUATIONS = 40


@dataclass
class Account:
    """Work that has been counted since an account was opened.

    Attributes
    ----------
    limit : float
        Units of work after which solvers and simulators end.
    total : float
        Units so far.
    """

    limit: float = float("inf")
    total: float = 0.0

    @property
    def left(self) -> float:
        """Work up to the limit, at least zero."""
        return max(0.0, self.limit - self.total)


_ACCOUNTS: ContextVar[tuple[Account, ...]] = ContextVar("accounts", default=())


@contextmanager
def counted(limit: float = float("inf")) -> Iterator[Account]:
    """Open an account for the work in this block; within it, solvers end at the limit.

    Examples
    --------
    >>> with counted(limit=2.0) as outer:
    ...     with counted() as inner:
    ...         count(1.5)
    ...         count(1.0)
    ...     exhausted(), inner.total, outer.left
    (True, 2.5, 0.0)
    """
    account = Account(limit=limit)
    token = _ACCOUNTS.set((*_ACCOUNTS.get(), account))
    try:
        yield account
    finally:
        _ACCOUNTS.reset(token)


def count(amount: float) -> None:
    """Add work to all open accounts."""
    for account in _ACCOUNTS.get():
        account.total += amount


def left() -> float:
    """Return the least work that is left in an open account; infinite without a limit."""
    return min((account.left for account in _ACCOUNTS.get()), default=float("inf"))


def exhausted() -> bool:
    """Return True if an open account has reached its limit."""
    return any(account.total >= account.limit for account in _ACCOUNTS.get())


def of_iteration(operations: float, entries: float) -> float:
    """Return the work of one iteration of an NLP solver.

    Parameters
    ----------
    operations : float
        Operations of the functions that it evaluates.
    entries : float
        Nonzero entries of Jacobian and Hessian, which are factorised.
    """
    return ITERATION + OPERATION * operations + ENTRY * entries


def of_interior_iteration(operations: float, entries: float) -> float:
    """Return the work of one iteration of the interior-point method, with the arguments of `of_iteration`."""
    return INTERIOR_ITERATION + INTERIOR_OPERATION * operations + INTERIOR_ENTRY * entries


def of_step(operations: float) -> float:
    """Return the work of a step of the integrator, whose model has so many operations."""
    return STEP + EVALUATIONS * OPERATION * operations


def of_program(operations: float) -> float:
    """Return the work of writing and differentiating a program whose blocks have so many operations."""
    return PROGRAM + BUILT * operations


def of_numeric_program(entries: float) -> float:
    """Return the work of writing a program of blocks, whose Jacobian has so many entries."""
    return NUMERIC_PROGRAM + ASSEMBLED * entries
