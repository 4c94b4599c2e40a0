"""Certificates: the control of a solution simulated again by the event-driven referee, and what comes of it."""
