/* Convex quadratic programs with complementarity constraints, by branch and bound over dual active-set steps.
 *
 *   minimise  1/2 z'Pz + c'z + constant   subject to   lower <= A z <= upper,
 *   and for every pair (i, j) of rows:  (A z - lower)_i = 0  or  (A z - lower)_j = 0.
 *
 * qpcc_setup factorises P = R'R and writes the rows in y = R z + R^-T c, where the objective is 1/2 |y|^2 but for a
 * constant. A node of the search fixes some sides of pairs at their lower bounds, which makes equations of their rows.
 * Its program is solved by a dual active-set method (Goldfarb and Idnani 1983, in the form of Arnstroem, Bemporad and
 * Axehill 2022): a working set with multipliers of the right signs stays admissible when rows are added or bounds
 * move, so that every node starts from the working set of its parent. The search plunges: it goes on with the child
 * whose side is smaller, and where a plunge ends with the open node of the lowest bound. It branches on the pair whose
 * smaller side is largest. Pairs are given in the order of time, and later ones have more weight: what comes late follows
 * from what comes early, so that it decides little by itself, and a program that settles it says what the order costs.
 *
 * No allocation, no recursion, no input or output: the caller gives the memory. Results depend on the data only, and
 * limits count steps and nodes. Compile without contraction of products and sums for the same bits on every machine.
 */
#include <math.h>
#include <stddef.h>
#include <string.h>

enum { QPCC_SOLVED = 0, QPCC_LIMIT = 1, QPCC_INFEASIBLE = 2, QPCC_NOTHING = 3, QPCC_NUMBERS = 4 };

/* Numbers that a search with this limit of nodes needs as memory; constant expressions, for static arrays. */
#define QPCC_ROOM(pairs, nodes) ((nodes) + (pairs) + 3)
#define QPCC_WORK(n, m, pairs, nodes) \
  (((n) + 1) * ((n) + 1) + 6 * ((n) + 1) + 4 * (m) + QPCC_ROOM(pairs, nodes) * ((n) + 2))
#define QPCC_INTEGERS(n, m, pairs, nodes) \
  (2 * (n) + (m) + 4 + (pairs) + QPCC_ROOM(pairs, nodes) * (2 * ((n) + 1) + (pairs) + 2))

enum { BLOCK = 16, REFINED = 3 }; /* rows that are looked at together; steps of iterative refinement */

/* A row is violated beyond VIOLATED (rows have length one in y); multipliers above -DUAL count as zero; a row of which
 * less than DEPENDENT is orthogonal to the working set depends on it; a pair with both sides above OPEN is violated. */
static const double VIOLATED = 1e-10, MOVED = 1e-12, EXACT = 1e-14, DUAL = 1e-12, DEPENDENT = 1e-11, NEAR = 1e-6, SINKS = 1e-9, OPEN = 1e-7;

/* Rows that are violated by more than this fraction of their size, or of one, belong to no answer. */
static const double OUTSIDE = 1e-5;

/* Weight of the first pair where a search chooses the one to branch on; that of the last one is one. */
static const double EARLY = 0.35;

typedef struct {
  int n, m, size, singular, careful, steps, next;
  double tolerance;
  const double *rows;                                       /* m x n, of length one */
  double *lower, *upper;                                    /* m: bounds of M y at this node */
  double *factor, *pivot, *multiplier, *solution, *y, *work; /* L D L' of the working set */
  int *member;                                              /* rows of the working set */
  signed char *side, *inside;                               /* +1: at the upper bound, -1: at the lower one; mask */
} Program;

static double dot(const double *a, const double *b, int n) {
  double s[4] = {0.0, 0.0, 0.0, 0.0}; /* four sums, which the compiler may form at once */
  int k;
  for (k = 0; k + 4 <= n; k += 4) {
    s[0] += a[k] * b[k];
    s[1] += a[k + 1] * b[k + 1];
    s[2] += a[k + 2] * b[k + 2];
    s[3] += a[k + 3] * b[k + 3];
  }
  for (; k < n; k++) s[0] += a[k] * b[k];
  return (s[0] + s[1]) + (s[2] + s[3]);
}

int qpcc_work(int n, int m, int pairs, int nodes) { return QPCC_WORK(n, m, pairs, nodes); }

int qpcc_integers(int n, int m, int pairs, int nodes) { return QPCC_INTEGERS(n, m, pairs, nodes); }

/* P = R'R (upper triangle, row by row), rows = A R^-1 with length one, and their lengths before. Returns QPCC_NUMBERS
 * if P is not positive definite. */
int qpcc_setup(int n, int m, const double *P, const double *A, double *R, double *rows, double *length) {
  int i, j, k;
  for (i = 0; i < n; i++) {
    double d = P[i * n + i];
    for (k = 0; k < i; k++) d -= R[k * n + i] * R[k * n + i];
    if (!(d > 0.0) || !isfinite(d)) return QPCC_NUMBERS;
    R[i * n + i] = sqrt(d);
    for (j = i + 1; j < n; j++) {
      double s = P[i * n + j];
      for (k = 0; k < i; k++) s -= R[k * n + i] * R[k * n + j];
      R[i * n + j] = s / R[i * n + i];
    }
    for (j = 0; j < i; j++) R[i * n + j] = 0.0;
  }
  for (i = 0; i < m; i++) {
    double *row = rows + (size_t)i * n, squares = 0.0;
    for (j = 0; j < n; j++) { /* row R = A_i */
      double s = A[(size_t)i * n + j];
      for (k = 0; k < j; k++) s -= row[k] * R[k * n + j];
      row[j] = s / R[j * n + j];
      squares += row[j] * row[j];
    }
    length[i] = squares > 0.0 ? sqrt(squares) : 1.0;
    if (!isfinite(length[i])) return QPCC_NUMBERS;
    for (j = 0; j < n; j++) row[j] /= length[i];
  }
  return QPCC_SOLVED;
}

static void solve(const Program *p, double *x, int size);

static double bound_of(const Program *p, int k) {
  int i = p->member[k];
  return p->side[k] > 0 ? p->upper[i] : -p->lower[i];
}

/* The squared distance of a row from the span of the first `size` members, by its residual: the difference of squares in
 * `append` has lost its digits where it is small. Orthogonalised twice (Daniel, Gragg, Kaufman, Stewart 1976). */
static double distance(const Program *p, const double *row, int size) {
  double *rest = p->work, *x = p->solution;
  int j, k, again, n = p->n;
  memcpy(rest, row, (size_t)n * sizeof(double));
  for (again = 0; again < 2; again++) {
    for (k = 0; k < size; k++) x[k] = p->side[k] * dot(p->rows + (size_t)p->member[k] * n, rest, n);
    solve(p, x, size);
    for (k = 0; k < size; k++) {
      const double *member = p->rows + (size_t)p->member[k] * n;
      double weight = p->side[k] * x[k];
      for (j = 0; j < n; j++) rest[j] -= weight * member[j];
    }
  }
  return dot(rest, rest, n);
}

/* Add a row at one of its bounds to the working set, with the multiplier given. */
static void append(Program *p, int i, int side, double multiplier) {
  int j, k = p->size, width = p->n + 1;
  const double *row = p->rows + (size_t)i * p->n;
  double *at = p->factor + (size_t)k * width, d = dot(row, row, p->n), whole = d;
  for (j = 0; j < k; j++) {
    at[j] = side * p->side[j] * dot(p->rows + (size_t)p->member[j] * p->n, row, p->n);
    at[j] -= dot(p->factor + (size_t)j * width, at, j);
  }
  for (j = 0; j < k; j++) {
    double g = at[j];
    at[j] = g / p->pivot[j];
    d -= g * at[j];
  }
  if (p->careful && d <= NEAR * whole) d = distance(p, row, k);
  p->member[k] = i;
  p->side[k] = (signed char)side;
  p->inside[i] = 1;
  p->multiplier[k] = multiplier;
  p->singular = d <= DEPENDENT * whole || k == p->n; /* no more than n rows are independent, whatever rounding says */
  p->pivot[k] = p->singular ? 0.0 : d;
  p->size = k + 1;
}

/* Take a member out of the working set; the factors that follow are updated by its row (Gill, Golub, Murray, Saunders
 * 1974, method C1). */
static void take_out(Program *p, int out) {
  int i, j, width = p->n + 1, last = p->size - 1;
  double *v = p->work, alpha = p->pivot[out];
  p->inside[p->member[out]] = 0;
  for (i = out + 1; i <= last; i++) v[i - 1] = p->factor[(size_t)i * width + out];
  for (i = out; i < last; i++) {
    double *to = p->factor + (size_t)i * width, *from = to + width;
    for (j = 0; j < out; j++) to[j] = from[j];
    for (j = out; j < i; j++) to[j] = from[j + 1];
    p->pivot[i] = p->pivot[i + 1];
    p->member[i] = p->member[i + 1];
    p->side[i] = p->side[i + 1];
    p->multiplier[i] = p->multiplier[i + 1];
  }
  p->size = last;
  for (j = out; j < last; j++) {
    double share = v[j], d = p->pivot[j] + alpha * share * share, beta;
    if (d <= 0.0) continue; /* a dependent last member stays dependent */
    beta = share * alpha / d;
    alpha = p->pivot[j] * alpha / d;
    p->pivot[j] = d;
    for (i = j + 1; i < last; i++) {
      double *entry = p->factor + (size_t)i * width + j;
      v[i] -= share * *entry;
      *entry += beta * v[i];
    }
  }
  p->singular = last > 0 && p->pivot[last - 1] <= DEPENDENT;
  if (p->singular) p->pivot[last - 1] = 0.0;
}

/* Solve L D L' x = right, in place; the first `size` members. */
static void solve(const Program *p, double *x, int size) {
  int i, j, width = p->n + 1;
  for (i = 0; i < size; i++) x[i] -= dot(p->factor + (size_t)i * width, x, i);
  for (i = 0; i < size; i++) x[i] /= p->pivot[i];
  for (i = size - 1; i > 0; i--) { /* row by row, as the factor is stored */
    const double *row = p->factor + (size_t)i * width;
    for (j = 0; j < i; j++) x[j] -= row[j] * x[i];
  }
}

/* Move the multipliers along `direction` up to the first one that would get the wrong sign, at most by `most`; take
 * that member out. Returns 0 if none is in the way. */
static int move(Program *p, const double *direction, double most) {
  int k, blocking = -1;
  double step = most;
  for (k = 0; k < p->size; k++) {
    int i = p->member[k];
    if (p->lower[i] == p->upper[i] || direction[k] >= 0.0) continue;
    if (-p->multiplier[k] > step * direction[k]) {
      step = -p->multiplier[k] / direction[k];
      blocking = k;
    }
  }
  if (blocking < 0) return 0;
  for (k = 0; k < p->size; k++) p->multiplier[k] += step * direction[k];
  p->multiplier[blocking] = 0.0;
  take_out(p, blocking);
  return 1;
}

/* The most violated row and its side, 0 if there is none. Partial pricing: from where the last violated row was found,
 * until a block of rows has one. */
static int price(Program *p, int *row) {
  int i, seen, found = 0;
  double most = 0.0;
  for (seen = 0, i = p->next; seen < p->m; seen++, i = i + 1 < p->m ? i + 1 : 0) {
    double at, over;
    int side = 1;
    if (found && seen % BLOCK == 0) break;
    if (p->inside[i]) continue;
    at = dot(p->rows + (size_t)i * p->n, p->y, p->n);
    over = at - p->upper[i];
    if (p->lower[i] - at > over) {
      over = p->lower[i] - at;
      side = -1;
    }
    if (over > most && over > p->tolerance * (1.0 + fabs(side > 0 ? p->upper[i] : p->lower[i]))) {
      most = over;
      found = side;
      *row = i;
    }
  }
  if (found) p->next = *row - *row % BLOCK;
  return found;
}

/* Iterative refinement: the rows of the working set hold to rounding, whatever updates have left in the factors. Returns
 * the largest residual before, relative to the bounds. */
static double refine(Program *p) {
  double *x = p->solution, most = 0.0;
  int k, i, n = p->n;
  for (k = 0; k < p->size; k++) {
    double bound = bound_of(p, k);
    x[k] = p->side[k] * dot(p->rows + (size_t)p->member[k] * n, p->y, n) - bound;
    if (fabs(x[k]) > most * (1.0 + fabs(bound))) most = fabs(x[k]) / (1.0 + fabs(bound));
  }
  solve(p, x, p->size);
  for (k = 0; k < p->size; k++) {
    const double *row = p->rows + (size_t)p->member[k] * n;
    double weight = -p->side[k] * x[k];
    p->multiplier[k] += x[k];
    for (i = 0; i < n; i++) p->y[i] += weight * row[i];
  }
  return most;
}

/* Add the members of a working set, without those that depend on others by rounding. */
static void enter(Program *p, int i, int side, double multiplier) {
  append(p, i, side, multiplier);
  if (p->singular) {
    p->inside[i] = 0;
    p->size--;
    p->singular = 0;
  }
}

static void empty(Program *p) {
  memset(p->inside, 0, (size_t)p->m);
  p->size = 0;
  p->singular = 0;
}

/* Factorise anew what many updates have led to. */
static void refactor(Program *p) {
  int k, size = p->size;
  empty(p);
  for (k = 0; k < size; k++) enter(p, p->member[k], p->side[k], p->multiplier[k]);
}

/* The program of a node, from its working set. The value is 1/2 |y|^2; above `cutoff` the node is given up. */
static int solve_program(Program *p, double cutoff, double *value) {
  int k, i = 0, side, n = p->n, limit = 20 * (p->n + p->m), added = -1, doubts = 0;
  double *x = p->solution, lowest = -INFINITY;
  p->careful = 0;
  p->tolerance = VIOLATED;
  for (; limit > 0; limit--) {
    p->steps++;
    if (p->singular) { /* the last member depends on the others: its multiplier grows as long as they allow it */
      int last = p->size - 1;
      for (k = 0; k < last; k++)
        x[k] = -p->side[k] * p->side[last] *
               dot(p->rows + (size_t)p->member[k] * n, p->rows + (size_t)p->member[last] * n, n);
      solve(p, x, last);
      x[last] = 1.0;
      if (!move(p, x, INFINITY)) return QPCC_INFEASIBLE;
      continue;
    }
    for (k = 0; k < p->size; k++) x[k] = -bound_of(p, k);
    solve(p, x, p->size);
    for (k = 0; k < p->size; k++) {
      i = p->member[k];
      if (p->lower[i] != p->upper[i] && x[k] < -DUAL) break;
    }
    if (k < p->size) {
      if (p->member[p->size - 1] == added && x[p->size - 1] < 0.0 && p->multiplier[p->size - 1] == 0.0) {
        /* What was violated pushes in the wrong direction: the factors have lost digits, or the tolerance is below them. */
        if (doubts++) p->tolerance *= 10.0;
        refactor(p);
        added = -1;
        continue;
      }
      for (k = 0; k < p->size; k++) x[k] -= p->multiplier[k];
      if (move(p, x, 1.0)) continue;
      for (k = 0; k < p->size; k++) x[k] += p->multiplier[k]; /* negative by rounding, and so it was before */
    }
    memset(p->y, 0, (size_t)n * sizeof(double));
    for (k = 0; k < p->size; k++) {
      const double *row = p->rows + (size_t)p->member[k] * n;
      double weight = -p->side[k] * x[k];
      p->multiplier[k] = x[k];
      for (i = 0; i < n; i++) p->y[i] += weight * row[i];
    }
    *value = 0.5 * dot(p->y, p->y, n);
    if (!isfinite(*value)) return QPCC_NUMBERS;
    if (*value < lowest && !p->careful) { /* a dual method never goes back: the factors have lost digits */
      p->careful = 1;
      refactor(p);
      lowest = -INFINITY;
      continue;
    }
    lowest = *value - SINKS * fabs(*value);
    if (*value >= cutoff) return QPCC_LIMIT;
    side = price(p, &i);
    for (k = 0; !side && k < REFINED; k++) {
      double residual = refine(p);
      if (residual <= EXACT) break;
      if (residual > MOVED) side = price(p, &i); /* less does not move any row across its tolerance */
    }
    if (!side) {
      *value = 0.5 * dot(p->y, p->y, n);
      return *value >= cutoff ? QPCC_LIMIT : QPCC_SOLVED;
    }
    if (p->size > n) return QPCC_NUMBERS; /* not reached: a dependent member leaves before another one comes */
    append(p, i, side, 0.0);
    added = i;
  }
  return QPCC_NUMBERS;
}

/* Exchange two nodes that wait. */
static void exchange(int a, int b, int pairs, int entry, double *bound, double *multiplier, int *size, int *member,
                     int *side, int *state) {
  int k, number;
  double value = bound[a];
  bound[a] = bound[b], bound[b] = value;
  number = size[a], size[a] = size[b], size[b] = number;
  for (k = 0; k < entry; k++) {
    size_t i = (size_t)a * entry + k, j = (size_t)b * entry + k;
    value = multiplier[i], multiplier[i] = multiplier[j], multiplier[j] = value;
    number = member[i], member[i] = member[j], member[j] = number;
    number = side[i], side[i] = side[j], side[j] = number;
  }
  for (k = 0; k < pairs; k++) {
    size_t i = (size_t)a * (pairs + 1) + k, j = (size_t)b * (pairs + 1) + k;
    number = state[i], state[i] = state[j], state[j] = number;
  }
}

/* One call. `order` (pairs) says which side of a pair is zero in a known order of contacts (0 or 1), or -1.
 * `z` (n) and `chosen` (pairs) are the answer, `multipliers` (m) those of its rows (positive at upper bounds);
 * `report` (3): objective, lower bound of all objectives, objective of the known order (infinite if it is none). `counts` (2): nodes and steps. */
int qpcc_solve(int n, int m, int pairs, const double *R, const double *rows, const double *length, const double *c,
               double constant, const double *lower, const double *upper, const int *first, const int *second,
               const int *order, int most_nodes, double gap, double *z, int *chosen, double *multipliers,
               double *report, int *counts, double *work, int *integers) {
  Program p;
  double *v, *low, *high, *saved_multiplier, *saved_bound, best = INFINITY, base, left = INFINITY, value = 0.0;
  int *saved_size, *saved_member, *saved_side, *saved_state, *state, i, k, top, answer = 0, fresh, status;
  int entry = n + 1, failed = 0, room = QPCC_ROOM(pairs, most_nodes);
  p.n = n, p.m = m, p.rows = rows, p.steps = p.next = 0;
  p.factor = work, work += (n + 1) * (n + 1);
  p.pivot = work, work += n + 1;
  p.multiplier = work, work += n + 1;
  p.solution = work, work += n + 1;
  p.work = work, work += n + 1;
  p.y = work, work += n + 1;
  v = work, work += n + 1;
  p.lower = work, work += m;
  p.upper = work, work += m;
  low = work, work += m;
  high = work, work += m;
  saved_multiplier = work, work += room * entry;
  saved_bound = work, work += room;
  p.member = integers, integers += n + 1;
  state = integers, integers += pairs;
  saved_size = integers, integers += room;
  saved_member = integers, integers += room * entry;
  saved_side = integers, integers += room * entry;
  saved_state = integers, integers += room * (pairs + 1);
  p.side = (signed char *)integers, integers += n / 4 + 1;
  p.inside = (signed char *)integers;
  counts[0] = counts[1] = 0;
  report[0] = report[2] = INFINITY, report[1] = -INFINITY;
  for (i = 0; i < n; i++) { /* R'v = c */
    double s = c[i];
    for (k = 0; k < i; k++) s -= R[k * n + i] * v[k];
    v[i] = s / R[i * n + i];
  }
  base = constant - 0.5 * dot(v, v, n); /* objective = 1/2 |y|^2 + base */
  if (!isfinite(base)) return QPCC_NUMBERS;
  for (i = 0; i < m; i++) {
    double shift = dot(rows + (size_t)i * n, v, n);
    low[i] = lower[i] / length[i] + shift;
    high[i] = upper[i] / length[i] + shift;
    if (isnan(low[i]) || isnan(high[i])) return QPCC_NUMBERS;
    if (low[i] == INFINITY || high[i] == -INFINITY) return QPCC_INFEASIBLE;
  }
  p.careful = 0;
  empty(&p);
  /* The known order first: its objective says what a change of the order is worth, and bounds the search. */
  for (k = 0; k < pairs && order[k] >= 0; k++) {}
  top = 0;
  if (k == pairs && pairs > 0) {
    memcpy(p.lower, low, (size_t)m * sizeof(double));
    memcpy(p.upper, high, (size_t)m * sizeof(double));
    for (k = 0; k < pairs; k++) {
      i = order[k] ? second[k] : first[k];
      p.upper[i] = p.lower[i];
    }
    counts[0]++;
    status = solve_program(&p, INFINITY, &value);
    if (status == QPCC_SOLVED) {
      best = value;
      report[2] = value + base;
      answer = 1;
      memcpy(z, p.y, (size_t)n * sizeof(double));
      for (k = 0; k < pairs; k++) chosen[k] = order[k];
      memset(multipliers, 0, (size_t)m * sizeof(double));
      for (k = 0; k < p.size; k++) multipliers[p.member[k]] = p.side[k] * p.multiplier[k];
    }
    empty(&p);
  }
  for (k = 0; k < pairs; k++) state[k] = -1;
  saved_size[0] = 0, saved_bound[0] = -INFINITY;
  memcpy(saved_state, state, (size_t)pairs * sizeof(int));
  top = 1, fresh = 1;
  while (top > 0 && counts[0] < most_nodes) {
    double cutoff, slack_first, slack_second, smaller, most = 0.0;
    int branch = -1, prefer = 0;
    top--;
    if (!fresh) { /* the plunge has ended: on with the node that promises most */
      int lowest = top;
      for (k = 0; k < top; k++)
        if (saved_bound[k] < saved_bound[lowest]) lowest = k;
      if (lowest != top)
        exchange(lowest, top, pairs, entry, saved_bound, saved_multiplier, saved_size, saved_member, saved_side,
                 saved_state);
    }
    cutoff = answer ? best - gap * fabs(best + base) : INFINITY;
    if (saved_bound[top] >= cutoff) { /* what was found meanwhile is better */
      fresh = 0;
      continue;
    }
    memcpy(state, saved_state + (size_t)top * (pairs + 1), (size_t)pairs * sizeof(int));
    memcpy(p.lower, low, (size_t)m * sizeof(double));
    memcpy(p.upper, high, (size_t)m * sizeof(double));
    for (k = 0; k < pairs; k++)
      if (state[k] >= 0) {
        i = state[k] ? second[k] : first[k];
        p.upper[i] = p.lower[i];
      }
    if (!fresh) {
      empty(&p);
      for (k = 0; k < saved_size[top]; k++) {
        size_t at = (size_t)top * entry + k;
        enter(&p, saved_member[at], saved_side[at], saved_multiplier[at]);
      }
    }
    counts[0]++;
    status = solve_program(&p, cutoff, &value);
    fresh = 0;
    if (status == QPCC_NUMBERS) {
      failed = 1; /* not searched: what is not known is not claimed */
      if (saved_bound[top] < left) left = saved_bound[top];
      continue;
    }
    if (status != QPCC_SOLVED) continue;
    for (k = 0; k < pairs; k++) {
      if (state[k] >= 0) continue;
      slack_first = (dot(rows + (size_t)first[k] * n, p.y, n) - low[first[k]]) * length[first[k]];
      slack_second = (dot(rows + (size_t)second[k] * n, p.y, n) - low[second[k]]) * length[second[k]];
      smaller = slack_second < slack_first ? slack_second : slack_first;
      if (smaller > OPEN) {
        smaller *= EARLY + (1.0 - EARLY) * k / pairs;
        if (smaller <= most) continue;
        most = smaller;
        branch = k;
        prefer = slack_second < slack_first;
      }
    }
    if (branch < 0) {
      best = value;
      answer = 1;
      memcpy(z, p.y, (size_t)n * sizeof(double));
      for (k = 0; k < pairs; k++) {
        slack_first = (dot(rows + (size_t)first[k] * n, p.y, n) - low[first[k]]) * length[first[k]];
        slack_second = (dot(rows + (size_t)second[k] * n, p.y, n) - low[second[k]]) * length[second[k]];
        chosen[k] = state[k] >= 0 ? state[k] : slack_second < slack_first;
      }
      memset(multipliers, 0, (size_t)m * sizeof(double));
      for (k = 0; k < p.size; k++) multipliers[p.member[k]] = p.side[k] * p.multiplier[k];
      continue;
    }
    for (i = 0; i < 2; i++) { /* the preferred side on top: it goes on with the factors there are */
      state[branch] = i == 0 ? !prefer : prefer;
      memcpy(saved_state + (size_t)top * (pairs + 1), state, (size_t)pairs * sizeof(int));
      saved_bound[top] = value;
      saved_size[top] = p.size;
      for (k = 0; k < p.size; k++) {
        saved_member[(size_t)top * entry + k] = p.member[k];
        saved_side[(size_t)top * entry + k] = p.side[k];
        saved_multiplier[(size_t)top * entry + k] = p.multiplier[k];
      }
      top++;
    }
    fresh = 1;
  }
  counts[1] = p.steps;
  for (k = 0; k < top; k++)
    if (saved_bound[k] < left) left = saved_bound[k];
  if (left > best) left = best;
  report[1] = left + base;
  if (!answer) return top > 0 || failed ? QPCC_NOTHING : QPCC_INFEASIBLE;
  report[0] = best + base;
  /* Tolerances are relative to |y|. Where unknowns have hardly any curvature that is large, and what holds in y may be
   * violated in the caller's rows. */
  for (i = 0; i < m; i++) {
    double at = dot(rows + (size_t)i * n, z, n), shift = dot(rows + (size_t)i * n, v, n), over = low[i] - at;
    if (at - high[i] > over) over = at - high[i];
    if (over * length[i] > OUTSIDE * (1.0 + fabs(at - shift) * length[i])) return QPCC_NUMBERS;
  }
  for (i = 0; i < n; i++) z[i] -= v[i];
  for (i = n - 1; i >= 0; i--) { /* R z = y - v */
    for (k = i + 1; k < n; k++) z[i] -= R[i * n + k] * z[k];
    z[i] /= R[i * n + i];
  }
  for (i = 0; i < m; i++) multipliers[i] /= length[i];
  return (top > 0 || failed) && left < best - gap * fabs(best + base) ? QPCC_LIMIT : QPCC_SOLVED;
}
