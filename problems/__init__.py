"""Builders that return optimal control problems and experiments; each runs as `python -m problems.NAME`."""
