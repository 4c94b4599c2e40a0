"""In the loop: feedback about plans, model predictive control, closed loops, and estimation from data."""
