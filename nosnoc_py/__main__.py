"""`python -m nosnoc_py` is the command line."""

from nosnoc_py.cli import main

main()
