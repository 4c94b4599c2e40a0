"""Direct shooting: controls of equal intervals, simulated by explicit steps, by phases, or over smoothed contacts."""
