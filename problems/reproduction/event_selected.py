"""Event-selected systems: integration through many guards with one projection each."""

from __future__ import annotations

from problems.reproduction.records import Read, Results

EULER, MUJOCO = "Euler's projection", "MuJoCo"

CONTACTS = "MuJoCo, contacts"


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
