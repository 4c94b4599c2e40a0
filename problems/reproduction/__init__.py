"""What the five papers show, as data, and how it is judged: see `problems.reproduce`."""
