"""An interior-point method for smooth programs that are solved again and again: same pattern, other numbers."""
