"""Motions in numbers, whatever made them: the first event of a step, kinds of events, the loop from event to event."""
