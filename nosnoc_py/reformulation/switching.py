"""Where a system switches: the trees of step equilibration (Tables 1 and 2, Eqs. 27-30), and what isolates switches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nosnoc_py.reformulation.dcs import And, Indicator, Isolation, Leaf, Or, Pair, around, inactive, leaves
from nosnoc_py.reformulation.friction import FrictionModes

CONTACT = "contact"  # the pair of gaps and normal forces, to which the leaves refer


def _contact(i: int) -> And:
    """Closed before and after (pi^lambda of Eq. 27); open before, at, and after the node is pi^f."""
    return around(CONTACT, "b", i)


def switch_indicator(names: Sequence[str], modes: Mapping[str, FrictionModes]) -> And:
    """Positive where no contact switches (Eq. 30): the product over contacts of kappa (Eq. 28) and zeta.

    zeta counts friction only where a contact is closed before and after the node; a contact without friction has none.
    """
    parts: list[Indicator] = []
    for i, name in enumerate(names):
        parts.append(Or((inactive(CONTACT, i), _contact(i))))
        if name in modes:
            parts.append(Or((*around(CONTACT, "a", i).parts, modes[name].steady)))
    return And(tuple(parts))


def isolations(names: Sequence[str], modes: Mapping[str, FrictionModes]) -> tuple[Isolation, ...]:
    """The equations that say when a contact releases, and when it goes from stick to slip.

    The published equations leave both open: v_t = 0 on the stick side makes (21) and (22) trivial, so that a switch
    that comes early satisfies them all; and a normal force that is given up early leaves gaps that the stages do not
    see. Forces are continuous at a node unless some contact makes them jump; so they are at the end of the cone (or at
    zero) just before such a switch, if no other contact jumps there. After a reversal that is true anyway.
    """
    calm = [_calm(CONTACT, i, modes.get(name)) for i, name in enumerate(names)]
    found = []
    for i, name in enumerate(names):
        others = tuple(calm[:i] + calm[i + 1 :])
        opens = And((*leaves(CONTACT, i).parts, *others))
        found.append(Isolation(name=f"release[{name}]", residual=Leaf("end", CONTACT, "b", i), indicator=opens))
        if name in modes:
            slips = And((_contact(i), modes[name].moves, *others))
            found.append(Isolation(name=f"slip[{name}]", residual=modes[name].slack, indicator=slips))
    return tuple(found)


def departures(pairs: Sequence[Pair], held: Sequence[tuple[str, int]] = ()) -> tuple[Isolation, ...]:
    """A multiplier b that ends at a node vanishes there, if no other component makes it jump.

    Where the state leaves a sliding mode or a constraint, its multiplier falls to zero continuously. One that is given
    up early satisfies all equations, too: the state then dips through the surface between the stages.

    Parameters
    ----------
    pairs : sequence of Pair
    held : sequence of (pair, component)
        Multipliers with one value per finite element: they do not fall, and are no part of this.
    """
    places = [(p.name, i) for p in pairs if p.cross != "none" for i in range(p.a.numel()) if (p.name, i) not in held]
    calm = [_calm(*place) for place in places]
    found = []
    for k, (pair, i) in enumerate(places):
        others = (*calm[:k], *calm[k + 1 :])
        ends = And((*leaves(pair, i).parts, *others))
        found.append(Isolation(name=f"departure[{pair}][{i}]", residual=Leaf("end", pair, "b", i), indicator=ends))
    return tuple(found)


def _calm(pair: str, i: int, modes: FrictionModes | None = None) -> Or:
    """Positive where a component makes no multiplier jump: inactive or active before and after, or given up.

    A contact with friction that stays closed must not end a slip, either.
    """
    active = around(pair, "b", i)
    persistent = active if modes is None else And((active, Or((modes.steady, modes.stuck))))
    return Or((inactive(pair, i), persistent, leaves(pair, i)))
