"""Lines of HiGHS stay out of the output of the process; everything else that is written meanwhile comes through."""

from __future__ import annotations

import ctypes
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from nosnoc_py.mpcc.quiet import suppress_highs_output

LINE = b"HighsMipSolverData::transformNewIntegerFeasibleSolution tmpSolver.run();\n"


@pytest.mark.skipif(sys.platform == "win32", reason="the C library has another name")
def test_lines_of_highs_are_kept_back_and_others_are_not(capfd: Any) -> None:
    libc = ctypes.CDLL(None)
    with suppress_highs_output():
        libc.printf(LINE)
        os.write(1, b"mine\n")
        libc.printf(b"of C\n")
        print("of Python", flush=True)
    print("after", flush=True)
    assert sorted(capfd.readouterr().out.split("\n")) == ["", "after", "mine", "of C", "of Python"]
    libc.printf(LINE)  # negative control
    libc.fflush(None)
    assert "Highs" in capfd.readouterr().out


def test_threads_may_be_inside_together_and_an_error_restores_the_output(capfd: Any) -> None:
    def work(k: int) -> None:
        with suppress_highs_output():
            os.write(1, b"line %d\n" % k)
            os.write(1, LINE)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(20)))
    with pytest.raises(ValueError, match="inside"), suppress_highs_output():
        raise ValueError("inside")
    os.write(1, b"end\n")
    found = capfd.readouterr().out.splitlines()
    assert sorted(found) == sorted(["end", *(f"line {k}" for k in range(20))])
