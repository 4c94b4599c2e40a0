"""Event-selected systems: integration through many guards with one projection each."""

from __future__ import annotations

from problems.reproduction.records import Read, Results

PRINTED_WIDTH = 0.13  # eps' in Table 2 [m]

EULER, MUJOCO = "Euler's projection", "MuJoCo"

CONTACTS = "MuJoCo, contacts"


def calibrated(results: Results) -> tuple[bool, str]:
    """Check that at eps' both programs have the same RMS error."""
    if results["eps"] is None:
        return False, "no such eps'"
    mine, other = results["rms"][EULER], results["rms"][MUJOCO]
    return abs(mine / other - 1.0) < 1e-3, f"both {other:.3e}"


def slower(program: str) -> Read:
    """Read the time of a program over that of MuJoCo."""
    return lambda results: results["seconds"][program] / results["seconds"][MUJOCO]


def width_of_no_spring(results: Results) -> tuple[bool, str]:
    """Check that no spring that keeps the mass above the ground has the printed eps'."""
    widths = [one for one in results["widths"] if one["eps"] is not None]
    above = [one for one in widths if one["lowest_height"] > 0.0]
    wide = min(widths, key=lambda one: abs(one["eps"] - PRINTED_WIDTH))
    best = max(above, key=lambda one: one["eps"])
    shown = best["eps"] < 0.5 * PRINTED_WIDTH and wide["lowest_height"] < 0.0
    return shown, (
        f"of springs that keep the mass above the ground that of {best['stiffness']:g} N/m has the widest band, "
        f"{best['eps']:.3f} m; {wide['eps']:.2f} m belongs to {wide['stiffness']:g} N/m, on which it sinks to "
        f"{wide['lowest_height']:.1f} m"
    )


def marginal(program: str) -> Read:
    """Read the marginal cost of a contact over that of MuJoCo."""

    def read(results: Results) -> float:
        rows = results["rows"]
        return float(rows[program]["marginal_microseconds"] / rows[CONTACTS]["marginal_microseconds"])

    return read
