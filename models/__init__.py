"""Example systems. Each module has a function `build` that returns a system."""
