"""The referee: event-driven simulation of contact mechanics, which shares no code with the finite elements."""
