"""The Lie group variational collision integrator: rigid bodies that tumble and bounce, on SE(3)."""
