"""Optimal control problems and experiments; each runs as `python -m problems.NAME` from the root of the repository.

The modules of this folder are examples, to be copied. `benchmarks` measures the library (`problems.benchmarks.NAME`),
`reproduction` holds what five papers say as data, and `problems.reproduce` runs their experiments again.

Every one takes `[--json] [--quick] [--set key=value ...] [--figures DIR]`; `--help` lists the keys. Closed forms and
oracles are in `tests/references`; as `tests` is found from the root of the repository only, so are these programs.
"""
