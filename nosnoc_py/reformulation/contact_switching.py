"""Where contacts switch: the trees of step equilibration (Tables 1 and 2, Eqs. 27-30), and what isolates switches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nosnoc_py.reformulation.dcs import And, Indicator, Isolation, Leaf, Or, around, inactive, leaves
from nosnoc_py.reformulation.friction import Modes

CONTACT = "contact"  # the pair of gaps and normal forces, to which the leaves refer


def _contact(i: int) -> And:
    """Closed before and after (pi^lambda of Eq. 27); open before, at, and after the node is pi^f."""
    return around(CONTACT, "b", i)


def switch_indicator(names: Sequence[str], modes: Mapping[str, Modes]) -> And:
    """Positive where no contact switches (Eq. 30): the product over contacts of kappa (Eq. 28) and zeta.

    zeta counts friction only where a contact is closed before and after the node; a contact without friction has none.
    """
    parts: list[Indicator] = []
    for i, name in enumerate(names):
        parts.append(Or((inactive(CONTACT, i), _contact(i))))
        if name in modes:
            parts.append(Or((*around(CONTACT, "a", i).parts, modes[name].steady)))
    return And(tuple(parts))


def isolations(names: Sequence[str], modes: Mapping[str, Modes]) -> tuple[Isolation, ...]:
    """The equations that say when a contact releases, and when it goes from stick to slip.

    The published equations leave both open: v_t = 0 on the stick side makes (21) and (22) trivial, so that a switch
    that comes early satisfies them all; and a normal force that is given up early leaves gaps that the stages do not
    see. Forces are continuous at a node unless some contact makes them jump; so they are at the end of the cone (or at
    zero) just before such a switch, if no other contact jumps there. After a reversal that is true anyway.
    """
    calm = [_calm(i, modes.get(name)) for i, name in enumerate(names)]
    found = []
    for i, name in enumerate(names):
        others = tuple(calm[:i] + calm[i + 1 :])
        opens = And((*leaves(CONTACT, i).parts, *others))
        found.append(Isolation(name=f"release[{name}]", residual=Leaf("end", CONTACT, "b", i), indicator=opens))
        if name in modes:
            slips = And((_contact(i), modes[name].moves, *others))
            found.append(Isolation(name=f"slip[{name}]", residual=modes[name].slack, indicator=slips))
    return tuple(found)


def _calm(i: int, modes: Modes | None) -> Indicator:
    """Positive where this contact makes no force jump: no impact, no landing, no end of a slip."""
    persistent = _contact(i) if modes is None else And((_contact(i), Or((modes.steady, modes.stuck))))
    return Or((inactive(CONTACT, i), persistent, leaves(CONTACT, i)))
