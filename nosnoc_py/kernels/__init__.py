"""Evaluation: functions with their derivatives, built once and evaluated at many places.

A `Kernel` is one vector function of few arguments. Everything that differs between the places where it is needed (the
element, the stage, the mesh, the sequence) is a linear map in front of it, so that its derivatives depend on the
expressions only. A `KernelCache` belongs to a problem and keeps the kernels that its programs share.
"""

from nosnoc_py.kernels.cache import KernelCache
from nosnoc_py.kernels.kernel import Kernel, KernelEvaluator

__all__ = ["KernelEvaluator", "Kernel", "KernelCache"]
