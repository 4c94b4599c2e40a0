"""Simulation of event-selected systems by Runge-Kutta steps that end on guards."""
