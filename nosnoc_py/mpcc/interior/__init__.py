"""An interior-point method for smooth programs that are solved again and again: same pattern, other numbers."""

from nosnoc_py.mpcc.interior.method import OPTIONS, InteriorPoint

__all__ = ["OPTIONS", "InteriorPoint"]
