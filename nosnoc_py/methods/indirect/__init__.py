"""Indirect methods: first optimise, then discretise, by the hybrid minimum principle (HMP)."""
