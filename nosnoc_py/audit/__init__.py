"""One judgement of a motion, on numbers: solvers, simulators and certificates report the same violation alike."""
