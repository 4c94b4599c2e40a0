"""Closed forms, oracles and simulations with known results; some examples and benchmarks compare with them, too."""
