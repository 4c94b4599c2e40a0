"""The Lie group variational collision integrator."""

from __future__ import annotations

from math import pi, sin

from problems.reproduction.records import Read, Results

VISIBLE = 1e-2  # distance of two motions [m]


def straight(results: Results) -> tuple[bool, str]:
    """Check that the path of the centre of mass, seen from above, is a straight line."""
    return results["bend"] < 1e-10, f"{results['bend']:.0e} m from a line"


def curved(results: Results) -> tuple[bool, str]:
    """Check that the path is not a straight line."""
    return results["bend"] > 0.1, f"{results['bend']:.2f} m from a line"


def exchanged(results: Results) -> tuple[bool, str]:
    """Check that the rotational energy is constant in flight and changes in the impacts."""
    holds = results["exchange"] > 1.0 and results["drift"] < 1e-9
    return holds, f"up to {results['exchange']:.1f} J in an impact, {results['drift']:.0e} J in flight"


def diverged(results: Results) -> int | None:
    """Return the collision after which one of the perturbed motions has separated visibly."""
    first = [
        next((k for k, distance in enumerate(values) if distance is not None and distance > VISIBLE), None)
        for values in results["growth"].values()
    ]
    known = [k for k in first if k is not None]
    return min(known) if known else None


def degrees(results: Results) -> tuple[bool, str]:
    """Check that the printed distance belongs to another angle than the printed one."""
    printed, other = (results["attitude_distances"][name] for name in ("1e-8 pi rad", "1e-6 degrees"))
    shown = abs(printed - 2.0 * sin(0.5e-8 * pi)) < 1e-12 and abs(other - 1.75e-8) < 0.5e-10
    return (
        shown,
        f"the printed angle of 1e-8 pi gives {printed:.3e} = 2 sin(angle / 2), one of 1e-6 degrees {other:.3e}",
    )


def saturated(results: Results) -> tuple[bool, str]:
    """Check that the distance of perturbed motions ends at the size of the motion itself."""
    ends = [values[-1] for values in results["growth"].values()]
    return all(0.1 < end < 100.0 for end in ends), ", ".join(f"{end:.1f}" for end in ends)


def momentum(results: Results) -> tuple[bool, str]:
    """Check that the momentum along the plane is conserved in all cases."""
    worst = max(row["momentum_error"] for row in results["kept"].values())
    return worst < 1e-9, f"largest error {worst:.0e} kg m/s"


def wandering(results: Results) -> float:
    """Return the largest error of the energy by Algorithm 5.1."""
    return max(results["algorithms"]["5.1"].values())


def collisions(case: str) -> Read:
    """Read the mean number of collisions of a case."""
    return ("collisions", case, "mean")
