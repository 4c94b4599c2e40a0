"""Scenes of `problems.benchmarks.simulation_accuracy`, and the programs that simulate them."""
