"""Hybrid systems with autonomous state jumps: a smooth flow, guards, and the resets at their zeros.

The description is that of the hybrid minimum principle (HMP, Eqs. 2-6 and Appendix C). The flow holds where all guards
are nonnegative; a guard that reaches zero with negative rate triggers its reset. Jumps are isolated in time, so that
neither persistent contact nor simultaneous jumps can be described: for these write a `CLS`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import casadi as ca
import numpy as np
from attrs import evolve, field

from nosnoc_py.declared import declared, optional
from nosnoc_py.errors import ModelError
from nosnoc_py.systems.described import Described
from nosnoc_py.systems.symbols import check_free, column, free_of_others, one_row, part_name, parts


@declared
class StateJump:
    """Autonomous state jump: when guard(x) reaches zero from above, x becomes reset(x) (HMP, Eqs. 3-4).

    Parameters
    ----------
    name : str
        Name of the jump; events carry it.
    guard : SX scalar
        psi(x, p), positive where the flow holds. Its rate along the flow has to be negative where it is reached
        (transversality, Eq. 6).
    reset : SX (n_x,)
        g(x, p), the state after the jump.
    impulse : SX scalar, optional
        Number that the event records, such as the contact impulse [N s]; in x (before the jump) and p.

    Raises
    ------
    ModelError
        If the name is empty, or guard and reset are no expressions of the right shape.

    Examples
    --------
    An elastic impact on the ground:

    >>> import casadi as ca, nosnoc_py as ns
    >>> x = ca.SX.sym("x", 2)
    >>> bounce = ns.StateJump("ground", guard=x[0], reset=ca.vertcat(x[0], -x[1]))
    >>> bounce.name
    'ground'
    """

    noun: ClassVar[str] = "jump"

    name: str = field(converter=part_name)
    guard: ca.SX = field(converter=one_row, kw_only=True)
    reset: ca.SX = field(converter=column, kw_only=True)
    impulse: ca.SX | None = field(default=None, converter=optional(one_row), kw_only=True)


def _jumps(value: Sequence[StateJump], owner: Any = None) -> tuple[StateJump, ...]:
    return parts(value, StateJump, type(owner).__name__, "jumps")


@declared(kw_only=True)
class HybridSystem(Described):
    """Hybrid system x' = f(x, u, p) with jumps x+ = g_i(x-, p) where psi_i(x, p) = 0 (HMP, Eqs. 2-4, Appendix C).

    Collisions are isolated: one guard at a time reaches zero, and with a speed.

    Parameters
    ----------
    x : SX (n_x,)
    u : SX (n_u,), optional
    p : SX (n_p,), optional
    flow : SX (n_x,)
        f(x, u, p).
    jumps : sequence of StateJump
    t : SX scalar, optional
        Time [s], for flows and guards that depend on it; it is the last state, called "t".
    names, units, nominal, p_default, scene
        As in `CLS`, for "x", "u", "p".

    Raises
    ------
    ModelError
        For wrong shapes, foreign symbols, duplicate names.

    Examples
    --------
    >>> import casadi as ca, nosnoc_py as ns
    >>> x, u = ca.SX.sym("x", 2), ca.SX.sym("u")
    >>> bounce = ns.StateJump("ground", guard=x[0], reset=ca.vertcat(x[0], -0.8 * x[1]))
    >>> ball = ns.HybridSystem(x=x, u=u, flow=ca.vertcat(x[1], u - 9.81), jumps=[bounce])
    >>> ball.state_names
    ('x_0', 'x_1')
    >>> motion = ns.simulate(ball, x0=[1, 0], duration=1.0)
    >>> round(motion.events[0].time, 9)  # the square root of 2 / 9.81
    0.451523641
    """

    smoothable = False
    methods = (
        "ns.MultiPhase(sequence=[{}, 'impact NAME', {}]), ns.MinimumPrinciple(...) or ns.DirectShooting(form='phases') "
        "with ns.solve, and ns.EventDriven() with ns.simulate"
    )

    flow: ca.SX = field(converter=column)
    jumps: tuple[StateJump, ...] = field(default=(), converter=_jumps)

    def __attrs_post_init__(self) -> None:
        joined = self._join_time("x")
        allowed = self._check_symbols()
        flow = column(self.flow, "HybridSystem: flow", self.x.numel() - joined)
        self._set(flow=ca.vertcat(flow, 1) if joined else flow)
        check_free(self.flow, allowed, "HybridSystem: flow")
        self._set(jumps=tuple(self._checked_jump(jump, joined) for jump in self.jumps))
        self._describe()

    def _checked_jump(self, jump: StateJump, joined: bool) -> StateJump:
        check, what = free_of_others({"x": self.x, "p": self.p}), f"jump {jump.name!r}"
        check(jump.guard, f"{what}: guard")
        # Such a guard is never crossed along a motion.
        if not ca.depends_on(jump.guard, self.x):
            raise ModelError(f"{what}: the guard does not depend on x; write it in x.")
        # A jump does not know its system: the length of its reset is checked here.
        reset = column(jump.reset, f"{what}: reset", self.x.numel() - joined)
        reset = ca.vertcat(reset, self.t) if joined else reset  # no jump changes the time
        check(reset, f"{what}: reset")
        if jump.impulse is not None:
            check(jump.impulse, f"{what}: impulse")
        # A column of the right length: resets of one state may be given as a scalar.
        return evolve(jump, reset=reset)

    def check_state(self, x: Any, p: Any = None, *, what: str = "x0", tolerance: float = 1e-8) -> np.ndarray:
        """Return a state as a vector (n_x,) or raise `ModelError` when it is ill-shaped or beyond a guard."""
        state = super().check_state(x, what=what)
        parameters = self.parameters(p)
        # All guards, as the flow holds only where none is negative.
        guards = ca.Function("guards", [self.x, self.p], [ca.vertcat(*[jump.guard for jump in self.jumps])])
        for jump, value in zip(self.jumps, np.array(guards(state, parameters)).reshape(-1), strict=True):
            # Written with `not` so that NaN is refused; a start on the guard is allowed, as after a jump.
            if not value >= -tolerance:
                raise ModelError(
                    f"{what} lies beyond the guard of jump {jump.name!r}: its value is {value:.6g}, expected >= 0."
                )
        return state

    def __repr__(self) -> str:
        return self._tree(*(("jump", f"{jump.name}: guard {self._shown(jump.guard)}") for jump in self.jumps))
