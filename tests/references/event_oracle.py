"""Motions from event to event, an oracle that shares no code with the library: it reads the symbols of a system, makes
CasADi functions of them itself, steps by SciPy's DOP853, samples guards on every step, and finds modes by enumeration.

Contacts in the plane (`Contacts`): modes of accelerations and impacts by `contact_oracle`, at most three contacts
closed at once. Filippov systems (`Filippov`): every partition one switching function; all combinations of sides and
of sliding.
Where the answer is not unique `NoOracle` is raised; where rounding decides it, two tolerances or neighbours tell.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations, product
from typing import Any, Protocol

import casadi as ca
import numpy as np
from scipy.integrate import DOP853
from scipy.linalg import null_space
from scipy.optimize import brentq
from scipy.sparse.csgraph import connected_components

import nosnoc_py as ns
from tests.references.contact_oracle import Problem, Solutions, energy_gain, impact, solutions

MOST_EVENTS = 250
MOST_CLOSED = 3
# So many events within such a share of the motion are an accumulation.
CROWDED, CROWD, CALMER, MOST_SLOW = 20, 1e-5, 1.5, 1e-5
SAMPLES = np.linspace(0.0, 1.0, 17)[1:]
CLOSED = 1e-9  # gaps, relative to the lengths of a scene, and switching functions
JUST = 1e-14  # how far a guard that is zero at the beginning may become negative, relative
UNDECIDED = 1e-8  # margins of modes of Filippov systems that rounding decides
FLIGHT = 12  # steps that resolve a short flight
RANK = 1e-10
GAIN = 1e-9  # of the kinetic energy of the directions that are struck
OPEN, FREE, STICK, FORTH, BACK = "open", "free", "stick", "forth", "back"
SIDE = {FORTH: 1.0, BACK: -1.0}


class NoOracle(Exception):
    """The oracle does not know: not unique, too many contacts, rounding decides."""


class GainsEnergy(NoOracle):
    """An impact by Newton's restitution and Coulomb's friction raises the kinetic energy."""


class NoMotion(NoOracle):
    """Coulomb's friction leaves rigid bodies no motion."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Accuracy:
    """Tolerance of the integrator; speeds that are none; how far a force leaves its range before its mode ends."""

    rtol: float
    slow: float
    pulled: float


COARSE = Accuracy(rtol=1e-9, slow=1e-6, pulled=1e-6)
FINE = Accuracy(rtol=1e-11, slow=1e-7, pulled=1e-7)


@dataclass(frozen=True, eq=False, kw_only=True)
class Piece:
    """A smooth motion, valid while all guards are positive; `shortest`: the length of a flight it begins with."""

    flow: Callable[[np.ndarray], np.ndarray]
    guards: Callable[[np.ndarray], np.ndarray]
    shortest: float = np.inf


class Modes(Protocol):
    """What the loop asks of a kind of systems; `size` are the magnitudes of the components of the state."""

    size: np.ndarray
    touched: int

    def near(self, x: np.ndarray, change: np.ndarray) -> np.ndarray:
        """A neighbour of an initial state of the same kind."""

    def resolve(self, x: np.ndarray, at: Accuracy) -> tuple[np.ndarray, Piece]:
        """The state after what happens at once, and the motion that begins with it."""


def motion(modes: Modes, x0: np.ndarray, duration: float, at: Accuracy = FINE) -> tuple[np.ndarray, int, np.ndarray]:
    """Return the state at the end, the number of events, and the largest magnitudes on the way.

    Raises
    ------
    NoOracle
    """
    t, x, most, times, given = 0.0, np.array(x0, dtype=float), np.abs(x0), [-np.inf] * CROWDED, at
    for events in range(MOST_EVENTS):
        # Impacts that accumulate end in rounding: the speeds that are none grow until nothing happens any more.
        crowded = t - times[-CROWDED] < CROWD * duration
        at = replace(at, slow=min(CALMER * at.slow, MOST_SLOW)) if crowded else given
        times.append(t)
        x, piece = modes.resolve(x, at)
        most = np.maximum(most, np.abs(x))
        t, x, ended = _smooth(piece, modes.size, t, x, duration, at)
        most = np.maximum(most, np.abs(x))
        if ended:
            return x, events, most
    raise NoOracle("too many events")


def _smooth(
    piece: Piece, size: np.ndarray, t: float, x: np.ndarray, end: float, at: Accuracy
) -> tuple[float, np.ndarray, bool]:
    stepper = DOP853(
        lambda _, y: piece.flow(y),
        t,
        x,
        end,
        rtol=at.rtol,
        atol=1e-3 * at.rtol * size,
        max_step=min(end / 20.0, piece.shortest / 3.0),
    )
    for count in range(20000):
        stepper.step()
        if stepper.status == "failed" or not np.isfinite(stepper.y).all():
            raise NoOracle("the integrator fails")
        if count == FLIGHT:
            stepper.max_step = end / 20.0
        between, begin = stepper.dense_output(), stepper.t_old
        found = _first(partial(_after, piece.guards, between), begin + (stepper.t - begin) * SAMPLES, begin)
        if found is not None:
            return found, np.array(between(found)), False
        if stepper.status == "finished":
            return end, np.array(stepper.y), True
    raise NoOracle("too many steps")


def _after(guards: Callable[[np.ndarray], np.ndarray], states: Callable[[float], np.ndarray], t: float) -> np.ndarray:
    return guards(states(t))


def _component(guards: Callable[[float], np.ndarray], j: int, t: float) -> float:
    return float(guards(t)[j])


def _first(guards: Callable[[float], np.ndarray], samples: np.ndarray, begin: float) -> float | None:
    """When the first guard becomes negative, dips between samples included."""
    times = np.append(begin, samples)
    values = np.array([guards(s) for s in times])
    found = []
    for j in range(values.shape[1]):
        below = np.flatnonzero(values[1:, j] < 0.0)
        last = int(below[0]) + 1 if below.size else len(times)
        one = partial(_component, guards, j)
        dip = _dip(one, times, values[:last, j])
        if dip is not None:
            found.append(dip)
        elif below.size:
            a, b = times[last - 1], times[last]
            low = float(values[last - 1, j])
            found.append(b if low <= 0.0 else brentq(one, a, b, xtol=1e-300, rtol=1e-15))
    return min(found, default=None)


def _dip(guard: Callable[[float], float], times: np.ndarray, values: np.ndarray) -> float | None:
    """A root between samples that are all positive."""
    for i in range(1, len(values) - 1):
        a, b, c = values[i - 1 : i + 2]
        if b > min(a, c) or 8.0 * b > max(a, c):  # a parabola through such samples does not reach zero
            continue
        low, high = times[i - 1], times[i + 1]
        for _ in range(60):
            left, right = low + (high - low) / 3.0, high - (high - low) / 3.0
            if min(guard(left), guard(right)) < 0.0:
                bottom = left if guard(left) < 0.0 else right
                return float(brentq(guard, times[i - 1], bottom, xtol=1e-300, rtol=1e-15))
            low, high = (low, right) if guard(left) < guard(right) else (left, high)
    return None


# ----------------------------------------------------------------------------------------------------------- contacts


class Contacts:
    """Modes of a `CLS` in the plane without controls and parameters.

    Parameters
    ----------
    system : CLS
    length, speed : float
        Magnitudes of a scene; angles and their rates have `size` of their own.
    size : (2 n_q,)
    rest : float
        Slower impacts are inelastic: rates relative to the norm of the gradient of the gap.
    """

    def __init__(self, system: ns.CLS, *, length: float, speed: float, size: np.ndarray, rest: float = 0.0) -> None:
        self.length, self.speed, self.size, self.rest, self.n_q = length, speed, size, rest, system.n_q
        self.rubs = [not isinstance(c.friction[0], float) or c.friction[0] > 0.0 for c in system.contacts]
        self.static = np.array([c.static_friction or 0.0 for c in system.contacts])
        given = [ca.SX(0, 1), *(ca.SX(c.friction[0]) for c in system.contacts)]
        self._friction = ca.Function("friction", [system.x], [ca.densify(ca.vertcat(*given))])
        self.restitution = [c.restitution for c in system.contacts]
        q, v = system.q, system.v
        gaps = ca.vertcat(ca.SX(0, 1), *[c.gap for c in system.contacts])
        normals = [ca.gradient(c.gap, q) if c.normal is None else c.normal for c in system.contacts]
        tangents = [ca.SX(self.n_q, 1) if c.tangent is None else c.tangent for c in system.contacts]
        rows = ca.horzcat(ca.SX(self.n_q, 0), *normals, *tangents).T
        drift = ca.jtimes(ca.mtimes(rows, v), q, v)
        moves = np.array(ca.DM(ca.sparsify(rows).sparsity(), 1.0)).reshape(2, len(self.rubs), self.n_q).max(axis=0)
        self._coupled = moves @ np.array(ca.DM(ca.sparsify(system.mass_matrix).sparsity(), 1.0)) @ moves.T > 0.0
        self._all = ca.Function("all", [system.x], [system.mass_matrix, system.force, gaps, rows, drift])
        self.touched = 0

    def _read(self, x: np.ndarray) -> tuple[np.ndarray, ...]:
        """M, f, gaps, rows n then t of all contacts, and their drift: derivatives of the rows times v."""
        mass, force, gaps, rows, drift = (np.array(value) for value in self._all(x))
        return mass, force[:, 0], gaps.reshape(-1), rows, drift.reshape(-1)

    def friction(self, x: np.ndarray) -> np.ndarray:
        """Coefficients of the contacts at a state."""
        return np.array(self._friction(x)).reshape(-1)

    def near(self, x: np.ndarray, change: np.ndarray) -> np.ndarray:
        """A neighbour of a state in which the same contacts are closed, at rest and sticking."""
        count, (mass, _, gaps, rows, _) = len(self.rubs), self._read(x)
        closed = np.flatnonzero(gaps <= CLOSED * self.length)
        resting = np.concatenate([closed, closed + count])
        resting = resting[np.abs(rows[resting] @ x[self.n_q :]) <= FINE.slow * self.speed]
        q, v = x[: self.n_q] + change[: self.n_q], x[self.n_q :] + change[self.n_q :]
        for _ in range(2):
            mass, _, gaps, rows, _ = self._read(np.append(q, v))
            q = q - _onto(mass, rows[closed], gaps[closed])
        mass, _, _, rows, _ = self._read(np.append(q, v))
        return np.append(q, v - _onto(mass, rows[resting], rows[resting] @ v))

    def resolve(self, x: np.ndarray, at: Accuracy) -> tuple[np.ndarray, Piece]:
        """Impacts, then the modes of the closed contacts."""
        q, v, count = x[: self.n_q].copy(), x[self.n_q :].copy(), len(self.rubs)
        mass, _, gaps, rows, _ = self._read(x)
        if gaps.min(initial=0.0) < -1e3 * CLOSED * self.length:
            raise NoOracle("penetration")
        closed = np.flatnonzero(gaps <= CLOSED * self.length)
        q -= _onto(mass, rows[closed], gaps[closed])
        mass, _, _, rows, _ = self._read(np.append(q, v))
        slow = at.slow * self.speed * np.linalg.norm(rows, axis=1)
        for _ in range(3):
            if not len(closed) or (rows[closed] @ v).min() >= -slow[closed].min():
                break
            mu = self.friction(np.append(q, v))
            jumps = [self._struck(mass, v, rows, group, mu) - v for group in self._groups(closed)]
            v, self.touched = v + sum(jumps), self.touched + 1
        resting = [int(i) for i in closed if abs(rows[i] @ v) <= slow[i]]
        modes = [OPEN] * count
        if resting:
            self.touched += 1
            v -= _onto(mass, rows[resting], rows[resting] @ v)
            for group in self._groups(np.array(resting)):
                for i, mode in zip(group, self._modes(np.append(q, v), group.tolist(), slow), strict=True):
                    modes[i] = mode
            stuck = [i + k for i in resting if modes[i] != OPEN for k in ((0, count) if modes[i] == STICK else (0,))]
            v -= _onto(mass, rows[stuck], rows[stuck] @ v)
        x = np.append(q, v)
        return x, self._piece(x, tuple(modes), set(closed), at)

    def _groups(self, contacts: np.ndarray) -> list[np.ndarray]:
        """Contacts that move the same bodies, or others in between: the groups are independent of one another."""
        label = connected_components(self._coupled[np.ix_(contacts, contacts)], directed=False)[1]
        groups = [contacts[label == k] for k in range(label.max(initial=-1) + 1)]
        if any(len(group) > MOST_CLOSED for group in groups):
            raise NoOracle("many contacts")
        return groups

    def _struck(
        self, mass: np.ndarray, v: np.ndarray, rows: np.ndarray, closed: np.ndarray, mu: np.ndarray
    ) -> np.ndarray:
        count, norms = len(self.rubs), np.linalg.norm(rows, axis=1)
        found = impact(
            mass,
            v,
            [rows[i] for i in closed],
            [rows[[count + i]].T if self.rubs[i] else np.zeros((self.n_q, 0)) for i in closed],
            [float(mu[i]) if self.rubs[i] else () for i in closed],
            [self.restitution[i] if -rows[i] @ v >= self.rest * norms[i] else 0.0 for i in closed],
        )
        after = np.asarray(_only(found, "impact").rates[0])
        both = np.concatenate([closed, closed + count])
        moving = 0.5 * v @ mass @ _onto(mass, rows[both], rows[both] @ v)
        if energy_gain(mass, v, after) > GAIN * moving:
            raise GainsEnergy("the law gains energy")
        return after

    def _modes(self, x: np.ndarray, resting: list[int], slow: np.ndarray) -> list[str]:
        """By enumeration of the accelerations."""
        mass, force, _, rows, drift = self._read(x)
        count, v, mu = len(self.rubs), x[self.n_q :], self.friction(x)
        taken = [k for i in resting for k in ([i, count + i] if self.rubs[i] else [i])]
        response = np.linalg.solve(mass, rows[taken].T)
        slips = [rows[count + i] @ v for i in resting]
        given = [
            np.array([np.sign(s)]) if self.rubs[i] and abs(s) > slow[count + i] else None
            for i, s in zip(resting, slips, strict=True)
        ]
        cone = np.maximum(mu, self.static)
        problem = Problem(
            delassus=rows[taken] @ response,
            offset=response.T @ force + drift[taken],
            friction=tuple(mu[i] if s is not None else cone[i] for i, s in zip(resting, given, strict=True)),
            tangents=tuple(int(self.rubs[i]) for i in resting),
            slips=tuple(given),
        )
        found, modes = _only(solutions(problem), "acceleration"), list[str]()
        forces, rates = found.forces[0], problem.delassus @ found.forces[0] + problem.offset
        if self.static.any():
            # What static friction does not hold begins to slip, with sliding friction.
            small = 1e-10 * np.abs(problem.offset).max(initial=0.0)
            for place, (i, k) in enumerate(zip(resting, problem.first, strict=True)):
                if self.rubs[i] and given[place] is None and abs(rates[k + 1]) > small and forces[k] > 0.0:
                    given[place] = np.array([np.sign(rates[k + 1])])
            coefficients = tuple(mu[i] if s is not None else cone[i] for i, s in zip(resting, given, strict=True))
            problem = replace(problem, friction=coefficients, slips=tuple(given))
            found = _only(solutions(problem), "acceleration")
            forces, rates = found.forces[0], problem.delassus @ found.forces[0] + problem.offset
        unit = np.sqrt(np.diag(problem.delassus))
        least = 1e-10 * (np.abs(problem.offset / unit).max() or 1.0) * unit
        for i, k, slip in zip(resting, problem.first, problem.slips, strict=True):
            if rates[k] > least[k] and abs(forces[k]) * unit[k] <= least[k] / unit[k]:
                modes.append(OPEN)
            elif not self.rubs[i]:
                modes.append(FREE)
            elif slip is not None:
                modes.append(FORTH if slip[0] > 0.0 else BACK)
            else:
                modes.append(STICK if abs(rates[k + 1]) <= least[k + 1] else FORTH if rates[k + 1] > 0.0 else BACK)
        return modes

    def _solved(self, x: np.ndarray, modes: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray, float]:
        """Accelerations, slacks of the closed contacts, in units of accelerations, and their magnitude."""
        mass, force, _, rows, drift = self._read(x)
        free, closed = np.linalg.solve(mass, force), np.flatnonzero(np.array(modes) != OPEN)
        mu = self.friction(x)
        parts = [
            self._group_solved(mass, free, rows, drift, modes, group.tolist(), mu) for group in self._groups(closed)
        ]
        changes, slacks, sizes = zip(*parts, strict=True) if parts else ((), (), ())
        return free + sum(changes), np.concatenate([np.zeros(0), *slacks]), max(sizes, default=0.0)

    def _group_solved(
        self,
        mass: np.ndarray,
        free: np.ndarray,
        rows: np.ndarray,
        drift: np.ndarray,
        modes: tuple[str, ...],
        closed: list[int],
        mu: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray, float]:
        """What a group of closed contacts adds to the accelerations, their slacks and magnitude."""
        count = len(modes)
        kept = [k for i in closed for k in ((i, count + i) if modes[i] == STICK else (i,))]
        units = np.sqrt(np.einsum("ij,ji->i", rows, np.linalg.solve(mass, rows.T)))
        columns = rows[kept].copy()
        for place, k in enumerate(kept):
            if k < count and modes[k] in SIDE:
                columns[place] -= mu[k] * SIDE[modes[k]] * rows[count + k]
        columns, unit = columns / units[[k % count for k in kept], None], units[kept]
        response = np.linalg.solve(mass, columns.T)
        matrix, offset = (rows[kept] / unit[:, None]) @ response, (rows[kept] @ free + drift[kept]) / unit
        z = -np.linalg.pinv(matrix, rcond=RANK) @ offset
        lines = []
        for place, k in enumerate(kept):
            one = np.eye(len(kept))[place]
            if k < count:
                lines.append(one)
            else:
                normal = max(mu[k - count], self.static[k - count]) * np.eye(len(kept))[kept.index(k - count)]
                lines += [normal - one, normal + one]
        left = null_space(matrix, rcond=RANK)
        return response @ z, _slacks(np.array(lines), z, left), float(np.abs(offset).max())

    def _piece(self, x: np.ndarray, modes: tuple[str, ...], closed: set[int], at: Accuracy) -> Piece:
        count, tiny = len(modes), JUST * self.length
        _, _, start, rows, drift = self._read(x)
        a, _, strength = self._solved(x, modes)
        pulled = at.pulled * max(strength, 1e-6 * self.speed**2 / self.length)
        slides = [i for i, mode in enumerate(modes) if mode in SIDE]
        opened = [i for i, mode in enumerate(modes) if mode == OPEN]
        shift = np.array([start[i] - tiny if i in closed else 0.0 for i in opened])
        slips = np.array([SIDE[modes[i]] * (rows[count + i] @ x[self.n_q :]) for i in slides])
        least = JUST * self.speed * np.linalg.norm(rows[[count + i for i in slides]], axis=1)
        slow = np.array([at.slow * self.speed * np.linalg.norm(rows[count + i]) for i in slides])
        begun = np.where(slips <= slow, slips - least, 0.0)
        shortest = np.inf
        for i in set(opened) & closed:
            away, back = rows[i] @ x[self.n_q :], rows[i] @ a + drift[i]
            if back < 0.0 and away > 0.0:
                shortest = min(shortest, 2.0 * away / -back)
        for i in set(opened) - closed:  # what is about to close may open again within a sample
            if rows[i] @ x[self.n_q :] < 0.0:
                shortest = min(shortest, start[i] / -(rows[i] @ x[self.n_q :]))

        def flow(y: np.ndarray) -> np.ndarray:
            return np.append(y[self.n_q :], self._solved(y, modes)[0])

        def guards(y: np.ndarray) -> np.ndarray:
            _, _, gaps, now, _ = self._read(y)
            speeds = np.array([SIDE[modes[i]] * (now[count + i] @ y[self.n_q :]) for i in slides])
            return np.concatenate([gaps[opened] - shift, speeds - begun, self._solved(y, modes)[1] + pulled])

        return Piece(flow=flow, guards=guards, shortest=shortest)


def _onto(mass: np.ndarray, rows: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The least change, by the metric M, that takes away these values of the rows."""
    response = np.linalg.solve(mass, rows.T)
    return np.asarray(response @ np.linalg.pinv(rows @ response, rcond=RANK) @ values)


def _only(found: Solutions, what: str) -> Solutions:
    if not found.rates:
        raise NoMotion(f"{what}: no solutions")
    if len(found.rates) > 1:
        raise NoOracle(f"{what}: several solutions")
    return found


def _slacks(lines: np.ndarray, z: np.ndarray, left: np.ndarray) -> np.ndarray:
    """Slacks; where the forces are not unique the largest least one, as one number."""
    values, slopes = lines @ z, lines @ left
    if not left.shape[1]:
        return np.asarray(values)
    if left.shape[1] > 1:
        raise NoOracle("many redundant contacts")
    best = float(values.min())
    for i, j in combinations(range(len(values)), 2):
        change = float(slopes[i, 0] - slopes[j, 0])
        if abs(change) > RANK:
            best = max(best, float((values + slopes[:, 0] * (values[j] - values[i]) / change).min()))
    return np.array([best])


# ----------------------------------------------------------------------------------------------------- Filippov systems


class Filippov:
    """Modes of a `PSS` whose partitions have one switching function each, with the signs +1 and -1.

    Parameters
    ----------
    system : PSS
    length, time : float
        Magnitudes of the state and of times; switching functions are of the magnitude one.
    """

    def __init__(self, system: ns.PSS, *, length: float, time: float) -> None:
        self.length, self.time, self.size = length, time, np.full(system.x.shape[0], length)
        functions = ca.vertcat(*[m.functions for m in system.modes])
        plus, minus = (ca.horzcat(*[m.flows[k] for m in system.modes]) for k in (0, 1))
        slopes = ca.jacobian(functions, system.x)
        self._all = ca.Function("all", [system.x], [functions, slopes, system.flow, plus, minus])
        self.touched = 0

    def _read(self, x: np.ndarray) -> tuple[Any, ...]:
        values, slopes, flow, plus, minus = (np.array(value) for value in self._all(x))
        return values[:, 0], slopes, flow[:, 0], plus, minus

    def _field(self, x: np.ndarray, mode: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        """x' and the weights of the positive sides of the surfaces that the motion slides on."""
        _, slopes, flow, plus, minus = self._read(x)
        slides = [j for j, side in enumerate(mode) if side == 0]
        f = flow + sum((plus if side > 0 else minus)[:, j] for j, side in enumerate(mode))
        if not slides:
            return f, np.zeros(0)
        matrix, offset = slopes[slides] @ (plus - minus)[:, slides], slopes[slides] @ f
        if np.linalg.cond(matrix) > 1e8:
            return f, np.full(len(slides), np.nan)
        weights = -np.linalg.solve(matrix, offset)
        return f + (plus - minus)[:, slides] @ weights, weights

    def near(self, x: np.ndarray, change: np.ndarray) -> np.ndarray:
        """A neighbour of a state."""
        return x + change

    def resolve(self, x: np.ndarray, at: Accuracy) -> tuple[np.ndarray, Piece]:
        """The one mode that is consistent."""
        values, slopes, *_ = self._read(x)
        on = np.abs(values) <= CLOSED
        x = x - np.linalg.pinv(slopes[on]) @ values[on]
        self.touched += int(on.any())
        found: list[tuple[tuple[int, ...], np.ndarray, float]] = []
        for mode in product(*[(1, -1, 0) if here else (int(np.sign(c)),) for here, c in zip(on, values, strict=True)]):
            f, weights = self._field(x, mode)
            rates = (slopes @ f * self.time)[on] * np.array(mode)[on]
            least = min([*weights, *(1.0 - weights), *rates[np.array(mode)[on] != 0], np.inf])
            if np.isfinite(f).all() and abs(least) < UNDECIDED:
                raise NoOracle("rounding decides")
            if least > 0.0:
                found.append((mode, f, least))
        if len(found) != 1:
            raise NoOracle(f"{'several' if found else 'no'} modes")
        mode, crossed = found[0][0], self._read(x)[0]
        outside = [j for j, side in enumerate(mode) if side]
        sides = np.array([mode[j] for j in outside])
        shift = np.array([mode[j] * crossed[j] - JUST if on[j] else 0.0 for j in outside])

        def guards(y: np.ndarray) -> np.ndarray:
            weights = self._field(y, mode)[1]
            return np.concatenate(
                [sides * self._read(y)[0][outside] - shift, weights + at.pulled, 1 + at.pulled - weights]
            )

        return x, Piece(flow=lambda y: self._field(y, mode)[0], guards=guards)
