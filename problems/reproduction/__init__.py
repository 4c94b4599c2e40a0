"""Numbers of five papers as data, and the rules that compare them: see `problems.reproduce`."""
