"""The C around the functions of a step: factors of the matrices, the loop, the prototypes.

Words between @ are filled in by `generated_step`. `nlp_step_look` evaluates the matrix, the right-hand sides and the
residuals at an iterate; the loop factorises L D L' with the fixed sparsity, raises the regularisation until the inertia
is that of a minimum, and moves on by `nlp_step_move`. The file has no allocation, no recursion and no input or output,
so it runs on targets without an operating system. State is static, so one call at a time.
"""

from __future__ import annotations

from typing import Any

import numpy as np

HEADER_TEXT = """\
/* One step of a closed loop on the branch of a solution; README.md says what is what. */
#ifndef NLP_STEP_H
#define NLP_STEP_H
#ifdef __cplusplus
extern "C" {
#endif

enum { NLP_STEP_X0 = @x0@, NLP_STEP_P = @p@, NLP_STEP_U = @u@, NLP_STEP_PLAN = @plan@ };

/* The plan of the solution that the code was generated from. */
void nlp_step_start(double *plan);

/* The control u[NLP_STEP_U] of the first stage for the measured x0[NLP_STEP_X0] and the parameters p[NLP_STEP_P], or
 * those of layout.json where p is NULL. plan[NLP_STEP_PLAN] is the plan of the step before, and becomes that of this
 * one. Returns
@statuses@
 * Memory is static: one call at a time. */
int nlp_step(const double *x0, const double *p, double *plan, double *u);

#ifdef __cplusplus
}
#endif
#endif
"""

BODY = """
/* ---- the loop around these functions ---- */
#include <math.h>
#include <string.h>
#include "step.h"

enum { VALUES = @values@, X0 = @x0_row@, P = @p_row@, PLAN = @plan@, ROWS = @rows@, NEGATIVE = @negative@ };
enum { ITERATIONS = @iterations@, SHORT_STEPS = @short_steps@ };
/* Of the upper half of the matrix by columns, of L by rows and by columns: where they start, and the other index. */
static const int column_start[] = {@column_start@};
static const int matrix_row[] = {@matrix_row@};
static const int row_start[] = {@row_start@};
static const int factor_column[] = {@factor_column@};
static const int factor_start[] = {@factor_start@};
static const int factor_row[] = {@factor_row@};
static const signed char sign[] = {@sign@};
static const int control[] = {@control@};
static const double default_values[] = {@default_values@};
static const double start[] = {@start@};

static double values[VALUES], now[PLAN], next[PLAN];
static double matrix[@nonzeros@], right[2 * ROWS], factor[@factor_nonzeros@], pivot[ROWS], work[ROWS];
static int filled[ROWS];
static casadi_real function_work[@w@];
static casadi_int function_indices[@iw@];

typedef int (*function)(const casadi_real **, casadi_real **, casadi_int *, casadi_real *, int);

static void call(function f, const double *second, const double *third, double *one, double *two, double *three) {
  const casadi_real *arg[@arg@] = {values, second, third};
  casadi_real *res[@res@] = {one, two, three};
  f(arg, res, function_indices, function_work, 0);
}

/* L D L' of the matrix with `added` on the diagonal of the variables, row by row (Davis, Algorithm 849, ACM TOMS 31,
 * 2005). Returns the number of negative pivots, -1 where one vanishes. */
static int factorise(double added) {
  int c, k, e, negative = 0;
  memcpy(filled, factor_start, sizeof(filled));
  for (c = 0; c < ROWS; c++) {
    double d = sign[c] > 0 ? added : 0.0;
    for (k = row_start[c]; k < row_start[c + 1]; k++) work[factor_column[k]] = 0.0;
    for (k = column_start[c]; k < column_start[c + 1]; k++) {
      if (matrix_row[k] == c) d += matrix[k];
      else work[matrix_row[k]] = matrix[k];
    }
    for (k = row_start[c]; k < row_start[c + 1]; k++) {
      int r = factor_column[k];
      double value = work[r], l = value / pivot[r];
      for (e = factor_start[r]; e < filled[r]; e++) work[factor_row[e]] -= factor[e] * value;
      d -= l * value;
      factor[filled[r]++] = l;
    }
    if (d == 0.0 || !isfinite(d)) return -1;
    pivot[c] = d;
    negative += d < 0.0;
  }
  return negative;
}

static void solve(double *x) {
  int c, e;
  for (c = 0; c < ROWS; c++)
    for (e = factor_start[c]; e < factor_start[c + 1]; e++) x[factor_row[e]] -= factor[e] * x[c];
  for (c = ROWS - 1; c >= 0; c--) {
    x[c] /= pivot[c];
    for (e = factor_start[c]; e < factor_start[c + 1]; e++) x[c] -= factor[e] * x[factor_row[e]];
  }
}

void nlp_step_start(double *plan) { memcpy(plan, start, sizeof(start)); }

int nlp_step(const double *x0, const double *p, double *plan, double *u) {
  double report[3], length = 1.0, added, last = 0.0;
  int k, in_a_row = 0;
  memcpy(values, default_values, sizeof(values));
  memcpy(values + X0, x0, NLP_STEP_X0 * sizeof(double));
  if (p) memcpy(values + P, p, NLP_STEP_P * sizeof(double));
  call(nlp_step_begin, plan, 0, now, 0, 0);
  for (k = 0;; k++) {
    call(nlp_step_look, now, 0, matrix, right, report);
    if (!isfinite(report[1])) return 3;
    if (report[0] <= 1.0) break;
    in_a_row = length < @short@ ? in_a_row + 1 : 0;
    if (k == ITERATIONS || in_a_row == SHORT_STEPS) {
      if (report[0] <= @loose@) break;
      return report[2] > @exact@ ? 1 : 2;
    }
    /* A minimum has as many negative pivots as rows (Waechter and Biegler 2006, Algorithm IC). */
    for (added = 0.0; factorise(added) != NEGATIVE; last = added) {
      added = added > 0.0 ? 8.0 * added : last > 0.0 ? last / 3.0 : @first@;
      if (added > 1e10) return 3;
    }
    solve(right);
    solve(right + ROWS);
    call(nlp_step_move, now, right, next, &length, 0);
    memcpy(now, next, sizeof(now));
  }
  call(nlp_step_audit, now, 0, report, 0, 0);
  if (!(report[0] <= @exact@ && isfinite(report[1]))) return 1;
  memcpy(plan, now, sizeof(now));
  for (k = 0; k < NLP_STEP_U; k++) u[k] = now[control[k]];
  return 0;
}
"""


def listed(numbers: Any) -> str:
    """Return numbers with all of their digits, in lines; C has no empty list."""
    texts = [f"{number!r}".replace("inf", "INFINITY") for number in np.asarray(numbers).tolist()] or ["0"]
    return "\n  " + ",\n  ".join(", ".join(texts[k : k + 20]) for k in range(0, len(texts), 20))


def filled(text: str, words: dict[str, Any]) -> str:
    """Return a text with its words between @ filled in."""
    for word, value in words.items():
        text = text.replace(f"@{word}@", str(value))
    return text
