"""Certificates of solutions: their control is simulated independently by the event-driven method and compared."""
