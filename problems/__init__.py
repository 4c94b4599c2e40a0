"""Builders that return optimal control problems and experiments; each runs as `python -m problems.NAME`.

bouncing_ball
    A ball falls on the ground and bounces: simulation, errors against the closed form.
two_balls_order
    Two balls connected by a spring: integration orders of FESD-J, and the loss of them without switch detection
    (FESD-J, Section 5.1, Figs. 5 and 6).
disc_manipulation
    One disc pushes another around an obstacle: optimal control with inelastic impacts (FESD-J, Section 5.2, Figs. 7
    and 8).
three_boxes
    One box pushes two others to their places: optimal control with friction, elastic and inelastic impacts (FESD-J,
    Section 5.3, Figs. 9 and 10).
friction_cases
    Friction against some fifty closed forms, over cones and impulse forms: errors, failures, times.
falling_rod
    A rod falls on the ground with friction: impacts of its ends, slip and stick.
referee
    The event-driven simulation against closed forms and against FESD-J, and what it makes of the solutions of other
    problems, true and spoiled ones.
nosbench
    The MPCC solvers on a folder with problems of the NOSBENCH collection.
random_mpccs
    The MPCC solvers on random programs, every claim against enumeration of all branches.

Every one takes `[--json] [--quick] [--set key=value ...] [--figures DIR]`; `--help` lists the keys.
"""
