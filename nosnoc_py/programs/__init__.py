"""Nonlinear programs of blocks: kernels at linear maps of the unknowns, evaluated as numbers."""

from nosnoc_py.programs.block import KernelBlock, LinearMap
from nosnoc_py.programs.for_casadi import ForCasadi
from nosnoc_py.programs.program import BlockProgram

__all__ = ["KernelBlock", "BlockProgram", "ForCasadi", "LinearMap"]
