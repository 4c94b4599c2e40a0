"""Lie group variational collision integrator: rigid bodies on SE(3) with impacts on planes."""
