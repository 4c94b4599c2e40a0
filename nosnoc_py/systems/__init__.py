"""What the user writes: continuous-time nonsmooth systems."""
