"""Misspelt arguments are answered with the right names, and signatures read well in help()."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import casadi as ca
import pytest

import nosnoc_py as ns
from nosnoc_py.arguments import Signature, named_arguments
from nosnoc_py.options import Options
from nosnoc_py.synonyms import SYNONYMS

pytestmark = pytest.mark.quick

q, v = ca.SX.sym("q"), ca.SX.sym("v")

# Results, which users read and do not make, and what takes names for another function.
MADE_BY_THE_LIBRARY = {
    *("Answer", "Candidate", "Certificate", "ClosedLoop", "Estimate", "Event", "Lagrangian", "MPCCResult", "Point"),
    *("FilterStep", "Gradient", "RobustSolution", "Scenario", "SmoothedMotion", "Success"),
    *("Solution", "SolutionSensitivity", "Stop", "TrackingLaw", "Trajectory", "Transcription"),
    *("DirectShooting", "animate", "contacts", "freeze", "scene"),
}


def ball() -> ns.CLS:
    return ns.CLS(q=q, v=v, mass_matrix=1, force=-9.81, contacts=[ns.Contact("ground", gap=q)])


MISSPELT: dict[str, tuple[Callable[[], Any], str]] = {
    "similar": (lambda: ns.Contact("ground", gap=q, fricton=0.3), "argument 'fricton' of Contact. Did you mean 'fric"),
    "textbook": (lambda: ns.Contact("ground", gap=q, mu=0.3), "'mu' of Contact. Did you mean 'friction'"),
    "duration": (lambda: ns.simulate(ball(), x0=[1, 0], T=1), "'T' of simulate. Did you mean 'duration'"),
    "horizon": (lambda: ns.OCP(ball(), T=1), "'T' of OCP. Did you mean 'horizon'"),
    "bounds": (lambda: ns.OCP(ball(), horizon=1, lbx=0), "'lbx' of OCP. Did you mean 'bounds'"),
    "solver": (lambda: ns.solve(ns.OCP(ball(), horizon=1), tol=1e-6), "'tol' of solve. Did you mean 'method' or 'sol"),
    "stages": (lambda: ns.FESDJ(N=10), "option 'N'. Did you mean 'control_stages'"),
    "Runge-Kutta": (lambda: ns.FESD(n_s=2), "option 'n_s'. Did you mean 'rk_stages'"),
    "method": (lambda: ns.Simulator(ball(), dt=0.1), "'dt' of Simulator. Did you mean 'step'"),
    "classmethod": (lambda: ns.Robot.from_urdf("arm.urdf", friction_coeff=1), "argument 'friction_coeff' of "),
    "shape": (lambda: ns.Sphere(r=1.0), "'r' of Sphere. Did you mean 'radius'"),
}


@pytest.mark.parametrize("case", MISSPELT)
def test_misspelt_names_are_answered_with_the_right_ones(case: str) -> None:
    call, message = MISSPELT[case]
    with pytest.raises(ns.ArgumentError, match=re.escape(message)) as caught:
        call()
    assert isinstance(caught.value, TypeError | ns.OptionError)


def test_other_mistakes_are_those_of_python() -> None:
    with pytest.raises(TypeError, match="gap") as caught:
        ns.Contact("ground")  # type: ignore[call-arg]
    assert not isinstance(caught.value, ns.ArgumentError)


def public() -> Iterator[tuple[str, Any]]:
    for name in ns.__all__:
        value = getattr(ns, name)
        if callable(value) and not (inspect.isclass(value) and issubclass(value, Exception | ns.Status.__class__)):
            yield name, value


@pytest.mark.parametrize(("name", "value"), [each for each in public() if each[0] not in MADE_BY_THE_LIBRARY])
def test_public_signatures_are_readable(name: str, value: Any) -> None:
    if inspect.isclass(value) and value.__module__.endswith("status"):
        return
    signature = inspect.signature(value)
    assert isinstance(signature, Signature), f"decorate {name} by nosnoc_py.arguments.named_arguments"
    text = str(signature)
    assert "Annotated" not in text
    assert "<factory>" not in text
    assert max(map(len, text.splitlines()), default=0) < 170


def test_options_show_names_types_and_defaults() -> None:
    text = str(inspect.signature(ns.FESDJ))
    assert "    control_stages: int = 20,\n" in text
    assert "    scheme: 'radau_iia' | 'gauss_legendre' = 'radau_iia',\n" in text


def test_every_synonym_proposes_a_name_that_something_public_has() -> None:
    names = set()
    for _, value in public():
        names |= set(value.model_fields) if isinstance(value, type) and issubclass(value, Options) else set()
        try:
            names |= set(inspect.signature(value).parameters)
        except ValueError:
            continue
    nowhere = {old: new for old, new in SYNONYMS.items() if not set(new) <= names}
    assert nowhere == {}


def test_the_decorated_function_stays_itself() -> None:
    @named_arguments
    def throw(ball: str, *, speed: float = 1.0) -> float:
        """Throw."""
        return speed

    assert (throw("red", speed=2.0), throw.__doc__, throw.__name__) == (2.0, "Throw.", "throw")
    assert str(inspect.signature(throw)) == "(ball: str, *, speed: float = 1.0) -> float"
