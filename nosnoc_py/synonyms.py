"""Names that other tools use for the arguments and options of this library, as data for error messages.

A user who comes from NOSNOC, CasADi, acados, SciPy or a textbook writes `N_stages`, `lbx`, `tf` or `rtol`. The message
about an unknown argument proposes the names of this table that the called function has. Nothing else reads it: no
synonym is accepted as an argument.
"""

from __future__ import annotations

# Names of others, and those of this library that may be meant, the likeliest first.
TABLE = {
    # --- grid and scheme ---
    "N": "control_stages steps",
    "N_stages n_stages N_control N_horizon": "control_stages",
    "stages": "control_stages rk_stages",
    "N_FE N_finite_elements n_fe elements": "finite_elements",
    "n_s num_stages": "rk_stages",
    "irk_scheme rk_scheme": "scheme",
    "cross_comp_mode": "cross_complementarity",
    "mpcc_mode": "relaxation",
    "h time_step": "step period",
    "dt": "step period steps",
    "Ts": "period step",
    "N_sim n_steps num_steps": "steps",
    # --- times ---
    "T tf t_f t_end t_final terminal_time": "horizon duration",
    "T_sim tspan t_span horizon": "duration",
    "duration": "horizon",
    "t_eval": "times",
    "timeout max_time max_cpu_time": "time_limit",
    # --- tolerances and limits of iterations ---
    "tol eps": "tolerance method solver",
    "rtol": "tolerance rtol method solver",
    "atol": "tolerance atol method solver",
    "tolerance options opts": "method solver",
    "maxiter max_iter": "max_iterations",
    # --- states, controls, parameters ---
    "x_init initial_state y0": "x0",
    "state": "x0 x",
    "x": "x0 q",
    "x_end xf x_final": "terminal_state",
    "control controls input inputs": "u",
    "params parameters": "p p_default",
    "w0 initial_guess warm_start": "guess",
    # --- optimal control problems ---
    "cost": "stage_cost terminal_cost expression",
    "L f_q running_cost lagrange_cost": "stage_cost",
    "f_q_T final_cost mayer_cost": "terminal_cost",
    "lbx lbu": "bounds lower",
    "ubx ubu": "bounds upper",
    "x_bounds u_bounds": "bounds",
    "lb": "lower bounds",
    "ub": "upper bounds",
    "lbg": "path_constraints lower",
    "ubg": "path_constraints upper",
    "g": "path_constraints expression gravity",
    "g_path constraints": "path_constraints",
    "g_terminal final_constraints": "terminal_constraints",
    "min": "lower",
    "max": "upper",
    # --- mechanics ---
    "f dynamics": "flow force",
    "f_x ode rhs": "flow",
    "f_v forces": "force",
    "M inertia_matrix": "mass_matrix",
    "mass": "mass_matrix masses",
    "f_c distance phi": "gap",
    "J_normal": "normal",
    "J_tangent tangents": "tangent",
    "mu mu_f friction_coefficient": "friction",
    "e cor eps_r bounciness": "restitution",
    "k": "stiffness",
    "d": "damping",
    # --- switched systems ---
    "c switching_functions": "functions",
    "S": "signs",
    "F": "flows flow",
    "regions": "modes flows",
    "g_ind": "indicators",
    # --- geometry ---
    "size half_lengths": "lengths",
    "r": "radius",
    "points": "vertices",
}
SYNONYMS = {name: tuple(meant.split()) for names, meant in TABLE.items() for name in names.split()}
