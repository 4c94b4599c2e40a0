"""Attempts at a problem: the loop over them, the rank of their results, and the work that they cost."""
