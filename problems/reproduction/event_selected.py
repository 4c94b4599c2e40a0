"""Event-selected systems: integration through many guards with one projection each."""

from __future__ import annotations

from problems.reproduction.records import Entry, Experiment, Paper, Read, Results, out_of_scope
from problems.reproduction.verdicts import AtLeast, AtMost, Holds, Within

EULER, BETTER, MUJOCO = "Euler's projection", "RK-Newton", "MuJoCo"
CONTACTS, NUMPY, LOOP = "MuJoCo, contacts", "Euler, NumPy", "RK-Newton, loop"
STIFF = "Neither mass nor stiffness of the hopper are printed: 1 kg and 400 N/m are chosen"
MACHINE = "Another machine and another version of MuJoCo."
BENCH = ("mujoco",)

EXPERIMENTS = (
    Experiment(name="order", module="benchmarks.event_selected_order"),
    Experiment(name="hopper", module="benchmarks.event_selected_hopper"),
    Experiment(name="marginal", module="benchmarks.event_selected_mujoco", needs=BENCH, timeout=3600.0),
    Experiment(name="plate", module="benchmarks.plate_on_springs", timeout=3600.0),
)


def calibrated(results: Results) -> tuple[bool, str]:
    """At eps' both programs have the same RMS error."""
    if results["eps"] is None:
        return False, "no such eps'"
    mine, other = results["rms"][EULER], results["rms"][MUJOCO]
    return abs(mine / other - 1.0) < 1e-3, f"both {other:.3e}"


def slower(results: Results) -> float:
    """Time of the paper's method in NumPy over that of MuJoCo."""
    return results["seconds"][f"{EULER}, NumPy"] / results["seconds"][MUJOCO]


def marginal(program: str) -> Read:
    """Marginal cost of a contact over that of MuJoCo's."""

    def read(results: Results) -> float:
        rows = results["rows"]
        return float(rows[program]["marginal_microseconds"] / rows[CONTACTS]["marginal_microseconds"])

    return read


ENTRIES = (
    out_of_scope("Fig. 1", "a robot with three legs", "hardware"),
    out_of_scope("Fig. 2", "the algorithm on two guards", "a drawing, nothing is computed"),
    Entry(
        where="Table 1",
        what="error of the times of the three crossings",
        experiment="order",
        read=("event_time_error",),
        unit="s",
        remark="Against closed forms, with two Newton corrections at eps = 0.01.",
    ),
    Entry(
        where="Fig. 3",
        what="order of the RMS error in eps, the paper's projection",
        experiment="order",
        read=("orders", "euler"),
        paper=2.1,
        agreement=AtLeast(slack=0.2, reason="the order is 2; 2.1 is the slope before the asymptotic range"),
        remark="With a stop exactly at the edge of the band; y0 of Listing 1 is undefined, its loop need not end.",
    ),
    Entry(
        where="Fig. 3",
        what="the same with one Newton correction",
        experiment="order",
        read=("orders", "one correction"),
        paper=2.1,
        agreement=AtLeast(slack=0.2, margin=0.5, reason="a higher order is better"),
    ),
    Entry(
        where="Fig. 3",
        what="RMS error at eps = 0.01, the paper's projection",
        experiment="order",
        read=("rms_at", "euler"),
    ),
    Entry(
        where="Fig. 3",
        what="RMS error at eps = 0.01, two Newton corrections",
        experiment="order",
        read=("rms_at", "two corrections"),
    ),
    Entry(
        where="Fig. 4",
        what="RMS error of the paper's projection at eps' and of MuJoCo are the same",
        experiment="hopper",
        needs=BENCH,
        read=calibrated,
        paper="identical",
        agreement=Holds(reason="1e-3 of it, by bisection"),
        remark=f"{STIFF}. In the text the guards have the wrong sign, and z' is z''.",
    ),
    Entry(
        where="Fig. 4",
        what="RMS error of the better projection, default bands",
        experiment="hopper",
        read=("rms", BETTER),
        unit="m, m/s",
        remark="Needs no MuJoCo.",
    ),
    Entry(
        where="Table 2",
        what="eps'",
        experiment="hopper",
        needs=BENCH,
        read=("eps",),
        paper=0.13,
        unit="m",
        agreement=Within(tolerance=0.2, relative=True, reason="printed with two digits"),
        why=f"{STIFF}; the width depends on the stiffness and on the version of MuJoCo, whose error it meets.",
    ),
    Entry(
        where="Table 2",
        what="time of MuJoCo",
        experiment="hopper",
        needs=BENCH,
        read=("seconds", MUJOCO),
        paper=0.002436,
        unit="s",
        agreement=Within(tolerance=2.0, relative=True, reason="shape only: times of other machines"),
        remark=MACHINE,
        why=MACHINE,
    ),
    Entry(
        where="Table 2",
        what="time of the paper's method in Python",
        experiment="hopper",
        needs=BENCH,
        read=("seconds", f"{EULER}, NumPy"),
        paper=0.010251,
        unit="s",
        agreement=AtMost(slack=0.0103, margin=0.001, reason="shape only: within twice the time"),
        remark=MACHINE,
        why="The general library, with dense output and events as objects, in plain NumPy.",
    ),
    Entry(
        where="Table 2",
        what="the same, compiled",
        experiment="hopper",
        needs=(*BENCH, "numba"),
        read=("seconds", f"{EULER}, compiled"),
        paper=0.010251,
        unit="s",
        agreement=AtMost(slack=0.0103, margin=0.001, reason="shape only: within twice the time"),
        remark=MACHINE,
        why=MACHINE,
    ),
    Entry(
        where="Table 2",
        what="time in Python over time of MuJoCo",
        experiment="hopper",
        needs=BENCH,
        read=slower,
        paper=4.208,
        agreement=AtMost(slack=4.2, margin=0.5, reason="shape only: within twice the ratio"),
        why="The general library, with dense output and events as objects, in plain NumPy.",
    ),
    Entry(
        where="Fig. 5",
        what="marginal cost of a contact in Python over MuJoCo's",
        experiment="marginal",
        read=marginal(NUMPY),
        paper=1.0,
        agreement=AtMost(slack=1.0, margin=0.2, reason="stated: roughly the same; within twice"),
        remark="Stiffness, mass, damping and time span of the plate are not printed; those of "
        "`models.plate_on_springs` are taken.",
        why="Depends on how long contacts last: MuJoCo pays for closed ones, this method for crossings.",
        quick=False,
    ),
    Entry(
        where="Fig. 5",
        what="the same, compiled loop with the better projection",
        experiment="marginal",
        read=marginal(LOOP),
        paper=1.0,
        agreement=AtMost(slack=1.0, margin=0.2, reason="less is better"),
    ),
    Entry(
        where="Section 5.2",
        what="largest error of the state of the plate, 2 to 100 springs",
        experiment="plate",
        read=("largest_error",),
        unit="m, m/s, rad, rad/s",
        remark="Against DOP853 with events, better projection. The paper does not look at this.",
    ),
    out_of_scope("Section 5.2", "irregular times beyond about 150 contacts", "an artefact, as the paper says"),
    out_of_scope("Section 6", "first-order correctness", "a proof"),
    out_of_scope("Listing 1", "the implementation of the paper", "other people's code is not run"),
)

PAPER = Paper(
    name="event_selected",
    title="Rapid integrator for a class of multi-contact systems",
    subject="many guards without enumerating their orders; costs beside MuJoCo",
    experiments=EXPERIMENTS,
    entries=ENTRIES,
)
