"""The referee: event-driven simulation of contacts and Filippov systems, which shares no code with finite elements."""
