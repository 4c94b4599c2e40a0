"""Tasks of whole robots by the plain call: a start, a goal, limits and a cost; no posture in between, no sequence."""
