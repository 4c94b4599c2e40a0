"""When the state leaves a surface: what the complementarities leave open, for systems without jumps."""

from __future__ import annotations

from collections.abc import Sequence

from nosnoc_py.reformulation.dcs import And, Isolation, Leaf, Or, Pair, around, inactive, leaves

Place = tuple[str, int]


def departures(pairs: Sequence[Pair], held: Sequence[Place] = ()) -> tuple[Isolation, ...]:
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
    calm = [_calm(place) for place in places]
    found = []
    for k, (pair, i) in enumerate(places):
        others = (*calm[:k], *calm[k + 1 :])
        ends = And((*leaves(pair, i).parts, *others))
        found.append(Isolation(name=f"departure[{pair}][{i}]", residual=Leaf("end", pair, "b", i), indicator=ends))
    return tuple(found)


def _calm(place: Place) -> Or:
    """Positive where a component makes no multiplier jump: inactive or active before and after, or given up."""
    return Or((inactive(*place), around(place[0], "b", place[1]), leaves(*place)))
