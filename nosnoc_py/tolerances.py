"""Tolerances that several packages share, each with its unit and its use.

A length or a speed of a contact is its gap or gap rate divided by the norm of the gap's gradient, so that the unit of
the gap does not matter. Tolerances of a single algorithm (line search, root finder) are defined beside it.

Lengths and speeds are relative to the scales of the problem (`systems.scales`), which are fixed before the run. In
programs, which have no initial state, they are in the user's units.

`TOUCHING` [length, or of a switching function], 1e-9
    A contact is closed, a switching function zero, below this. Event-driven simulation, Newton's method on elements.
`TOUCHING_SOLVED` [length], 1e-6
    The same in the solution of a program, which has residuals. Impacts of solutions.
`RESTING` [speed], 1e-9
    A rate is zero below this. Event-driven simulation, Newton's method on finite elements.
`RESTING_SOLVED` [speed, and length], 1e-8
    A contact is at rest at the start of a step that is solved as an MPCC.
`IMPACT` [speed], 1e-6
    A velocity jump above this is an impact. Events of all methods, the energy of impacts.
`REST_VELOCITY` [speed], 1e-3
    Approaches slower than this are inelastic in simulations. Impact law; option `rest_velocity`.
`STRIKE` [speed], 2e-2
    A closing contact counts as an impact of its own in time-stepping, whose contacts are never exactly at rest.
`SWEPT` [speed], 1e-6
    Sweeps over many contacts have converged. Time-stepping; option `tolerance`.
`CROSSED` [length, speed, or of a switching function], 1e-11
    A sign change of a guard below this is rounding. Event-driven simulation.
`PULL` [the largest force or multiplier], 1e-9
    A contact force is negative, a multiplier out of its range, beyond this. Event-driven simulation.
`STEP_COMPLEMENTARITY`, `STEP_INFEASIBILITY` [units of the user or of the motion], 1e-10 and 1e-9
    A step of Newton's method solves the unrelaxed equations of finite elements.
`ADMISSIBLE` [relative to the rates], 1e-9
    Residual of a valid solution of a contact problem.
`ENERGY` [relative to the energy exchanged], 1e-9
    An impact increases the kinetic energy beyond this. Impact law in simulators.
`ENERGY_SOLVED` [relative to the energy exchanged], 1e-6
    The same in the solution of a program, which has residuals.
`BROKEN` [relative to the scale of the term], 1e-5
    A motion violates a law of mechanics beyond this. Certificates, unless residuals explain more.
`BADLY_SCALED` [relative to the scale of the term], 1e-3
    The same for the status of a solution, and for errors of simulation steps between their stages.
`SIMULATED` [relative to the motion], 1e-3
    Error of a simulation by finite elements. Option `error_tolerance`.
`STATED` [relative, and absolute], 1e-6
    Consistency of what a solution lists (objective, bounds, states at nodes) with its own numbers. Certificates.
`GIVEN` [relative, and absolute], 1e-9
    Agreement of a solution with the OCP (x0, parameters, horizon). Certificates.
`FAR` [size of the start], 1e6
    A point that is larger and still descends is no solution: the objective has no lower bound.
`NOT_ZERO` [none], 1e-300
    Least divisor: no division by zero where nothing moves.
"""

from __future__ import annotations

TOUCHING = 1e-9
TOUCHING_SOLVED = 1e-6
RESTING = 1e-9
RESTING_SOLVED = 1e-8
IMPACT = 1e-6
REST_VELOCITY = 1e-3
STRIKE = 2e-2
SWEPT = 1e-6
CROSSED = 1e-11
PULL = 1e-9
STEP_COMPLEMENTARITY = 1e-10
STEP_INFEASIBILITY = 1e-9
ADMISSIBLE = 1e-9
ENERGY = 1e-9
ENERGY_SOLVED = 1e-6
BROKEN = 1e-5
BADLY_SCALED = 1e-3
SIMULATED = 1e-3
STATED = 1e-6
GIVEN = 1e-9
FAR = 1e6
NOT_ZERO = 1e-300
