"""Every solution of a contact problem at one instant, by brute force: an oracle that shares no code with the library.

    r = G f + b,   0 <= f_n  perpendicular  r_n >= 0,   |f_t| <= mu f_n,   mu f_n r_t = -|r_t| f_t   for every contact

G = J M^-1 J' for the directions J = (n, t) of all contacts. At an impact f are impulses and r velocities after it, with
b_n = g- + e min(g-, 0): a contact that separates (g- > 0) does not rebound but may be held. Between impacts f are
forces and r accelerations; a contact that slips already has a friction force of given direction.

All modes of all contacts are tried: open, stick, slip to either side, and in space slip under an unknown angle, with
Newton's method from a grid of angles. So all solutions are found in the plane; in space one with several slipping
contacts may be missed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy.linalg import null_space
from scipy.optimize import linprog

# Of inequalities, where every contact has G_nn = 1 and the largest |b| is 1, relative to rates and forces above 1.
TOLERANCE = 1e-9
CLEAR = 1e-3  # of violations that no choice of redundant forces can repair
SAME = 1e-7  # differences of the rates of one solution
RANK = 1e-10  # relative singular values that are zero
STARTS = {1: 72, 2: 16, 3: 8, 4: 5}  # angles per contact, by the number of contacts that slip in space
OPEN, STICK, FORTH, BACK, TURN, GIVEN = "open", "stick", "forth", "back", "turn", "given"
MODES = {0: (OPEN, STICK), 1: (OPEN, STICK, FORTH, BACK), 2: (OPEN, STICK, TURN)}  # by the number of tangents
ITERATIONS = 25
CUTS = 40  # rounds of cutting planes at most
TURNS = np.pi / 4 * np.arange(8)
COMPASS = {1: np.array([[1.0], [-1.0]]), 2: np.column_stack([np.cos(TURNS), np.sin(TURNS)])}


@dataclass(frozen=True, eq=False, kw_only=True)
class Problem:
    """G and b contact by contact, (n, t) each; `slips` are unit directions of contacts that slip already, or None."""

    delassus: np.ndarray
    offset: np.ndarray
    friction: tuple[float, ...]
    tangents: tuple[int, ...]
    slips: tuple[np.ndarray | None, ...]

    @property
    def first(self) -> list[int]:
        """Where contacts begin."""
        return [i + sum(self.tangents[:i]) for i in range(len(self.tangents))]


@dataclass(frozen=True, eq=False, kw_only=True)
class Solutions:
    """Distinct rates with one set of forces each; the least margin by which any candidate was accepted or rejected."""

    rates: tuple[np.ndarray, ...]
    forces: tuple[np.ndarray, ...]
    margin: float


@dataclass(frozen=True, eq=False)
class _Candidate:
    rates: np.ndarray
    forces: np.ndarray
    margin: float


def solutions(problem: Problem) -> Solutions:
    """Return all solutions.

    A candidate that has the rates of a better accepted one does not count for the margin: with redundant contacts
    forces are not unique, and some modes are at the boundary of others whatever the numbers are.
    """
    normals, widths = problem.delassus[problem.first, problem.first], 1 + np.array(problem.tangents, dtype=int)
    unit = np.repeat(1.0 / np.sqrt(normals), widths)
    size = float(np.abs(unit * problem.offset).max()) or 1.0
    scaled = Problem(
        delassus=unit[:, None] * problem.delassus * unit,
        offset=unit * problem.offset / size,
        friction=problem.friction,
        tangents=problem.tangents,
        slips=problem.slips,
    )
    choices = [MODES[n_t if mu else 0] for n_t, mu in zip(problem.tangents, problem.friction, strict=True)]
    choices = [c if d is None else (OPEN, GIVEN) for c, d in zip(choices, problem.slips, strict=True)]
    found = [candidate for modes in product(*choices) for candidate in _candidates(scaled, modes)]
    distinct: list[_Candidate] = []
    for new in sorted(found, key=lambda candidate: -candidate.margin):
        same = SAME * max(1.0, float(np.abs(new.rates).max()))
        if all(np.abs(old.rates - new.rates).max() > same for old in distinct):
            distinct.append(new)
    accepted = [candidate for candidate in distinct if candidate.margin >= -TOLERANCE]
    return Solutions(
        rates=tuple(size * candidate.rates / unit for candidate in accepted),
        forces=tuple(size * candidate.forces * unit for candidate in accepted),
        margin=float(min(abs(candidate.margin) for candidate in distinct)),
    )


def _candidates(problem: Problem, modes: tuple[str, ...]) -> list[_Candidate]:
    count = modes.count(TURN)
    if not count:
        return [_judged(problem, modes, np.zeros(0), np.inf)]
    angles, sharpness = _roots(problem, modes, count)
    return [_judged(problem, modes, row, least) for row, least in zip(angles, sharpness, strict=True)]


def _columns(problem: Problem, modes: tuple[str, ...], angles: np.ndarray) -> tuple[np.ndarray, list[int]]:
    """Directions C (B, n, m) of the forces that are free in these modes, and the m rates that these modes keep zero."""
    kept: list[int] = []
    turning, blocks = iter(angles.T), [np.zeros((len(angles), problem.offset.size, 0))]
    contacts = zip(problem.first, problem.friction, problem.tangents, problem.slips, modes, strict=True)
    for first, mu, n_t, given, mode in contacts:
        width = 0 if mode == OPEN else 1 + n_t if mode == STICK and mu else 1
        block = np.zeros((len(angles), problem.offset.size, width))
        block[:, range(first, first + width), range(width)] = 1.0
        if mode not in (OPEN, STICK):
            block[:, first + 1 : first + 1 + n_t, 0] = -mu * _direction(mode, given, turning)
        blocks.append(block)
        kept += range(first, first + width)
    return np.concatenate(blocks, axis=2), kept


def _direction(mode: str, given: np.ndarray | None, turning: object) -> np.ndarray:
    if mode == TURN:
        angle = next(turning)  # type: ignore[call-overload]
        return np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    return np.asarray({FORTH: [1.0], BACK: [-1.0], GIVEN: given}[mode])


def _roots(problem: Problem, modes: tuple[str, ...], count: int) -> tuple[np.ndarray, np.ndarray]:
    """Angles (N, count) under which slip has no part across its friction, and how far they are from double roots."""
    grid = 0.1 + 2.0 * np.pi * np.arange(STARTS[count]) / STARTS[count]
    angles = np.array(list(product(grid, repeat=count)))
    busy = np.arange(len(angles))
    for _ in range(ITERATIONS):
        across, _, slopes, sizes = _across(problem, modes, angles[busy])
        step = -np.einsum("bij,bj->bi", np.linalg.pinv(slopes, rcond=1e-12), across)
        angles[busy] += step * np.minimum(1.0, 0.5 / np.maximum(np.abs(step).max(axis=1), 1e-300))[:, None]
        busy = busy[(np.abs(step).max(axis=1) > 1e-14) | (np.abs(across).max(axis=1) > 1e-13 * sizes)]
        if not busy.size:
            break
    across, speeds, slopes, sizes = _across(problem, modes, angles)
    # Slip without speed belongs to stick, whose forces it shares; redundant contacts have it under every angle.
    moves = np.abs(speeds).min(axis=1) > TOLERANCE * sizes
    right = np.flatnonzero((np.abs(across).max(axis=1) <= 1e-11 * sizes) & moves)
    turned = np.round(np.concatenate([np.cos(angles), np.sin(angles)], axis=1)[right], 6) + 0.0
    right = right[np.unique(turned, axis=0, return_index=True)[1]]
    return angles[right], np.linalg.svd(slopes[right], compute_uv=False)[:, -1] / sizes[right]


def _across(problem: Problem, modes: tuple[str, ...], angles: np.ndarray) -> tuple[np.ndarray, ...]:
    """Slip velocities across and along the angles (B, k), derivatives of the former, and sizes of the rates (B,)."""
    g, (c, kept) = problem.delassus, _columns(problem, modes, angles)
    gc = g @ c
    inverse = np.linalg.pinv(gc[:, kept], rcond=RANK)
    z = -inverse @ problem.offset[kept]
    rates = np.einsum("bnm,bm->bn", gc, z) + problem.offset
    turning = [i for i, mode in enumerate(modes) if mode == TURN]
    tangents = [problem.first[i] + np.array([1, 2]) for i in turning]
    along = np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    normal = np.stack([-along[:, :, 1], along[:, :, 0]], axis=-1)
    slips = np.stack([rates[:, t] for t in tangents], axis=1)
    slopes = np.zeros((*angles.shape, len(turning)))
    for j, (i, t) in enumerate(zip(turning, tangents, strict=True)):
        own = z[:, kept.index(problem.first[i])]
        change = -problem.friction[i] * own[:, None] * (normal[:, j] @ g[t])
        change -= np.einsum("bnm,bmk,bk->bn", gc, inverse, change[:, kept])
        slopes[:, :, j] = np.einsum("bkx,bkx->bk", normal, np.stack([change[:, t] for t in tangents], axis=1))
        slopes[:, j, j] -= np.einsum("bx,bx->b", along[:, j], slips[:, j])
    across, speeds = (np.einsum("bkx,bkx->bk", axes, slips) for axes in (normal, along))
    return across, speeds, slopes, np.maximum(1.0, np.abs(rates).max(axis=1))


def _judged(problem: Problem, modes: tuple[str, ...], angles: np.ndarray, sharpness: float) -> _Candidate:
    """The forces of one combination of modes, and its margin: negative where it violates an inequality."""
    columns, kept = _columns(problem, modes, angles[None])
    c, g, b = columns[0], problem.delassus, problem.offset
    matrix = (g @ c)[kept]
    forces = -c @ (np.linalg.pinv(matrix, rcond=RANK) @ b[kept])
    free = c @ null_space(matrix, rcond=RANK) if kept else c
    values, cones = _inequalities(problem, modes, angles)
    rates = g @ forces + b
    wrong = float(np.abs(rates[kept]).max(initial=0.0))
    unique = bool(np.abs(g @ free).max(initial=0.0) <= SAME)
    fixed = values[np.abs(values[:, 0] @ free).max(axis=1, initial=0.0) <= SAME]
    if free.size and wrong <= CLEAR and _slack(forces, fixed, [], b) > -CLEAR:
        forces = _most_admissible(forces, free, values, cones, b)
        rates = g @ forces + b
    size = max(1.0, float(np.abs(rates).max()), float(np.abs(forces).max()))
    margin, wrong = _slack(forces, values, cones, b) / size, wrong / size
    if margin > 0.0:
        # Near to a singular matrix, a double root, or with rates that are not unique in these modes, rounding decides.
        singular = np.linalg.svd(matrix, compute_uv=False) if kept else np.ones(1)
        ratios = singular[singular > RANK * singular[0]] / singular[0]
        margin = min(margin, sharpness, ratios.min()) if unique else 0.0
    return _Candidate(rates, forces, margin if wrong <= TOLERANCE else min(margin, -wrong))


def _inequalities(
    problem: Problem, modes: tuple[str, ...], angles: np.ndarray
) -> tuple[np.ndarray, list[tuple[int, slice, float]]]:
    """Rows (a, s) of the linear ones, a'f + s'b >= 0, and (normal, tangents, mu) of the friction cones."""
    g, identity, rows, cones, turning = problem.delassus, np.eye(problem.offset.size), [], [], iter(angles)
    contacts = zip(problem.first, problem.friction, problem.tangents, modes, strict=True)
    for first, mu, n_t, mode in contacts:
        t, nothing = slice(first + 1, first + 1 + n_t), np.zeros(len(identity))
        rows.append((g[first], identity[first]) if mode == OPEN else (identity[first], nothing))
        if mode in (FORTH, BACK, TURN):
            along = identity[t].T @ _direction(mode, None, turning)
            rows.append((g @ along, along))
        if mode == STICK and mu:
            cones.append((first, t, mu))
    return np.array(rows), cones


def _slack(forces: np.ndarray, values: np.ndarray, cones: list[tuple[int, slice, float]], b: np.ndarray) -> float:
    linear = values[:, 0] @ forces + values[:, 1] @ b
    return float(min([*linear, np.inf, *(mu * forces[n] - np.linalg.norm(forces[t]) for n, t, mu in cones)]))


def _most_admissible(
    forces: np.ndarray, free: np.ndarray, values: np.ndarray, cones: list[tuple[int, slice, float]], b: np.ndarray
) -> np.ndarray:
    """Of forces + free y those of the largest slack (at most 1), by cutting planes of the cones."""
    rows, level = values[:, 0], values[:, 1] @ b
    cuts = [(cone, u) for cone in cones for u in COMPASS[cone[1].stop - cone[1].start]]
    best, least = forces, _slack(forces, values, cones, b)
    for _ in range(CUTS):
        cut_rows = np.zeros((len(cuts), len(forces)))
        for row, ((n, t, mu), u) in zip(cut_rows, cuts, strict=True):
            row[n], row[t] = mu, -u
        every = np.vstack([rows, cut_rows])
        found = linprog(
            np.append(np.zeros(free.shape[1]), -1.0),
            A_ub=np.hstack([-every @ free, np.ones((len(every), 1))]),
            b_ub=every @ forces + np.append(level, np.zeros(len(cuts))),
            bounds=[(None, None)] * free.shape[1] + [(None, 1.0)],
            options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
        )
        if found.x is None:
            break
        trial = forces + free @ found.x[:-1]
        slack = _slack(trial, values, cones, b)
        if slack > least:
            best, least = trial, slack
        if slack >= found.x[-1] - 1e-11:
            break
        cuts += [(cone, trial[cone[1]] / max(np.linalg.norm(trial[cone[1]]), 1e-300)) for cone in cones]
    return best


def impact(
    mass: np.ndarray,
    before: np.ndarray,
    normals: Sequence[np.ndarray],
    tangents: Sequence[np.ndarray],
    friction: Sequence[float | Sequence[float]],
    restitution: Sequence[float],
) -> Solutions:
    """Velocities v+ (as `rates`) and impulses (contact by contact, normal first) of an impact.

    Parameters
    ----------
    mass : (n_q, n_q)
    before : (n_q,)
    normals : k of (n_q,)
    tangents : k of (n_q, n_t), n_t = 0, 1 or 2
    friction : k coefficients, one for each tangent where it is anisotropic
    restitution : k numbers
    """
    coefficients = [np.broadcast_to(mu, t.shape[1:]) for mu, t in zip(friction, tangents, strict=True)]
    # With tangents weighted by mu_k / mu every cone is circular.
    weight = np.concatenate([np.append(1.0, mu / (mu.max(initial=0.0) or 1.0)) for mu in coefficients])
    jacobian = np.hstack([np.column_stack([n, t]) for n, t in zip(normals, tangents, strict=True)]) * weight
    response = np.linalg.solve(mass, jacobian)
    problem = Problem(
        delassus=jacobian.T @ response,
        offset=jacobian.T @ before,
        friction=tuple(float(mu.max(initial=0.0)) for mu in coefficients),
        tangents=tuple(t.shape[1] for t in tangents),
        slips=(None,) * len(tangents),
    )
    first = problem.first
    problem.offset[first] += np.asarray(restitution) * np.minimum(problem.offset[first], 0.0)
    found = solutions(problem)
    return Solutions(
        rates=tuple(before + response @ impulses for impulses in found.forces),
        forces=tuple(weight * impulses for impulses in found.forces),
        margin=found.margin,
    )


def energy_gain(mass: np.ndarray, before: np.ndarray, after: np.ndarray) -> float:
    """Kinetic energy after an impact less that before it."""
    return float(0.5 * (after - before) @ mass @ (after + before))
