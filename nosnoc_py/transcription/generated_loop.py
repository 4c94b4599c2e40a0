"""A model predictive controller as C: the fixed grid whose order of contacts is searched at every sample.

`mpc_prepare` shifts the plan and expands the problem along it, before the state is measured; `mpc_feedback` then takes
one search of a QPCC. The two CasADi functions (`FixedGrid.condense`, `FixedGrid.step`), the search (`mpcc.qpcc`) and
the loop around them are one file without allocation, input or output. `control.grid_plan` does the same in Python.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import casadi as ca
import numpy as np

from nosnoc_py.mpcc.qpcc import native
from nosnoc_py.mpcc.qpcc.program import GAP
from nosnoc_py.transcription.fixed_grid import AGAIN_ROUNDS, FAR, FIRST_FACTOR, FIRST_ROUNDS, SAME, FixedGrid
from nosnoc_py.transcription.step_source import filled, listed

if TYPE_CHECKING:
    from nosnoc_py.transcription.transcription import Transcription

Array = np.ndarray
SOURCE, HEADER, LIBRARY = "mpc.c", "mpc.h", "libmpc.so"
# Without contraction of products and sums the numbers are the same as in Python.
COMPILE = f"gcc -O3 -ffp-contract=off -fPIC -shared -o {LIBRARY} {SOURCE} -lm"
STATUSES = {
    0: "solved: u is the control of the best order of contacts",
    1: "cut: u is the control of the best order that was found within the limit of nodes",
    2: "no order of contacts satisfies the constraints: u is that of the plan before",
    3: "no order was found within the limit of nodes: u is that of the plan before",
    4: "a number is not finite, or the objective is not convex: u is that of the plan before",
}

HEADER_TEXT = """\
/* A model predictive controller whose order of contacts is searched at every sample; README.md says what is what. */
#ifndef NOSNOC_MPC_H
#define NOSNOC_MPC_H
#ifdef __cplusplus
extern "C" {
#endif

enum { MPC_X = @x@, MPC_U = @u@, MPC_P = @p@, MPC_NODES = @nodes@ };

/* Forget the plan. */
void mpc_reset(void);

/* Between two samples: move the plan by a period, @period@ s, to the state x[MPC_X] that is expected at the next sample
 * (NULL: the one that the plan predicts), with parameters p[MPC_P] (NULL: those of layout.json). Returns a status. */
int mpc_prepare(const double *x, const double *p);

/* The control u[MPC_U] for the measured state; behind the controls are slacks of soft constraints. Without a call of
 * mpc_prepare before, that is done first; the first call makes the first plan, which takes longer. A search solves at
 * most `nodes` programs, 0 for MPC_NODES. One search is made, two for a state far from the expected one, and
 * @again_rounds@ more if these fail. u is finite for every status. Returns
@statuses@
 * Memory is static: one call at a time. */
int mpc_feedback(const double *x, const double *p, int nodes, double *u);

/* Objective of the last control and a lower bound of all others, on the fixed grid. */
void mpc_objective(double *objective, double *bound);

#ifdef __cplusplus
}
#endif
#endif
"""

BODY = """
/* ---- the loop around these functions ---- */
#include "mpc.h"

enum { N_X = @x@, N_U = @u@, N_Z = @z@, N_P = @p@, STEPS = @steps@, PAIRS = @pairs@, N = @n@, M = @m@ };
enum { X_ROOM = @x_room@, U_ROOM = @u_room@, Z_ROOM = @z_room@, P_ROOM = @p_room@, PAIR_ROOM = @pair_room@ };
enum { PER_STEP = @per_step@, WIDTH = 1 + N_X + N };
enum { FIRST_ROUNDS = @rounds@, AGAIN_ROUNDS = @again_rounds@, FIRST_NODES = @first_nodes@ };
static const double weights[] = {@weights@};
static const int source[] = {@source@}, unknown[] = {@unknown@}, move_of[] = {@move_of@};
static const int pair_first[] = {@first@}, pair_second[] = {@second@};
static const int kick_step[] = {@kick_step@};
static const double kick_share[] = {@kick_share@}, lengths[] = {@lengths@};
static const double row_upper[] = {@upper@}, nominal[] = {@nominal@}, default_p[] = {@default_p@}, idle[] = {@idle@};
static const double u_lower[] = {@u_lower@}, u_upper[] = {@u_upper@};

static double X[X_ROOM], U[U_ROOM], Z[Z_ROOM], next_X[X_ROOM], next_U[U_ROOM], next_Z[Z_ROOM], p_now[P_ROOM];
static int sides[PAIR_ROOM], next_sides[PAIR_ROOM], chosen[PAIR_ROOM], planned, ready, begun;
static double P[N * N], A[M * N], A_rows[M * N], c[N], c_x[N * N_X], constant[(1 + N_X) * (1 + N_X)];
static double lower[M], lower_x[M * N_X], states[@states@], algebraic[@algebraic@], scale[N];
static double R[N * N], rows[M * N], row_length[M], c_now[N], low[M], z[N], multipliers[M], report[3], last_u[U_ROOM];
static double search_work[QPCC_WORK(N, M, PAIRS, @most@)];
static int search_integers[QPCC_INTEGERS(N, M, PAIRS, @most@)], counts[2];
static casadi_real function_work[@w@];
static casadi_int function_integers[@iw@];

static void take(double *to, const double *from, int size) { memcpy(to, from, (size_t)size * sizeof(double)); }

/* Expand along the motion and factorise. */
static int expand(void) {
  const casadi_real *arg[@arg@] = {X, U, Z, p_now};
  casadi_real *res[@res@] = {P, A, c, c_x, constant, lower, lower_x, states, algebraic, scale};
  int i, j;
  mpc_condense(arg, res, function_integers, function_work, 0);
  for (i = 0; i < M; i++)
    for (j = 0; j < N; j++) A_rows[i * N + j] = A[j * M + i];
  return qpcc_setup(N, M, P, A_rows, R, rows, row_length);
}

static void moved(const double *x, const double *u, int k, double *after) {
  const double share = kick_share[2 * k], times[2] = {lengths[k], kick_share[2 * k + 1]};
  double acting[U_ROOM];
  const casadi_real *arg[@arg@] = {x, acting, next_Z + k * N_Z, p_now, times};
  casadi_real *res[@res@] = {after};
  int i;
  for (i = 0; i < N_U; i++) acting[i] = share * u[kick_step[k] * N_U + i] + (1.0 - share) * u[k * N_U + i];
  mpc_step(arg, res, function_integers, function_work, 0);
}

/* Search from x; the motion becomes that of the answer. */
static int search(const double *x, int nodes) {
  double one[1 + N_X], value = 0.0;
  int i, k, status, known = 1;
  one[0] = 1.0;
  for (i = 0; i < N_X; i++) one[1 + i] = x[i] - X[i];
  for (i = 0; i <= N_X; i++) value += 0.5 * one[i] * dot(constant + i * (1 + N_X), one, 1 + N_X);
  for (i = 0; i < N; i++) {
    c_now[i] = c[i];
    for (k = 0; k < N_X; k++) c_now[i] += c_x[k * N + i] * one[1 + k];
  }
  for (i = 0; i < M; i++) {
    low[i] = lower[i];
    for (k = 0; k < N_X; k++) low[i] -= lower_x[k * M + i] * one[1 + k];
  }
  for (i = 0; i < PAIRS; i++) known = known && sides[i] >= 0;
  for (i = 0; i < PAIRS; i++) next_sides[i] = known ? sides[i] : -1;
  status = qpcc_solve(N, M, PAIRS, R, rows, row_length, c_now, value, low, row_upper, pair_first, pair_second,
                      next_sides, nodes, @gap@, z, chosen, multipliers, report, counts, search_work, search_integers);
  if (status > QPCC_LIMIT) return status;
  for (i = 0; i < (STEPS + 1) * N_X; i++) next_X[i] = i < N_X ? x[i] : 0.0;
  for (i = 0; i < STEPS * N_X; i++)
    for (k = 0; k < WIDTH; k++)
      next_X[N_X + i] += states[k * STEPS * N_X + i] * (k <= N_X ? one[k] : z[k - 1 - N_X]);
  for (i = 0; i < STEPS * N_Z; i++) {
    next_Z[i] = 0.0;
    for (k = 0; k < WIDTH; k++) next_Z[i] += algebraic[k * STEPS * N_Z + i] * (k <= N_X ? one[k] : z[k - 1 - N_X]);
  }
  for (k = 0; k < STEPS; k++)
    for (i = 0; i < N_U; i++) {
      double value = scale[move_of[k] * N_U + i] * z[move_of[k] * N_U + i];
      /* What the search leaves as a violation is small, but a bound of an actuator is none to leave. */
      next_U[k * N_U + i] = fmin(fmax(value, u_lower[i]), u_upper[i]);
    }
  for (i = 0; i < (STEPS + 1) * N_X; i++)
    if (!isfinite(next_X[i])) return QPCC_NUMBERS;
  for (i = 0; i < STEPS * N_U; i++)
    if (!isfinite(next_U[i])) return QPCC_NUMBERS;
  take(X, next_X, (STEPS + 1) * N_X);
  take(U, next_U, STEPS * N_U);
  take(Z, next_Z, STEPS * N_Z);
  memcpy(sides, chosen, PAIRS * sizeof(int));
  return status;
}

void mpc_reset(void) {
  planned = ready = begun = 0;
  take(last_u, idle, N_U);
}

/* Take the parameters; return whether they are others than before. */
static int parameters(const double *p) {
  int i, other = 0;
  const double *now = p ? p : default_p;
  for (i = 0; i < N_P; i++) other = other || now[i] != p_now[i];
  take(p_now, now, N_P);
  return other;
}

int mpc_prepare(const double *x, const double *p) {
  int i, k, status;
  parameters(p);
  ready = 0;
  if (!planned) return QPCC_NOTHING;
  for (k = 0; k <= STEPS; k++)
    for (i = 0; i < N_X; i++) {
      int j;
      next_X[k * N_X + i] = 0.0;
      for (j = 0; j <= STEPS; j++) next_X[k * N_X + i] += weights[k * (STEPS + 1) + j] * X[j * N_X + i];
    }
  if (x) take(next_X, x, N_X);
  for (k = 0; k < STEPS; k++) {
    take(next_U + k * N_U, U + source[k] * N_U, N_U);
    take(next_Z + k * N_Z, Z + source[k] * N_Z, N_Z);
    for (i = 0; i < PER_STEP; i++) next_sides[k * PER_STEP + i] = sides[source[k] * PER_STEP + i];
  }
  for (k = 0; k < STEPS; k++)
    if (unknown[k]) moved(next_X + k * N_X, next_U, k, next_X + (k + 1) * N_X);
  take(X, next_X, (STEPS + 1) * N_X);
  take(U, next_U, STEPS * N_U);
  take(Z, next_Z, STEPS * N_Z);
  memcpy(sides, next_sides, PAIRS * sizeof(int));
  status = expand();
  ready = status == QPCC_SOLVED;
  return status;
}

static int first(const double *x, int rounds, int nodes) {
  double before = INFINITY;
  int i, k, round, status = QPCC_NOTHING;
  planned = 0;
  for (k = 0; k <= STEPS; k++) take(X + k * N_X, x, N_X);
  for (k = 0; k < STEPS; k++) take(U + k * N_U, idle, N_U);
  memset(Z, 0, sizeof(Z));
  for (i = 0; i < PAIRS; i++) sides[i] = -1;
  for (round = 0; round < rounds; round++) {
    int now = expand();
    if (now == QPCC_SOLVED) now = search(x, nodes);
    if (now > QPCC_LIMIT) return round ? status : now;
    status = now;
    planned = 1;
    if (fabs(report[0] - before) <= @same@ * fabs(report[0])) break;
    before = report[0];
  }
  return status;
}

int mpc_feedback(const double *x, const double *p, int nodes, double *u) {
  int i, status, far = 0;
  if (!begun) take(last_u, idle, N_U);
  take(u, last_u, N_U);
  for (i = 0; i < N_X; i++)
    if (!isfinite(x[i])) return QPCC_NUMBERS;
  if (nodes <= 0 || nodes > MPC_NODES) nodes = MPC_NODES;
  if (!planned) {
    parameters(p);
    status = begun ? first(x, AGAIN_ROUNDS, nodes) : first(x, FIRST_ROUNDS, FIRST_NODES);
    begun = begun || planned;
  } else {
    if (!ready) mpc_prepare(x, p);
    if (parameters(p) && ready) ready = expand() == QPCC_SOLVED; /* it was expanded with others */
    for (i = 0; i < N_X; i++) far = far || fabs(x[i] - X[i]) > @far@ * nominal[i];
    status = ready ? search(x, nodes) : QPCC_NUMBERS;
    if (far && status <= QPCC_LIMIT && expand() == QPCC_SOLVED) { /* the functions are nonlinear: expand again */
      int again = search(x, nodes);
      if (again <= QPCC_LIMIT) status = again;
    }
    ready = 0;
    if (status > QPCC_LIMIT) { /* the plan leads nowhere: its control now, unless a new one is found */
      for (i = 0; i < N_U; i++) u[i] = isfinite(U[i]) ? U[i] : u[i];
      status = first(x, AGAIN_ROUNDS, nodes);
    }
  }
  if (status <= QPCC_LIMIT) take(u, U, N_U);
  take(last_u, u, N_U);
  return status;
}

void mpc_objective(double *objective, double *bound) {
  *objective = report[0];
  *bound = report[1];
}
"""


def sources(grid: FixedGrid, period: float, p: Array) -> dict[str, str]:
    """Return the texts of mpc.c and mpc.h; p (n_p,) are the parameters where the caller gives none."""
    generator = ca.CodeGenerator(SOURCE)
    for function in (grid.condense, grid.step):
        generator.add(function)
    with TemporaryDirectory() as folder:
        generator.generate(f"{folder}/")
        code = (Path(folder) / SOURCE).read_text(encoding="utf-8")
    n_x, n_u, _ = grid.n
    explained = "\n".join(f" *   {number}: {text}" for number, text in STATUSES.items())
    sizes = {"x": n_x, "u": n_u, "p": p.size, "nodes": grid.nodes}
    about = {"period": repr(period), "statuses": explained, "again_rounds": AGAIN_ROUNDS}
    header = filled(HEADER_TEXT, {**sizes, **about})
    search = "\n/* ---- the search ---- */\n" + native.source()
    return {SOURCE: code + search + filled(BODY, _numbers(grid, period, p) | sizes), HEADER: header}


def _numbers(grid: FixedGrid, period: float, p: Array) -> dict[str, Any]:
    (n_x, n_u, n_z), steps = grid.n, grid.lengths.size
    weights, source, unknown = grid.shift(period)
    m, n = (int(size) for size in grid.condense.size_out(1))
    both = grid.condense, grid.step
    most = {name: max(getattr(f, f"sz_{name}")() for f in both) for name in ("arg", "res", "iw", "w")}
    most_nodes = FIRST_FACTOR * grid.nodes
    shares = np.array([[share, kick] for _, share, kick in grid.kicks])
    return {name: max(1, size) for name, size in most.items()} | {
        "arg": max(5, most["arg"]), "res": max(10, most["res"]),
        "z": n_z, "steps": steps, "pairs": len(grid.pairs), "n": n, "m": m,
        "per_step": grid.per_step, "x_room": (steps + 1) * n_x, "u_room": max(1, steps * n_u),
        "z_room": max(1, steps * n_z), "p_room": max(1, p.size), "pair_room": max(1, len(grid.pairs)),
        "states": steps * n_x * (1 + n_x + n), "algebraic": max(1, steps * n_z * (1 + n_x + n)),
        "rounds": FIRST_ROUNDS, "again_rounds": AGAIN_ROUNDS, "first_nodes": most_nodes, "most": most_nodes,
        "same": SAME, "far": FAR, "gap": GAP, "weights": listed(weights.ravel()), "source": listed(source),
        "unknown": listed(np.isin(np.arange(steps), unknown).astype(int)), "move_of": listed(grid.moves),
        "first": listed(grid.pairs[:, 0]), "second": listed(grid.pairs[:, 1]),
        "kick_step": listed([before for before, _, _ in grid.kicks]), "kick_share": listed(shares.ravel()),
        "lengths": listed(grid.lengths), "upper": listed(grid.upper), "nominal": listed(grid.ocp.system.x_nominal),
        "default_p": listed(p), "idle": listed(grid.at_rest(np.zeros(n_x)).u[0]),
        "u_lower": listed(np.broadcast_to(grid.ocp.u_bounds[0], n_u)),
        "u_upper": listed(np.broadcast_to(grid.ocp.u_bounds[1], n_u)),
    }  # fmt: skip


def readme(grid: FixedGrid, period: float, p: Array) -> str:
    """Return the section of the README on the controller."""
    statuses = "\n".join(f"- {number}: {text}" for number, text in STATUSES.items())
    n_x, n_u, _ = grid.n
    lengths = ", ".join(f"{h:.4g}" for h in grid.lengths)
    return f"""
## The controller

`{HEADER}` declares a model predictive controller with a period of {period:g} s whose order of contacts is free:
`mpc_prepare(x, p)` between two samples, `mpc_feedback(x, p, nodes, u)` when the state ({n_x} numbers) is measured; u
has {n_u} numbers (behind the controls are slacks of soft constraints), p {p.size}, or is NULL for the values of
`layout.json`. It is a program of its own:

    {COMPILE}

    #include "{HEADER}"
    int control(const double *measured, double *u) {{ return mpc_feedback(measured, 0, 0, u); }}
    void meanwhile(void) {{ mpc_prepare(0, 0); }}

It returns

{statuses}

The horizon has {grid.lengths.size} steps ({lengths} s) and {len(grid.pairs)} pairs of complementary quantities. Their
orders are searched by branch and bound, with at most {grid.nodes} programs in a search, and {FIRST_FACTOR} times as
many in those for the first plan. A sample makes one search, two if the state is far from the expected one, and
{AGAIN_ROUNDS} more if these fail.
Memory is static and nothing is allocated.
"""


def described(problem: Transcription, grid: FixedGrid, period: float) -> dict[str, Any]:
    """Return the entries of layout.json about the controller."""
    system = problem.ocp.system
    return {
        "period": period,
        "lengths": grid.lengths.tolist(),
        "x": list(system.state_names),
        "u": list(system.control_names),
        "p": list(system.parameter_names),
        "statuses": {str(number): text for number, text in STATUSES.items()},
    }
