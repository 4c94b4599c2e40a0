"""Reformulations: from a system to the one dynamic complementarity system (DCS)."""
