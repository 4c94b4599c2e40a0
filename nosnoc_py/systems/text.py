"""Texts for the repr of systems: counted nouns, and expressions in the user's names."""

from __future__ import annotations

from collections.abc import Sequence

import casadi as ca

WIDTH = 80  # longer expressions are cut: a repr has a line for each


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, such as "1 control" or "2 controls"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def shown(expression: ca.SX, named: Sequence[tuple[ca.SX, Sequence[str]]] = ()) -> str:
    """Return an expression as text, with the components of every vector in `named` called by its names."""
    known = [(symbols, names) for symbols, names in named if symbols.numel() == len(names) > 0]
    if known:
        old = ca.vertcat(*[symbols for symbols, _ in known])
        new = ca.vertcat(*[ca.SX.sym(name) for _, names in known for name in names])
        expression = ca.substitute(expression, old, new)
    text = " ".join(str(expression).split())
    return text if len(text) <= WIDTH else f"{text[: WIDTH - 4]} ..."
