"""What roboticists ask for, as constraints and costs of optimal control problems."""

from nosnoc_py.tasks import goals as goals
