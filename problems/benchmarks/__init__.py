"""Benchmarks of accuracy, robustness and time: `python -m problems.benchmarks.NAME`."""
