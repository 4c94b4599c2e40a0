"""Robots from files: trees of rigid bodies, their mass matrix and bias by recursion, and contact systems of them."""
