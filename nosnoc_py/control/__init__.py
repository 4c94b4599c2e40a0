"""Control and estimation in closed loop: tracking, model predictive control, moving horizon estimation, fits."""
