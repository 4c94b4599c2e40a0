"""Mode sequences: written down, read off a motion, and the smooth multi-phase program that belongs to one."""
