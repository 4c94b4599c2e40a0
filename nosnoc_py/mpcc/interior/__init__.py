"""Interior-point method for smooth programs that are solved many times with the same pattern and other numbers."""

from nosnoc_py.mpcc.interior.method import OPTIONS, InteriorPoint

__all__ = ["OPTIONS", "InteriorPoint"]
