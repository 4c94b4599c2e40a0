"""Mode sequences of motions, and the smooth multi-phase program of a sequence.

With the sequence of modes fixed, an optimal control problem with contacts or switches has no complementarities: every
phase is a smooth DAE of its own, with a free length, and boundaries carry guards and impacts (Betts 2010, Section 4.4).
`read_sequence` finds the sequence of a motion, `PhaseNLP` writes the program, `Refinement` solves and refines it.
"""
