"""The table of tolerances that several rooms share: one number for one question, with its unit and who asks it.

A length or a speed of a contact is its gap or gap rate divided by the norm of the gap's gradient, so that the unit of
the gap does not matter. Tolerances of one algorithm (of a line search, of a root finder) stay beside it.

Lengths and speeds are shares of those at work in the problem (`systems.scales`), which are fixed before the run; in
programs, which have no initial state of their own, they are in the user's units.

`TOUCHING` [length, or of a switching function], 1e-9
    Is a contact closed, a switching function zero? Event-driven simulation, Newton's method on finite elements.
`TOUCHING_SOLVED` [length], 1e-6
    Was it closed in the solution of a program, which leaves residuals? Impacts of solutions.
`RESTING` [speed], 1e-9
    Is a rate zero? Event-driven simulation, Newton's method on finite elements.
`RESTING_SOLVED` [speed, and length], 1e-8
    Does a contact rest where a step begins that an MPCC solves?
`IMPACT` [speed], 1e-6
    Is a jump of a velocity an impact? Events of all methods, the energy of impacts.
`REST_VELOCITY` [speed], 1e-3
    Does an approach bounce in a simulation? The law of impacts; option `rest_velocity`.
`STRIKE` [speed], 2e-2
    Is a contact that closes an impact of its own to a time-stepping run, whose contacts never quite rest?
`SWEPT` [speed], 1e-6
    Do sweeps over many contacts end? Time-stepping; option `tolerance`.
`CROSSED` [length, speed, or of a switching function], 1e-11
    Has a guard changed its sign, or is that rounding? Event-driven simulation.
`PULL` [the largest force or multiplier], 1e-9
    Does a contact pull, a multiplier leave its range? Event-driven simulation.
`STEP_COMPLEMENTARITY`, `STEP_INFEASIBILITY` [units of the user or of the motion], 1e-10 and 1e-9
    Does a step of Newton's method solve the unrelaxed equations of finite elements?
`ADMISSIBLE` [share of the rates at work], 1e-9
    Does a solution of a contact problem hold? Contact problems.
`ENERGY` [share of the energy exchanged], 1e-9
    Does an impact raise the kinetic energy? The law of impacts in simulators.
`ENERGY_SOLVED` [share of the energy exchanged], 1e-6
    The same in the solution of a program, which leaves residuals.
`BROKEN` [share of what is at work], 1e-5
    Does a motion break a law of mechanics? Certificates, where residuals explain less.
`BADLY_SCALED` [share of what is at work], 1e-3
    The same for the status of a solution, and for what a simulator's steps miss between their stages.
`SIMULATED` [share of the motion], 1e-3
    Is a simulation by finite elements near the motion? Option `error_tolerance`.
`STATED` [relative, and absolute], 1e-6
    Is what a solution lists (objective, bounds, states at nodes) what its own numbers give? Certificates.
`GIVEN` [relative, and absolute], 1e-9
    Is a solution one of this OCP (x0, parameters, horizon)? Certificates.
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
