"""Simulation of event-selected systems: steps of a Runge-Kutta scheme, and every crossing of a guard located."""
