"""Robots as text: random trees, and small ones that are known."""

from __future__ import annotations

import numpy as np

INERTIA = '<inertia ixx="{0:.17g}" ixy="{1:.17g}" ixz="{2:.17g}" iyy="{3:.17g}" iyz="{4:.17g}" izz="{5:.17g}"/>'


def _row(values: np.ndarray) -> str:
    return " ".join(f"{value:.17g}" for value in values)


def link(name: str, rng: np.random.Generator) -> str:
    """A link whose inertial frame is shifted and turned."""
    a = rng.normal(size=(3, 3))
    points = a @ a.T
    about = 0.05 * (np.trace(points) * np.eye(3) - points) + 0.01 * np.eye(3)
    rows = INERTIA.format(*about[np.triu_indices(3)])
    place = f'<origin xyz="{_row(0.2 * rng.normal(size=3))}" rpy="{_row(rng.normal(size=3))}"/>'
    return f'<link name="{name}"><inertial>{place}<mass value="{rng.uniform(0.2, 3):.17g}"/>{rows}</inertial></link>'


def random_tree(rng: np.random.Generator, joints: int, *, fixed: bool) -> str:
    """Branches, slides, turns, links that are fixed to others with mass, axes that are not of length one."""
    first = "wall" if fixed else "l0"
    text = '<robot name="r"><link name="wall"/>' if fixed else f'<robot name="r">{link("l0", rng)}'
    names = [first]
    for k in range(1, joints + 1):
        name, parent = f"l{k}", names[int(rng.integers(len(names)))]
        kind = "revolute" if k == 1 else str(rng.choice(["revolute", "prismatic", "continuous", "fixed"]))
        limit = '<limit lower="-3" upper="3" effort="10" velocity="5"/>' if kind in ("revolute", "prismatic") else ""
        place = f'<origin xyz="{_row(0.3 * rng.normal(size=3))}" rpy="{_row(rng.normal(size=3))}"/>'
        ends = f'<parent link="{parent}"/><child link="{name}"/>'
        axis = f'<axis xyz="{_row(2 * rng.normal(size=3))}"/>'
        text += link(name, rng) + f'<joint name="j{k}" type="{kind}">{ends}{place}{axis}{limit}</joint>'
        names.append(name)
    return text + "</robot>"


HOPPER = """
<robot name="hopper">
  <material name="grey"><color rgba="0.5 0.5 0.5 1"/></material>
  <link name="body"><inertial><mass value="3"/><inertia ixx="0.05" iyy="0.05" izz="0.05"/></inertial></link>
  <link name="thigh"><inertial><origin xyz="0 0 -0.15"/><mass value="0.5"/>
    <inertia ixx="0.004" iyy="0.004" izz="0.0005"/></inertial></link>
  <link name="shank"><inertial><origin xyz="0 0 -0.15"/><mass value="0.3"/>
    <inertia ixx="0.003" iyy="0.003" izz="0.0003"/></inertial></link>
  <link name="foot"/>
  <joint name="hip" type="revolute"><parent link="body"/><child link="thigh"/><axis xyz="0 1 0"/>
    <limit lower="-1.5" upper="1.5" effort="40" velocity="20"/><dynamics damping="0.1"/></joint>
  <joint name="knee" type="revolute"><parent link="thigh"/><child link="shank"/><origin xyz="0 0 -0.3"/>
    <axis xyz="0 1 0"/><limit lower="0.05" upper="2.5" effort="40" velocity="20"/></joint>
  <joint name="ankle" type="fixed"><parent link="shank"/><child link="foot"/><origin xyz="0 0 -0.3"/></joint>
</robot>
"""


def mjcf_tree(rng: np.random.Generator) -> str:
    """Bodies with none to three joints each, turned and shifted, with inertias of their own; the root may be free."""
    count = int(rng.integers(1, 7))
    children: dict[int, list[int]] = {0: []}
    for k in range(1, count + 1):
        children[int(rng.integers(0, k))].append(k)
        children[k] = []
    free = bool(rng.integers(2))

    def body(k: int, top: bool) -> str:
        joints = f'<freejoint name="free{k}"/>' if top and free else ""
        if not joints:
            for j in range(int(rng.integers(1 if top else 0, 4))):
                kind = str(rng.choice(["hinge", "slide"]))
                at = f'axis="{_row(rng.normal(size=3))}" pos="{_row(0.1 * rng.normal(size=3))}"'
                joints += f'<joint name="j{k}_{j}" type="{kind}" {at} ref="{rng.normal():.6g}" armature="0.02"/>'
        a = rng.normal(size=(3, 3))
        about = 0.05 * (np.trace(a @ a.T) * np.eye(3) - a @ a.T) + 0.01 * np.eye(3)
        full = _row(about[[0, 1, 2, 0, 0, 1], [0, 1, 2, 1, 2, 2]])
        inertial = (
            f'<inertial pos="{_row(0.2 * rng.normal(size=3))}" mass="{rng.uniform(0.2, 3):.6g}" fullinertia="{full}"/>'
        )
        inside = "".join(body(child, False) for child in children[k])
        place = f'pos="{_row(0.3 * rng.normal(size=3))}" euler="{_row(rng.normal(size=3))}"'
        return f'<body name="b{k}" {place}>{joints}{inertial}{inside}</body>'

    tops = "".join(body(k, True) for k in children[0])
    return f'<mujoco><compiler angle="radian"/><worldbody>{tops}</worldbody></mujoco>'
