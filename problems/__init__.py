"""Optimal control problems and experiments; each runs as `python -m problems.NAME` from the root of the repository.

The modules of this folder are examples, to be copied. `benchmarks` measures the library (`problems.benchmarks.NAME`),
`reproduction` has the numbers of five papers as data, and `problems.reproduce` repeats their experiments.

Every one takes `[--json] [--quick] [--set key=value ...] [--figures DIR]`; `--help` lists the keys. Closed forms and
reference solutions are in `tests/references`. `tests` can be imported from the root of the repository only, so these
programs must be started there.
"""
