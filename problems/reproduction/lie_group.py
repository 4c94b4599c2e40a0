"""The Lie group variational collision integrator."""

from __future__ import annotations

from problems.reproduction.records import Entry, Experiment, Paper, Read, Results, out_of_scope
from problems.reproduction.verdicts import Holds, Within

CASES = {
    "I": "ellipsoid",
    "II": "ellipsoid, tilted plane",
    "III": "union of ellipsoids",
    "IV": "cube",
}
VISIBLE = 1e-2  # distance of two motions [m]
CLOSED = "Here it is rounding: translation is evaluated in closed form since the last impact."

EXPERIMENTS = (
    *(
        Experiment(
            name=f"case_{case}",
            module="bouncing_bodies",
            settings={"case": case},
            quick={"case": case},
            figures=(),  # those of the ensemble show all four
        )
        for case in CASES
    ),
    Experiment(
        name="ensemble",
        module="benchmarks.bouncing_bodies_ensemble",
        quick={"starts": 3, "duration": 100.0, "horizon": 25.0},
        timeout=3600.0,
    ),
)


def straight(results: Results) -> tuple[bool, str]:
    """The path of the centre of mass, seen from above, is a straight line."""
    return results["bend"] < 1e-10, f"{results['bend']:.0e} m from a line"


def curved(results: Results) -> tuple[bool, str]:
    """It is not."""
    return results["bend"] > 0.1, f"{results['bend']:.2f} m from a line"


def exchanged(results: Results) -> tuple[bool, str]:
    """Rotational energy is constant in flight and changes in the impacts."""
    holds = results["exchange"] > 1.0 and results["drift"] < 1e-9
    return holds, f"up to {results['exchange']:.1f} J in an impact, {results['drift']:.0e} J in flight"


def diverged(results: Results) -> int | None:
    """After which collision the motions have separated visibly: the first of both perturbed ones."""
    first = [
        next((k for k, distance in enumerate(values) if distance is not None and distance > VISIBLE), None)
        for values in results["growth"].values()
    ]
    known = [k for k in first if k is not None]
    return min(known) if known else None


def saturated(results: Results) -> tuple[bool, str]:
    """The distance of perturbed motions ends at the size of the motion itself."""
    ends = [values[-1] for values in results["growth"].values()]
    return all(0.1 < end < 100.0 for end in ends), ", ".join(f"{end:.1f}" for end in ends)


def momentum(results: Results) -> tuple[bool, str]:
    """Momentum along the plane is kept in all cases."""
    worst = max(kept["momentum_error"] for kept in results["kept"].values())
    return worst < 1e-9, f"largest error {worst:.0e} kg m/s"


def wandering(results: Results) -> float:
    """Largest error of the energy by Algorithm 5.1."""
    return max(results["algorithms"]["5.1"].values())


def collisions(case: str) -> Read:
    """Read the mean number of collisions of a case."""
    return ("collisions", case, "mean")


def _counted(case: str, paper: float, deviation: float, why: str) -> Entry:
    return Entry(
        where="Fig. 6, Section 7.3",
        what=f"Case {case}: collisions in 1e5 steps, mean over perturbed starts",
        experiment="ensemble",
        read=collisions(case),
        paper=paper,
        agreement=Within(tolerance=deviation, reason="one deviation of single motions: the number is chaotic"),
        why=why,
        quick=False,
    )


ENTRIES = (
    out_of_scope(
        "Figs. 1 to 3", "the variational principle; closest points; rounding", "drawings, nothing is computed"
    ),
    out_of_scope(
        "Table 1",
        "variational integrators in both forms",
        "formulas, implemented; in Imp+ the gravity term lacks a factor h",
    ),
    out_of_scope(
        "Table 2",
        "Algorithms 5.1, 5.2",
        "formulas, implemented; they are not equivalent, and t = t + alpha means t + alpha h",
    ),
    out_of_scope(
        "Table 3",
        "parameters of the bodies",
        "inputs, taken as they are; the centroid of the uniform union is at 0.974176, not at 0.9937128, and its "
        "inertia has antisymmetric noise",
    ),
    *(
        Entry(
            where="Fig. 4, Section 7.1",
            what=f"Case {case}, {name}: path from above",
            experiment=f"case_{case}",
            read=curved if case == "II" else straight,
            paper="curved" if case == "II" else "straight",
            agreement=Holds(reason="1e-10 m, or 0.1 m"),
            remark="The text names Cases I, II, IV for the horizontal plane and III for the tilted one: II and III are "
            "exchanged."
            if case in ("II", "III")
            else "",
        )
        for case, name in CASES.items()
    ),
    *(
        Entry(
            where="Fig. 5",
            what=f"Case {case}: energy goes from rotation to translation in impacts only",
            experiment=f"case_{case}",
            read=exchanged,
            paper="shown",
            agreement=Holds(reason="1 J, 1e-9 J"),
        )
        for case in CASES
    ),
    *(
        Entry(
            where="Fig. 6",
            what=f"Case {case}: largest error of the energy over 10 s",
            experiment=f"case_{case}",
            read=("energy_error",),
            unit="J",
            remark="A curve in the paper, without a number in the text.",
        )
        for case in ("I", "II")
    ),
    *(
        Entry(
            where="Fig. 6",
            what=f"Case {case}: largest error of the energy over 1e5 steps",
            experiment="ensemble",
            read=("kept", case, "energy_error"),
            unit="J",
            remark=f"The paper sees a drift and explains it by modified Hamiltonians. {CLOSED}",
            quick=False,
        )
        for case in ("III", "IV")
    ),
    _counted("III", 806.0, 25.0, "Within three deviations; one chaotic motion against a mean."),
    _counted("IV", 652.0, 11.0, "Within three deviations; one chaotic motion against a mean."),
    Entry(
        where="Section 8",
        what="momentum along the plane is kept",
        experiment="ensemble",
        read=momentum,
        paper="stated",
        agreement=Holds(reason="rounding"),
    ),
    Entry(
        where="Section 8",
        what="largest error of the energy by Algorithm 5.1, Case I",
        experiment="ensemble",
        read=wandering,
        unit="J",
        remark="The paper calls both algorithms symplectic. 5.1 is, and its energy wanders; 5.2, the default, keeps "
        "the energy to rounding and is not symplectic through an impact.",
    ),
    Entry(
        where="Fig. 7",
        what="motions 1e-8 apart separate visibly after collision number",
        experiment="ensemble",
        read=diverged,
        paper=8,
        agreement=Within(tolerance=1.0, reason="visible means 1e-2 m"),
    ),
    Entry(
        where="Fig. 8",
        what="initial distance, position perturbed",
        experiment="ensemble",
        read=("initial_distance", "position perturbed"),
        paper=1e-8,
        agreement=Within(tolerance=1e-6, relative=True, reason="rounding of a height of 10 m"),
    ),
    Entry(
        where="Fig. 8",
        what="initial distance, attitude perturbed",
        experiment="ensemble",
        read=("initial_distance", "attitude perturbed"),
        paper=1.75e-8,
        agreement=Within(tolerance=0.01, relative=True, reason="printed with three digits"),
        why="With the printed angle of 1e-8 pi the norm is 2 sin(theta / 2) = 3.14e-8; 1.75e-8 belongs to 1e-6 "
        "degrees.",
    ),
    Entry(
        where="Fig. 8",
        what="the distance grows with each collision and saturates",
        experiment="ensemble",
        read=saturated,
        paper="shown",
        agreement=Holds(reason="between 0.1 and 100 m"),
    ),
    Entry(
        where="Section 7",
        what="largest |R'R - I| over the whole motion, Case IV",
        experiment="ensemble",
        read=("kept", "IV", "orthogonality"),
        remark="The paper gives no number.",
    ),
)

PAPER = Paper(
    name="lie_group",
    title="Lie group variational collision integrators for a class of hybrid systems",
    subject="bodies that tumble and bounce on a plane, energy and momentum over long times",
    experiments=EXPERIMENTS,
    entries=ENTRIES,
)
