"""Direct shooting: options of its smoothed form, and `DirectShooting`, which creates the options of each form."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from nosnoc_py.discretization.options import Scheme
from nosnoc_py.errors import OptionError, unknown_name
from nosnoc_py.methods.shooting.phases import PhaseShooting
from nosnoc_py.methods.shooting.single import SingleShooting
from nosnoc_py.options import CompleteMethod, engine


class SmoothedShooting(CompleteMethod):
    """Multiple shooting on smoothed contact, friction and step functions: a sequence of NLPs with smoothing sigma -> 0.

    Parameters
    ----------
    control_stages : int
        Number N of equal intervals with constant control.
    steps : int
        Number of equal integration steps per control stage. For bouncing contacts several steps have to fall into the
        duration of an impact, which is proportional to sqrt(sigma).
    rk_stages : int
        Runge-Kutta stages per step.
    scheme : {"radau_iia", "gauss_legendre", "radau_i", "lobatto_iiic", "explicit"}
        Runge-Kutta method of the steps. Smoothed laws are stiff; with a stiffly accurate method an inelastic impact may
        be shorter than a step.
    sigma_0, kappa, sigma_min : float
        Smoothing parameters sigma_0 kappa^i, ending with sigma_min.
    complementarity_tolerance, infeasibility_tolerance : float
        Largest residuals of a solution, measured on the problem without smoothing.
    max_iterations : int
        Iteration limit of IPOPT per NLP.
    time_limit : float, optional
        Total time [s].
    ipopt : dict
        Further options of IPOPT by their names.
    """

    control_stages: int = Field(default=20, ge=1)
    steps: int = Field(default=4, ge=1)
    rk_stages: int = Field(default=2, ge=1, le=12)
    scheme: Scheme = "radau_iia"
    sigma_0: float = Field(default=1.0, gt=0)
    kappa: float = Field(default=0.3, gt=0, lt=1)
    sigma_min: float = Field(default=1e-4, gt=0)
    complementarity_tolerance: float = Field(default=1e-8, gt=0)
    infeasibility_tolerance: float = Field(default=1e-8, gt=0)
    max_iterations: int = Field(default=1000, ge=1)
    ipopt: dict[str, str | int | float] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _ordered(self) -> SmoothedShooting:
        if self.sigma_min > self.sigma_0:
            raise ValueError(
                f"expected sigma_min <= sigma_0, given sigma_min {self.sigma_min:g} and sigma_0 {self.sigma_0:g}"
            )
        return self

    solved = engine("nosnoc_py.methods.shooting.smoothed:solve")


# Option classes of the forms.
KINDS: dict[str, type[SmoothedShooting] | type[SingleShooting] | type[PhaseShooting]] = {
    "smoothed": SmoothedShooting,
    "single": SingleShooting,
    "phases": PhaseShooting,
}


def DirectShooting(
    form: Literal["smoothed", "single", "phases"] = "smoothed", **options: Any
) -> SmoothedShooting | SingleShooting | PhaseShooting:
    """Create the options of direct shooting, the baseline methods for nonsmooth optimal control.

    This function returns a `SmoothedShooting`, `SingleShooting` or `PhaseShooting`, whose docstrings list the options.

    Parameters
    ----------
    form : {"smoothed", "single", "phases"}
        "smoothed": multiple shooting on smoothed contact, friction and step functions, for a `CLS`, `PSS` or
        `Heaviside` system. "single": the controls are the only unknowns, on top of an event-detecting simulation (HMP,
        Section 6.2). "phases": multiple shooting with a given sequence of events and free event times. The last two
        need systems whose jumps are explicit functions of the state (frictionless contacts with restitution,
        `HybridSystem`).
    **options
        Options of the form.

    Returns
    -------
    SmoothedShooting, SingleShooting or PhaseShooting

    Raises
    ------
    OptionError
        For an unknown form, or an option that the form does not have.

    Examples
    --------
    A unit mass bounces elastically off a wall and shall end at q = 1; the exact optimal cost is 3 / 52. With 20 control
    intervals per phase the error is of second order:

    >>> import casadi as ca, nosnoc_py as ns
    >>> q, v, u = (ca.SX.sym(name) for name in "qvu")
    >>> mass = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=[ns.Contact("wall", gap=q, restitution=1)])
    >>> ocp = ns.OCP(mass, horizon=1.0, x0=[0.5, -1], stage_cost=0.1 * u**2, terminal_cost=(q - 1) ** 2)
    >>> solution = ns.solve(ocp, ns.DirectShooting(form="phases", sequence=("wall",)), certify=False)
    >>> solution.success, bool(abs(solution.objective - 3 / 52) < 1e-4)
    (True, True)
    """
    if not isinstance(form, str) or form not in KINDS:
        raise OptionError(f"DirectShooting: {unknown_name(form, KINDS, 'form')}")
    return KINDS[form](**options)
