"""The salted Kalman filter as published, written down once more: DOP853, one belief, one mode.

Prediction: x' = f, P' = F P + P F' to a guard; there x+ = r(x-) and P+ = X P X' with the saltation matrix X (Kong,
Payne, Council, Johnson, Automatica 131 (2021)). Uncertain guards add X_theta X_theta' var(theta), X_theta = dx+/dtheta
at a fixed time (Payne, Kong, Johnson, arXiv 2202.12729). Correction: Kalman's; if the corrected mean is beyond a guard,
its reset and saltation matrix are applied at once. The error of the control is constant in a period, as by `ns.Filter`.
"""

from __future__ import annotations

from typing import Any

import casadi as ca
import numpy as np
from scipy.integrate import solve_ivp


class SaltedFilter:
    """Filter of an `ns.HybridSystem`; `guard_std` are standard deviations of the parameters, zero for none."""

    def __init__(
        self, system: Any, rows: list[int], sigma: list[float], x0: Any, x0_std: Any, control_std: Any, guard_std: Any
    ) -> None:
        x, u, p = system.x, system.u, system.p
        self.n, self.m = x.numel(), u.numel()
        self.H, self.R = np.eye(self.n)[rows], np.diag(np.square(sigma))
        self.x, self.P = np.array(x0, dtype=float), np.diag(np.square(np.broadcast_to(x0_std, self.n)))
        self.W = np.diag(np.square(np.broadcast_to(control_std, self.m)))
        self.V = np.diag(np.square(np.broadcast_to(guard_std, p.numel())))
        self.p = np.array(system.parameters(None))
        A, B = ca.jacobian(system.flow, x), ca.jacobian(system.flow, u)
        self.flow = ca.Function("f", [x, u, p], [ca.densify(part) for part in (system.flow, A, B)])
        self.guards = [ca.Function("g", [x, p], [jump.guard]) for jump in system.jumps]
        self.jumps = [
            ca.Function("j", [x, p], [
                ca.densify(part) for part in (jump.reset, ca.jacobian(jump.reset, x), ca.jacobian(jump.reset, p),
                                              ca.jacobian(jump.guard, x), ca.jacobian(jump.guard, p))
            ]) for jump in system.jumps
        ]  # fmt: skip

    def step(self, y: Any, duration: float) -> np.ndarray:
        """Move over a period, and correct by the measured values."""
        u, t = np.zeros(self.m), 0.0
        Phi, Gamma, Theta = np.eye(self.n), np.zeros((self.n, self.m)), np.zeros((self.n, self.p.size))
        while t < duration:
            start = np.concatenate([self.x, Phi.ravel(), Gamma.ravel(), Theta.ravel()])
            events = [self._event(guard) for guard in self.guards]
            run = solve_ivp(
                lambda t, z: self._rate(z, u), (t, duration), start, "DOP853", events=events, rtol=1e-8, atol=1e-10
            )
            self.x, Phi, Gamma, Theta = self._parts(run.y[:, -1])
            t = float(run.t[-1])
            hit = [k for k, times in enumerate(run.t_events) if times.size]
            if run.status != 1 or not hit:
                break
            X, X_theta, self.x = self._saltation(hit[0], u)
            Phi, Gamma, Theta = X @ Phi, X @ Gamma, X @ Theta + X_theta
        self.P = Phi @ self.P @ Phi.T + Gamma @ self.W @ Gamma.T + Theta @ self.V @ Theta.T
        S = self.H @ self.P @ self.H.T + self.R
        K = np.linalg.solve(S, self.H @ self.P).T
        self.x, self.P = self.x + K @ (np.asarray(y) - self.H @ self.x), self.P - K @ self.H @ self.P
        for k, guard in enumerate(self.guards):
            if float(guard(self.x, self.p)) < 0.0:
                X, X_theta, self.x = self._saltation(k, u)
                self.P = X @ self.P @ X.T + X_theta @ self.V @ X_theta.T
                break
        return self.x.copy()

    def _event(self, guard: Any) -> Any:
        def event(t: float, z: np.ndarray) -> float:
            return float(guard(z[: self.n], self.p))

        event.terminal, event.direction = True, -1.0  # type: ignore[attr-defined]
        return event

    def _parts(self, z: np.ndarray) -> tuple[np.ndarray, ...]:
        n, m, k = self.n, self.m, self.p.size
        x, Phi, Gamma, Theta = np.split(z, np.cumsum([n, n * n, n * m]))
        return x, Phi.reshape(n, n), Gamma.reshape(n, m), Theta.reshape(n, k)

    def _rate(self, z: np.ndarray, u: np.ndarray) -> np.ndarray:
        x, Phi, Gamma, Theta = self._parts(z)
        f, A, B = (np.array(part) for part in self.flow(x, u, self.p))
        return np.concatenate([f[:, 0], (A @ Phi).ravel(), (A @ Gamma + B).ravel(), (A @ Theta).ravel()])

    def _saltation(self, k: int, u: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return dx+/dx-, dx+/dtheta and x+."""
        after, by_x, by_p, slope, slope_p = (np.array(part) for part in self.jumps[k](self.x, self.p))
        before, behind = (np.array(self.flow(x, u, self.p)[0])[:, 0] for x in (self.x, after[:, 0]))
        away = (by_x @ before - behind) / float(slope[0] @ before)
        return by_x - np.outer(away, slope[0]), by_p - np.outer(away, slope_p[0]), after[:, 0]
