"""Searches, pieces and arguments of estimators on numbers that are written down."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.control import fitted, predicted
from nosnoc_py.control.estimation import APART_FRACTION, APART_STDS, Combination, _estimate
from nosnoc_py.control.fitted import Optimum
from nosnoc_py.control.measurements import Measurements
from nosnoc_py.control.mpc import _seconds
from nosnoc_py.control.predicted import Predictions, ShootingPieces, by_names, nodes_at
from nosnoc_py.errors import OptionError

pytestmark = pytest.mark.quick

X, RATE = ca.SX.sym("x"), ca.SX.sym("rate")


def drifting() -> ns.ODE:
    """x' = rate."""
    return ns.ODE(x=X, p=RATE, flow=RATE, names={"x": ["x"], "p": ["rate"]}, p_default=[3.0])


def ball() -> ns.CLS:
    q, v, e = (ca.SX.sym(name) for name in "qve")
    ground = ns.Contact("ground", gap=q, restitution=e)
    names = {"q": ["q"], "v": ["v"], "p": ["e"]}
    return ns.CLS(q=q, v=v, p=e, p_default=[0.5], mass_matrix=1, force=-10, contacts=[ground], names=names)


class TestPieces:
    def pieces(self) -> ShootingPieces:
        t = np.arange(1, 7) / 2
        data = Measurements(t, {"x": 10 * t}, sigma=0.5)
        made = Predictions.of(drifting(), (data,), {"rate": (0, 9), "x": (-9, 9)}, [0.0], None, None, None, None)
        return ShootingPieces.of(made, np.array([3.0, 1.0]), 3)

    def test_derivatives_of_residuals_and_gaps(self) -> None:
        pieces = self.pieces()
        z = pieces.first + np.array([0.5, 0.25, -1.0, 2.0])
        evaluated = pieces.residuals(z, 0.1)
        assert evaluated is not None
        r, jacobian = evaluated
        for k in range(4):
            step = np.zeros(4)
            step[k] = 1e-4
            there, before = (pieces.residuals(z + sign * step, 0.1) for sign in (1, -1))
            assert there is not None
            assert before is not None
            assert jacobian[:, k] == pytest.approx((there[0] - before[0]) / 2e-4, abs=1e-6)
        # Gaps over a tenth of the nominal state: ten times smaller shares weigh ten times more.
        loose = pieces.residuals(z, 1.0)
        assert loose is not None
        ratio = np.sort(
            np.unique(np.round(np.abs(r[np.abs(r - loose[0]) > 1e-9] / loose[0][np.abs(r - loose[0]) > 1e-9]), 6))
        )
        assert ratio.tolist() == [10.0]
        assert (np.abs(r - loose[0]) > 1e-9).sum() == 2

    def test_a_start_of_a_piece_is_measured_or_differenced(self) -> None:
        """Heights are measured: the velocity is their difference, and a missing one leaves that of the simulation."""
        t = np.array([0.1, 0.2, 0.3, 0.4])
        data = Measurements(t, {"q": [1.0, 1.2, 1.5, np.nan]}, sigma=1.0)
        motion: Any = SimpleNamespace(t=np.array([0.0, *t]), t0=0.0, x=np.array([[9.0, k] for k in range(5)], float))
        state = predicted._measured_state(ball(), data, np.array([1, 2]), motion)
        assert state == pytest.approx([1.2, 3.0])
        assert predicted._measured_state(ball(), data, np.array([2, 3]), motion) == pytest.approx([1.5, 0.0])
        both = Measurements(t, {"q": [1.0, 1.2, 1.5, 1.0], "v": [5.0, 6.0, np.nan, 8.0]}, sigma=1.0)
        assert predicted._measured_state(ball(), both, np.array([1, 2]), motion) == pytest.approx([1.2, 6.0])
        assert predicted._measured_state(ball(), both, np.array([2, 3]), motion) == pytest.approx([1.5, 3.0])

    def test_nodes_are_those_after_an_impact(self) -> None:
        grid = np.array([0.0, 1.0, 1.0, 2.0])
        assert nodes_at(grid, np.array([0.0, 1.0, 1.0 - 1e-13, 2.0, 2.5])).tolist() == [0, 2, 2, 3, 3]

    def test_a_control_goes_on_in_a_later_piece(self) -> None:
        later = predicted._Later(lambda t, x: np.array([10 * t]), 0.5)  # type: ignore[arg-type]
        assert later(0.25, np.zeros(0)) == pytest.approx([7.5])


class TestSearches:
    """Searches whose optima are written down: start -> cost."""

    def searched(
        self, monkeypatch: pytest.MonkeyPatch, costs: list[float], fits: float, segments: int = 1, times: int = 4
    ) -> tuple[list[float], list[Any]]:
        asked: list[Any] = []

        def optimum(known: Any, begin: Any, start: Any, tolerance: float, evaluations: int) -> Any:
            asked.append((float(begin[0]), float(start[0]), tolerance))
            cost = costs[int(start[0])]
            return None if np.isnan(cost) else SimpleNamespace(cost=cost, values=start, start=start)

        monkeypatch.setattr(fitted, "_optimum_from", optimum)
        monkeypatch.setattr(fitted, "_start_from_pieces", lambda known, start, pieces: start + 100.0 * pieces)
        known: Any = SimpleNamespace(runs=(SimpleNamespace(times=np.arange(times)),), stages=None)
        starts = [np.array([float(k)]) for k in range(len(costs))]
        return [each.cost for each in fitted.search(known, starts, segments, fits)], asked

    def test_two_fits_end_it_and_the_best_is_polished(self, monkeypatch: pytest.MonkeyPatch) -> None:
        costs, asked = self.searched(monkeypatch, [9.0, 1.0, 8.0, 0.5, 0.1], fits=1.0)
        assert costs == [0.5, 1.0, 8.0, 9.0]
        assert [start for _, start, _ in asked] == [0, 1, 2, 3, 3]
        assert [tolerance for *_, tolerance in asked] == [1e-4] * 4 + [1e-10]
        costs, asked = self.searched(monkeypatch, [9.0, 1.1, 8.0], fits=1.0)
        assert [start for _, start, _ in asked] == [0, 1, 2, 1]
        assert self.searched(monkeypatch, [np.nan, np.nan], fits=1.0)[0] == []

    def test_pieces_are_tried_for_long_motions_that_no_start_explains(self, monkeypatch: pytest.MonkeyPatch) -> None:
        _, asked = self.searched(monkeypatch, [9.0, 8.0, 7.0, 6.0], fits=1.0, times=20)
        assert [begin for begin, *_ in asked] == [0, 1, 2, 3, 500, 501, 502, 3]
        assert len(self.searched(monkeypatch, [9.0, 8.0], fits=1.0, times=19)[1]) == 3
        assert len(self.searched(monkeypatch, [9.0, 1.0], fits=1.0, times=20)[1]) == 3
        assert len(self.searched(monkeypatch, [9.0, 8.0], fits=0.0, times=20)[1]) == 3
        _, asked = self.searched(monkeypatch, [9.0, 8.0], fits=1.0, segments=3, times=20)
        assert [begin for begin, *_ in asked] == [300, 301, 1]

    def test_a_point_is_evaluated_once(self) -> None:
        calls: list[float] = []

        def function(z: Any) -> Any:
            calls.append(float(z[0]))
            return z

        remembering = fitted._with_memory(function)
        for value in (1.0, 1.0, 2.0, 2.0, 1.0):
            assert remembering(np.array([value])).tolist() == [value]
        assert calls == [1.0, 2.0, 1.0]
        assert fitted._residuals_only(lambda z: (z + 1, z), np.zeros(1)) == pytest.approx([1.0])
        assert fitted._residuals_only(lambda z: None, np.zeros(1)) is None


class TestEstimates:
    @pytest.mark.parametrize(("share", "other"), [(0.9, False), (1.1, True)])
    def test_optima_are_apart_beyond_their_deviations_and_a_part_of_the_range(self, share: float, other: bool) -> None:
        def optimum(value: float) -> Optimum:
            numbers = {"residuals": np.full(4, 0.5), "jacobian": np.full((4, 1), 5.0)}
            return Optimum(values=np.array([value]), start=np.zeros(1), cost=1.0, converged=True, **numbers)

        known: Any = SimpleNamespace(
            names=("a",), bounds=(np.array([0.0]), np.array([1000.0])), runs=(SimpleNamespace(sigma=1.0),),
            split=lambda values: ((values,), values), motion=lambda values: None,
        )  # fmt: skip
        # The deviation is 1 / sqrt(4 * 25) = 0.1.
        apart = share * (APART_STDS * 0.1 + APART_FRACTION * 1000.0)
        assert _estimate(known, [optimum(300.0), optimum(300.0 + apart)]).multimodal == other

    def test_values_that_the_data_do_not_tell_are_in_unseen_combinations(self) -> None:
        unseen = Combination(weights={"a": 0.7, "b": -0.7, "c": 0.04}, std=np.inf, seen=False)
        assert str(unseen) in ("+0.70 a -0.70 b", "-0.70 b +0.70 a")


class TestArguments:
    def test_names(self) -> None:
        assert by_names({"b": 2.0}, ("a", "b"), "x").tolist() == [0.0, 2.0]
        assert by_names(3.0, ("a", "b"), "x").tolist() == [3.0, 3.0]
        assert by_names([1.0, 2.0], ("a", "b"), "x").tolist() == [1.0, 2.0]
        for wrong in ({"c": 1.0}, [1.0], np.nan):
            with pytest.raises(OptionError):
                by_names(wrong, ("a", "b"), "x")

    def test_parameters_and_states(self) -> None:
        system = drifting()
        assert predicted._parameters(system, {"rate": 7.0}, ()).tolist() == [7.0]
        assert predicted._parameters(system, None, ()).tolist() == [3.0]
        assert predicted._state(system, None, ("x",)).tolist() == [0.0]
        with pytest.raises(OptionError, match="x have no value"):
            predicted._state(system, None, ("rate",))
        bare = ns.ODE(x=X, p=RATE, flow=RATE, names={"x": ["x"], "p": ["rate"]})
        assert predicted._parameters(bare, None, ("rate",)).tolist() == [0.0]
        with pytest.raises(OptionError, match="rate have no value"):
            predicted._parameters(bare, None, ())

    @pytest.mark.parametrize("bound", [(0, np.inf), (np.nan, 1), (1, 1), (2, 1), 3.0])
    def test_ranges_are_finite_and_in_order(self, bound: Any) -> None:
        data = Measurements([1.0], {"x": [1.0]}, sigma=1.0)
        with pytest.raises(OptionError, match="fit: free: rate"):
            Predictions.of(drifting(), (data,), {"rate": bound}, [0.0], None, None, None, None)

    @pytest.mark.parametrize("wrong", [True, "1", np.inf, -1.0, None, 1j])
    def test_seconds(self, wrong: Any) -> None:
        assert _seconds(0.0, "delay") == 0.0
        assert _seconds(np.float64(0.5), "delay", positive=True) == 0.5
        with pytest.raises(OptionError, match="MPC: delay"):
            _seconds(wrong, "delay")
        with pytest.raises(OptionError, match="positive"):
            _seconds(0.0, "delay", positive=True)

    def test_units_of_measurements(self) -> None:
        data = Measurements(
            [0.0, 500.0],
            {"x": [1.0, 2.0], "a": [180.0, 90.0]},
            sigma={"x": 0.5, "a": 1.0},
            units={"x": "mm", "a": "deg", "t": 1e-3},
        )
        assert data.times == pytest.approx([0.0, 0.5])
        assert data.values["x"] == pytest.approx([1e-3, 2e-3])
        assert data.values["a"] == pytest.approx([np.pi, np.pi / 2])
        assert data.noise["x"] == pytest.approx([5e-4, 5e-4])
        assert data.noise["a"] == pytest.approx([np.pi / 180] * 2)
        later = data.part(np.array([1]), begin=0.2)
        assert later.times == pytest.approx([0.3])
        assert later.noise["x"] == pytest.approx([5e-4])
        assert later.values["x"] == pytest.approx([2e-3])
        gaps = Measurements([0.0, 1.0, 2.0], {"x": [1.0, np.nan, 3.0], "a": [np.nan, np.nan, 1.0]})
        assert gaps.count == 3
        assert gaps.noise["x"].tolist() == [1.0, 1.0, 1.0]
        for times in ([1.0, 0.0], [-0.1, 0.0], [], [np.nan, 1.0]):
            with pytest.raises(OptionError):
                Measurements(times, {"x": np.zeros(len(times))})
        for sigma in (0.0, -1.0, np.inf, {"y": 1.0}):
            with pytest.raises(OptionError, match="sigma"):
                Measurements([0.0], {"x": [1.0]}, sigma=sigma)

    def test_a_window_has_ten_samples_by_default(self) -> None:
        system = ns.ODE(x=X, flow=ca.SX(0), names={"x": ["x"]})
        mhe = ns.MHE(system, sigma={"x": 0.5}, period=0.25, x0=[0.0], x0_std=2.0)
        assert mhe.window == 10
        for _ in range(12):
            mhe.step({"x": 1.0})
        assert len(mhe._measured) == 10
