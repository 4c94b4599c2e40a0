"""Tests, and what they compare with."""
