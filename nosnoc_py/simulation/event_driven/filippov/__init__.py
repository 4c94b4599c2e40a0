"""Event-driven simulation of Filippov systems: crossing, sliding and leaving, constraints that become active."""
