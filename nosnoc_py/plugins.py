"""Members of families from other packages, found by entry points.

A package names its members in its own `pyproject.toml`:

    [project.entry-points."nosnoc_py.relaxations"]
    natural_residual = "my_package:NATURAL_RESIDUAL"

Groups: `nosnoc_py.relaxations`, `nosnoc_py.starts`; and for names in configurations of sweeps `nosnoc_py.methods` and
`nosnoc_py.solvers`. Shapes, methods and solvers in Python are objects that one passes: they need no entry.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any, TypeVar

T = TypeVar("T")


class Family(dict[str, T]):
    """Members of a family by name; those of other packages are looked for when a name is not known.

    Parameters
    ----------
    group : str
        Of entry points, without "nosnoc_py.".
    members : dict
        Those of the library.

    Examples
    --------
    >>> family = Family("numbers", {"one": 1})
    >>> "one" in family, "two" in family
    (True, False)
    """

    def __init__(self, group: str, members: dict[str, T]) -> None:
        super().__init__(members)
        self.group, self.own = f"nosnoc_py.{group}", tuple(members)

    def __contains__(self, name: object) -> bool:
        if not super().__contains__(name):
            # Sorted, so that the order does not depend on the one of the installation; the library's own come first.
            for point in sorted(entry_points(group=self.group), key=lambda point: point.name):
                if not super().__contains__(point.name):
                    self[point.name] = point.load()
        return super().__contains__(name)

    def __missing__(self, name: str) -> Any:
        if name in self:
            return self[name]
        raise KeyError(name)
