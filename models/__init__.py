"""Builders that return systems."""
