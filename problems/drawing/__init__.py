"""Figures of the problems, after those of the papers."""
