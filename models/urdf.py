"""Functions that write URDF text (links, joints and shapes) for the robots of this folder.

Lengths in m, masses in kg, moments of inertia in kg m^2, efforts in N or N m.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Numbers = Sequence[float]


def robot(name: str, parts: Iterable[str]) -> str:
    """Return the URDF text of a robot."""
    return f'<robot name="{name}">{"".join(parts)}</robot>'


def link(
    name: str, mass: float = 0.0, centre: Numbers = (0, 0, 0), moments: Numbers = (0, 0, 0), shapes: str = ""
) -> str:
    """Return a link with its centre of mass and moments of inertia about it; without a mass it is a frame."""
    if not mass:
        return f'<link name="{name}">{shapes}</link>'
    xx, yy, zz = moments
    turning = f'<inertia ixx="{xx:g}" ixy="0" ixz="0" iyy="{yy:g}" iyz="0" izz="{zz:g}"/>'
    inertial = f'<inertial><origin xyz="{_row(centre)}"/><mass value="{mass:g}"/>{turning}</inertial>'
    return f'<link name="{name}">{inertial}{shapes}</link>'


def rod(name: str, mass: float, length: float, width: float, shapes: str = "") -> str:
    """Return a link that hangs down from its joint: a bar of square section."""
    across, along = mass * (length**2 + width**2) / 12, mass * width**2 / 6
    seen = shape(f'<box size="{_row((width, width, length))}"/>', (0, 0, -length / 2))
    return link(name, mass, (0, 0, -length / 2), (across, across, along), seen + shapes)


def block(name: str, mass: float, size: Numbers, centre: Numbers = (0, 0, 0), *, touches: bool = False) -> str:
    """Return a link that is a box of these sides."""
    a, b, c = size
    moments = [mass * (s**2 + t**2) / 12 for s, t in ((b, c), (a, c), (a, b))]
    what = f'<box size="{_row(size)}"/>'
    return link(
        name, mass, centre, moments, shape(what, centre) + (shape(what, centre, "collision") if touches else "")
    )


def ball(radius: float) -> str:
    """Return the visual and collision shape of a foot or a fingertip."""
    what = f'<sphere radius="{radius:g}"/>'
    return shape(what) + shape(what, tag="collision")


def shape(what: str, place: Numbers = (0, 0, 0), tag: str = "visual") -> str:
    """Return a shape on a link."""
    return f'<{tag}><origin xyz="{_row(place)}"/><geometry>{what}</geometry></{tag}>'


def joint(
    name: str,
    parent: str,
    child: str,
    place: Numbers = (0, 0, 0),
    axis: str = "",
    *,
    kind: str = "revolute",
    ends: tuple[float, float] = (-2.6, 2.6),
    effort: float = 40.0,
    velocity: float = 20.0,
    damping: float = 0.0,
    friction: float = 0.0,
) -> str:
    """Return a joint about or along an axis, or, without an axis, a fixed one."""
    links = f'<parent link="{parent}"/><child link="{child}"/><origin xyz="{_row(place)}"/>'
    if not axis:
        return f'<joint name="{name}" type="fixed">{links}</joint>'
    limit = f'<limit lower="{ends[0]:g}" upper="{ends[1]:g}" effort="{effort:g}" velocity="{velocity:g}"/>'
    rubs = f'<dynamics damping="{damping:g}" friction="{friction:g}"/>'
    return f'<joint name="{name}" type="{kind}">{links}<axis xyz="{axis}"/>{limit}{rubs}</joint>'


def _row(values: Numbers) -> str:
    return " ".join(f"{value:g}" for value in values)
