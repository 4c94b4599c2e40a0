"""Direct shooting: the table of its forms, and the options of the one on smoothed systems."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from nosnoc_py.discretization.options import Scheme
from nosnoc_py.errors import OptionError, check_type, unknown_name
from nosnoc_py.methods.shooting.phases import PhaseShooting
from nosnoc_py.methods.shooting.single import SingleShooting
from nosnoc_py.mpcc.strategy import Callback
from nosnoc_py.ocp import OCP
from nosnoc_py.options import CompleteMethod
from nosnoc_py.solution import Solution


class SmoothedShooting(CompleteMethod):
    """Multiple shooting on smoothed contact, friction and step functions: NLPs whose smoothing sigma goes to zero.

    Parameters
    ----------
    control_stages : int
        N, intervals of equal length with constant control each.
    steps : int
        Integration steps of equal length per control stage. Where contacts bounce, several have to fall into the
        duration of an impact, which is proportional to sqrt(sigma).
    rk_stages : int
    scheme : {"radau_iia", "gauss_legendre", "radau_i", "lobatto_iiic", "explicit"}
        Runge-Kutta method of the steps. Smoothed laws are stiff: with a stiffly accurate one an inelastic impact may be
        shorter than a step.
    sigma_0, kappa, sigma_min : float
        Smoothing sigma_0 kappa^i, down to sigma_min at the latest.
    complementarity_tolerance, infeasibility_tolerance : float
        Success is declared on these residuals of the problem without smoothing.
    max_iterations : int
        Of IPOPT, per NLP.
    time_limit : float, optional
        Seconds for everything.
    ipopt : dict
        Further options of IPOPT by their own names.
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
            raise ValueError(f"sigma_min {self.sigma_min:g} is above sigma_0 {self.sigma_0:g}")
        return self

    def solved(self, ocp: OCP, guess: Any, callback: Callback | None, started: float, deadline: float) -> Solution:
        """Smoothed problems from sigma_0 to sigma_min, each from the solution of the one before."""
        from nosnoc_py.methods.shooting.smoothed import solve  # which knows these options

        check_type(ocp, OCP, "ocp")
        return solve(self, ocp, guess, callback, started, deadline)


# Options of every form, which solve by themselves.
KINDS: dict[str, type[SmoothedShooting] | type[SingleShooting] | type[PhaseShooting]] = {
    "smoothed": SmoothedShooting,
    "single": SingleShooting,
    "phases": PhaseShooting,
}


def DirectShooting(
    form: Literal["smoothed", "single", "phases"] = "smoothed", **options: Any
) -> SmoothedShooting | SingleShooting | PhaseShooting:
    """Make the options of direct shooting: the baselines that methods for nonsmooth problems are compared with.

    This is a function: what it returns is a `SmoothedShooting`, `SingleShooting` or `PhaseShooting`, which can be made
    directly as well; their texts say which options there are.

    Parameters
    ----------
    form : {"smoothed", "single", "phases"}
        "smoothed": multiple shooting on smoothed contact, friction and step functions, for any `CLS`, `PSS` or
        `Heaviside` system. "single": the controls are the only unknowns of an event-driven simulation; "phases":
        multiple shooting with a given sequence of events and free event times. These two are for systems whose jumps
        are known functions of the state.
    **options
        Those of the form.

    Raises
    ------
    OptionError
        For an unknown form, or an option that it does not have.
    """
    if not isinstance(form, str) or form not in KINDS:
        raise OptionError(f"DirectShooting: {unknown_name(form, KINDS, 'form')}")
    return KINDS[form](**options)
