"""Mathematical programs with complementarity constraints (MPCC) and their solvers, independent of mechanics."""
