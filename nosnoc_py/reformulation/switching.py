"""Indicators of switches for step equilibration, and conditions that determine the time of a switch.

Step equilibration makes neighbouring steps equal unless something switches at the node between them. The indicator
trees in here are positive if nothing switches (FESD-J, Tables 1 and 2, Eqs. 27-30).

Complementarities alone do not determine the time of every switch. If stick turns into slip, or a sliding mode ends,
one side is identically zero before the switch, so that a switch that comes too early satisfies every equation.
The missing condition is that a multiplier is continuous at a node unless something else jumps there: it has to reach
zero (or the boundary of its cone) at the end of the element before. `contact_switch_conditions` writes these
conditions for contacts, `sliding_exit_conditions` for Filippov systems and projected dynamics. They are additions to
the published equations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nosnoc_py.reformulation.dcs import (
    And,
    Indicator,
    Leaf,
    Or,
    Pair,
    SwitchCondition,
    before_and_after,
    inactive,
    releases,
)
from nosnoc_py.reformulation.friction import FrictionIndicators

CONTACT = "contact"  # name of the pair of gaps and normal forces, to which the leaves refer


def _persistent_contact(i: int) -> And:
    """Return pi^lambda of Eq. 27, positive if contact i is closed before and after the node."""
    return before_and_after(CONTACT, "b", i)


def switch_indicator(names: Sequence[str], modes: Mapping[str, FrictionIndicators]) -> And:
    """Return a tree that is positive if no contact switches at the node (Eq. 30).

    It is the product over the contacts of kappa (Eq. 28: no change between open and closed) and, with friction, of
    zeta (no change of the friction mode). zeta is positive anyway if the contact is open before or after the node.
    """
    parts: list[Indicator] = []
    for i, name in enumerate(names):
        parts.append(Or((inactive(CONTACT, i), _persistent_contact(i))))
        if name in modes:
            # The single sums of the gap make zeta positive in flight, where friction has no mode.
            parts.append(Or((*before_and_after(CONTACT, "a", i).parts, modes[name].steady)))
    return And(tuple(parts))


def contact_switch_conditions(
    names: Sequence[str], modes: Mapping[str, FrictionIndicators]
) -> tuple[SwitchCondition, ...]:
    """Return the conditions on the time of release and of the change from stick to slip.

    The published equations determine neither. In stick v_t = 0 makes (21) and (22) trivial, so that a slip that begins
    too early satisfies them; a normal force that ends too early leaves gaps between the stages. Forces are continuous
    at a node unless another contact makes them jump: just before such a switch the force is at the boundary of its
    cone (or zero) if no other contact jumps there. At a reversal this holds anyway.

    Parameters
    ----------
    names : sequence of str
        Contacts.
    modes : mapping of str to FrictionIndicators
        Indicators of the contacts with friction.
    """
    quiet = [_no_jump(CONTACT, i, modes.get(name)) for i, name in enumerate(names)]
    conditions = []
    for i, name in enumerate(names):
        # The contact itself is left out, since the condition holds at its own switch.
        others = tuple(quiet[:i] + quiet[i + 1 :])
        release = SwitchCondition(
            name=f"release[{name}]",
            residual=Leaf("end", CONTACT, "b", i),
            indicator=And((*releases(CONTACT, i).parts, *others)),
        )
        conditions.append(release)
        if name in modes:
            # No factor asks whether the contact stuck before: after slip the slack is zero and the condition holds.
            slips = And((_persistent_contact(i), modes[name].slips_after, *others))
            conditions.append(SwitchCondition(name=f"slip[{name}]", residual=modes[name].slack, indicator=slips))
    return tuple(conditions)


def sliding_exit_conditions(
    pairs: Sequence[Pair], per_element: Sequence[tuple[str, int]] = ()
) -> tuple[SwitchCondition, ...]:
    """Return the conditions on the time at which the state leaves a sliding mode or a constraint.

    The multiplier b of a sliding mode decreases to zero continuously, unless another component makes it jump. Without
    this condition a multiplier that ends too early satisfies all equations: the state then crosses the surface between
    the stages.

    Parameters
    ----------
    pairs : sequence of Pair
    per_element : sequence of (pair, component)
        Multipliers with one value per finite element. They are constant in the element and cannot decrease, so they get
        no condition.
    """
    components = [
        (p.name, i) for p in pairs if p.cross != "none" for i in range(p.a.numel()) if (p.name, i) not in per_element
    ]
    quiet = [_no_jump(*component) for component in components]
    conditions = []
    for k, (pair, i) in enumerate(components):
        others = (*quiet[:k], *quiet[k + 1 :])
        condition = SwitchCondition(
            name=f"sliding_exit[{pair}][{i}]",
            residual=Leaf("end", pair, "b", i),
            indicator=And((*releases(pair, i).parts, *others)),
        )
        conditions.append(condition)
    return tuple(conditions)


def _no_jump(pair: str, i: int, modes: FrictionIndicators | None = None) -> Or:
    """Return a tree that is positive if a component makes no multiplier jump at the node.

    Such a component is inactive before and after, active before and after, or released. The end of a slip makes the
    friction force jump, so a contact that stays closed must keep its friction mode or have been in stick before.
    """
    active = before_and_after(pair, "b", i)
    # Release is harmless, because the condition itself makes the multiplier go to zero there.
    persistent = active if modes is None else And((active, Or((modes.steady, modes.sticks_before))))
    return Or((inactive(pair, i), persistent, releases(pair, i)))
