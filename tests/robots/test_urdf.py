"""Robots from URDF: mass matrix and bias by energies and by MuJoCo, poses, systems, and files that are wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.robots.tree import FLOATING
from nosnoc_py.testing import check_robot
from tests.robots.files import HOPPER, link, random_tree

BASES = ("fixed", "planar", "floating")


def of_energies(robot: ns.Robot) -> tuple[ca.SX, ca.SX]:
    """M and h of a base without quaternions, by Lagrange: kinetic energy from the Jacobians of all poses."""
    kinetic, potential = ca.SX(0), ca.SX(0)
    for k, body in enumerate(robot.tree.bodies):
        rotation, origin = robot._recursion.world[k]
        mass = body.inertia.mass
        centre = body.inertia.moment / mass if mass else np.zeros(3)
        about = body.inertia.about + mass * ns_skew(centre) @ ns_skew(centre)
        place = origin + rotation @ ca.DM(centre)
        velocity = ca.jtimes(place, robot.q, robot.v)
        spin = rotation.T @ ca.reshape(ca.jtimes(ca.vec(rotation), robot.q, robot.v), 3, 3)
        w = ca.vertcat(spin[2, 1], spin[0, 2], spin[1, 0])
        kinetic += 0.5 * mass * ca.sumsqr(velocity) + 0.5 * ca.bilin(ca.DM(about), w, w)
        potential -= mass * ca.dot(ca.DM(list(robot.gravity)), place)
    momentum = ca.gradient(kinetic, robot.v)
    bias = ca.jtimes(momentum, robot.q, robot.v) - ca.gradient(kinetic - potential, robot.q)
    return ca.jacobian(momentum, robot.v), bias


def ns_skew(a: np.ndarray) -> np.ndarray:
    return np.array([[0, -a[2], a[1]], [a[2], 0, -a[0]], [-a[1], a[0], 0]])


@pytest.mark.quick
@pytest.mark.parametrize("seed", range(12))
def test_mass_matrix_and_bias_by_energies(seed: int) -> None:
    rng = np.random.default_rng(seed)
    base = BASES[seed % 2]
    robot = ns.Robot.from_urdf(random_tree(rng, int(rng.integers(1, 6)), fixed=base == "fixed"), base)
    found = ca.Function("found", [robot.q, robot.v], [robot.mass_matrix, robot.bias])
    expected = ca.Function("expected", [robot.q, robot.v], [*of_energies(robot)])
    q, v = rng.normal(size=robot.q.numel()), rng.normal(size=robot.v.numel())
    for ours, theirs in zip(found(q, v), expected(q, v), strict=True):
        size = max(1.0, float(ca.mmax(ca.fabs(theirs))))
        np.testing.assert_allclose(np.array(ours), np.array(theirs), rtol=0, atol=1e-12 * size)


@pytest.mark.parametrize("base", BASES)
def test_random_trees_are_those_of_mujoco(base: str) -> None:
    """Also poses, Jacobians and a floating base; a planar one is three joints more in the text."""
    mujoco = pytest.importorskip("mujoco")
    rng = np.random.default_rng(BASES.index(base))
    for _ in range(25):
        text = random_tree(rng, int(rng.integers(1, 9)), fixed=base == "fixed")
        robot = ns.Robot.from_urdf(text, base)
        model = _of_mujoco(mujoco, text, base)
        data = mujoco.MjData(model)
        link_name = str(rng.choice([name for name in robot.tree.frames if name != "wall"]))
        point = rng.normal(size=3)
        rotation, position = robot.pose(link_name, point)
        functions = ca.Function(
            "robot", [robot.q, robot.v],
            [robot.mass_matrix, robot.bias, position, rotation, robot.jacobian(position)],
        )  # fmt: skip
        q, v = rng.normal(size=robot.q.numel()), rng.normal(size=robot.v.numel())
        if base == "floating":
            q[3:7] /= np.linalg.norm(q[3:7])
        rows, i, j = [], 0, 0
        for body in robot.tree.bodies:
            joint = model.joint(body.joint)
            at, dof = joint.qposadr[0], joint.dofadr[0]
            data.qpos[at : at + body.n_q], data.qvel[dof : dof + body.n_v] = q[i : i + body.n_q], v[j : j + body.n_v]
            rows += range(dof, dof + body.n_v)
            i, j = i + body.n_q, j + body.n_v
        mujoco.mj_forward(model, data)
        matrix, jacobian = np.zeros((model.nv, model.nv)), np.zeros((3, model.nv))
        mujoco.mj_fullM(*((model, data, matrix) if hasattr(data, "M") else (model, matrix, data.qM)))
        body_id = model.body(link_name).id
        place = data.xpos[body_id] + data.xmat[body_id].reshape(3, 3) @ point
        mujoco.mj_jac(model, data, jacobian, None, place, body_id)
        theirs = (matrix[np.ix_(rows, rows)], data.qfrc_bias[rows], place, data.xmat[body_id].reshape(3, 3))
        for ours, expected in zip(functions(q, v), (*theirs, jacobian[:, rows]), strict=True):
            size = max(1.0, np.abs(expected).max())
            np.testing.assert_allclose(np.array(ours).reshape(expected.shape), expected, rtol=0, atol=1e-10 * size)


def _of_mujoco(mujoco: Any, text: str, base: str) -> Any:
    """The same text; a base in the plane as three joints of its own."""
    if base == "planar":
        limit = '<limit lower="-9" upper="9" effort="0" velocity="0"/>'
        rows = " ".join(
            f'{name}="{1e-13 * (name[1] == name[2])}"' for name in ("ixx", "ixy", "ixz", "iyy", "iyz", "izz")
        )
        tiny = f'<inertial><mass value="1e-13"/><inertia {rows}/></inertial>'
        links = "".join(f'<link name="{name}">{tiny}</link>' for name in ("base_1", "base_2"))
        chain = ("wall", "base_1", "base_2", "l0")
        axes = {"base_x": ("prismatic", "1 0 0"), "base_z": ("prismatic", "0 0 1"), "base_pitch": ("revolute", "0 1 0")}
        joints = "".join(
            f'<joint name="{name}" type="{kind}"><parent link="{chain[k]}"/><child link="{chain[k + 1]}"/>'
            f'<axis xyz="{axis}"/>{limit}</joint>'
            for k, (name, (kind, axis)) in enumerate(axes.items())
        )
        text = text.replace('<robot name="r">', f'<robot name="r"><link name="wall"/>{links}{joints}')
    options = 'fusestatic="false" balanceinertia="false" boundmass="0" boundinertia="0"'
    opening = f'<robot name="r"><mujoco><compiler {options}/></mujoco>'
    spec = mujoco.MjSpec.from_string(text.replace('<robot name="r">', opening))
    if base == "floating":
        spec.worldbody.first_body().add_freejoint(name="base")
    return spec.compile()


@pytest.mark.quick
def test_only_the_first_joint_of_a_base_is_at_the_world() -> None:
    """The world is -1, as in `JointedBody.parent`."""
    trees = {base: ns.Robot.from_urdf(HOPPER, base=base).tree.bodies for base in BASES}  # type: ignore[arg-type]
    assert {base: bodies[0].parent for base, bodies in trees.items()} == dict.fromkeys(BASES, -1)
    assert [body.parent for body in trees["planar"][:3]] == [-1, 0, 1]


def test_a_floating_base_keeps_its_quaternion_and_turns_as_its_velocity_says() -> None:
    rng = np.random.default_rng(7)
    robot = ns.Robot.from_urdf(random_tree(rng, 2, fixed=False), "floating")
    assert robot.tree.bodies[0].kind == FLOATING
    q, v = rng.normal(size=robot.q.numel()), rng.normal(size=robot.v.numel())
    rate = np.array(ca.Function("rate", [robot.q, robot.v], [robot.N @ robot.v])(q, v))[:, 0]
    assert q[3:7] @ rate[3:7] == pytest.approx(0.0, abs=1e-14)  # the norm does not change
    rotation = robot.pose("l0")[0]
    spin = rotation.T @ ca.reshape(ca.jtimes(ca.vec(rotation), robot.q, robot.N @ robot.v), 3, 3)
    found = np.array(ca.Function("spin", [robot.q, robot.v], [spin])(q, v))
    np.testing.assert_allclose(found, ns_skew(v[3:6]), atol=1e-13)
    system = robot.system(actuated=[])
    assert system.names["q"][3:7] == ("base_qw", "base_qx", "base_qy", "base_qz")
    assert system.at_v == slice(9, 17)


@pytest.mark.quick
def test_the_graph_of_a_floating_quadruped_is_small() -> None:
    """12 joints on a floating base: the derivatives of h by (q, v)."""
    rng = np.random.default_rng(0)
    text = '<robot name="r">' + link("l0", rng)
    for leg in range(4):
        for k, (parent, axis) in enumerate((("l0", "1 0 0"), (f"leg{leg}0", "0 1 0"), (f"leg{leg}1", "0 1 0"))):
            text += link(f"leg{leg}{k}", rng) + (
                f'<joint name="joint{leg}{k}" type="continuous"><parent link="{parent}"/><child link="leg{leg}{k}"/>'
                f'<origin xyz="0.2 {0.1 * (leg - 1.5)} -0.2"/><axis xyz="{axis}"/></joint>'
            )
    robot = ns.Robot.from_urdf(text + "</robot>", "floating")
    slopes = ca.jacobian(robot.bias, ca.vertcat(robot.q, robot.v))
    assert ca.Function("slopes", [robot.q, robot.v], [slopes]).n_instructions() < 33_000


@pytest.mark.quick
def test_a_hopper_falls_on_its_foot() -> None:
    robot = ns.Robot.from_urdf(HOPPER, "planar")
    assert robot.joint_names == ("base_x", "base_z", "base_pitch", "hip", "knee")
    assert robot.limits == {"hip": (-1.5, 1.5), "knee": (0.05, 2.5)}
    assert robot.bounds(["hip"])["hip_effort"] == (-40, 40)
    assert "material (1)" in repr(robot)
    foot = robot.position("foot")
    ground = ns.Contact("foot", gap=foot[2], tangent=robot.jacobian(foot[0]).T, friction=0.8)
    system = robot.system([ground], actuated=["hip", "knee"])
    assert system.control_names == ("hip_effort", "knee_effort")
    assert [contact.name for contact in system.contacts][1:] == [
        "hip (lower)", "hip (upper)", "knee (lower)", "knee (upper)"
    ]  # fmt: skip
    start = {"base_z": 0.7, "hip": -0.3, "knee": 0.6}
    motion = ns.simulate(system, x0=start, duration=0.6, u=lambda t, x: [-20 * (x[3] + 0.3), -20 * (x[4] - 0.6)])
    assert motion.status.success
    assert ("foot", "impact") in [(event.name, event.kind) for event in motion.events]
    stepped = ns.simulate(system, x0=start, duration=0.3, method=ns.TimeStepping(), steps=3000)
    exact = ns.simulate(system, x0=start, duration=0.3)
    np.testing.assert_allclose(stepped.final_state[:5], exact.final_state[:5], atol=5e-3)
    # Energy: what gravity and nothing else does before the impact.
    height = motion.value(foot[2])
    assert height.min() > -1e-7


@pytest.mark.quick
def test_an_end_stop_and_an_armature() -> None:
    text = (
        '<robot name="r"><link name="wall"/><link name="rod"><inertial><origin xyz="1 0 0"/><mass value="1"/>'
        '<inertia ixx="0" iyy="0" izz="0"/></inertial></link><joint name="pin" type="revolute"><parent link="wall"/>'
        '<child link="rod"/><axis xyz="0 1 0"/><limit lower="-1" upper="0.5" effort="1" velocity="1"/></joint></robot>'
    )
    robot = ns.Robot.from_urdf(text, armature={"pin": 0.5})
    assert float(ca.DM(ca.simplify(robot.mass_matrix))) == pytest.approx(1.5)
    motion = ns.simulate(robot.system(), x0=[0.0, 0.0], duration=2.0)
    assert motion.events[0].name == "pin (upper)"
    assert motion["pin"][-1] == pytest.approx(0.5, abs=1e-9)
    assert ns.Robot.from_urdf(text, gravity=(0, 0, 0)).bias.is_zero()


@pytest.mark.quick
def test_ends_of_joints_that_are_no_contacts_are_limits() -> None:
    robot = ns.Robot.from_urdf(HOPPER, "planar")
    system = robot.system(actuated=["hip"], end_stops=False)
    assert system.limits == robot.limits
    assert not system.contacts
    rows = [system.state_names.index(name) for name in robot.limits]
    start = {"hip": -0.3, "knee": 0.6}
    bounds = np.array(ns.OCP(system, horizon=1.0, x0=start, bounds=robot.bounds(["hip"])).x_bounds)[:, rows]
    np.testing.assert_array_equal(bounds.T, list(robot.limits.values()))
    assert robot.system().limits == {}  # contacts hold there
    assert robot.system(end_stops=False, limits=False).limits == {}


def wrong(part: str, by: str) -> str:
    assert part in HOPPER
    return HOPPER.replace(part, by)


@pytest.mark.quick
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<robot", "is not XML"),
        ("<sdf/>", "expected <robot>, given <sdf>"),
        ("<robot name='r'/>", "there is no link"),
        ("nowhere.urdf", "cannot be read"),
        (
            wrong('<mass value="0.3"/>', '<mass value="-1"/>'),
            "link 'shank': its mass: value has to be nonnegative, given -1",
        ),
        (
            wrong('<axis xyz="0 1 0"/>\n    <limit lower="-1.5"', '<axis xyz="0 0 0"/><limit lower="-1.5"'),
            "axis is zero",
        ),
        (wrong('<child link="foot"/>', '<child link="toe"/>'), "joint 'ankle': its child link 'toe' does not exist"),
        (wrong('<child link="foot"/>', '<child link="thigh"/>'), "'thigh' is already the child of joint 'hip'; loops"),
        (wrong('<parent link="body"/>', '<parent link="shank"/>'), "link 'thigh' is in a loop of joints"),
        (wrong('type="fixed"', 'type="knuckle"'), "joint 'ankle': unknown type 'knuckle'"),
        (wrong('<dynamics damping="0.1"/>', '<mimic joint="toe"/>'), "joint 'hip': mimic: unknown joint 'toe'"),
        (wrong('<dynamics damping="0.1"/>', "<spring/>"), "joint 'hip': <spring> is not known"),
        (wrong('lower="-1.5"', 'lower="2.5"'), "lower limit 2.5 is above the upper 1.5"),
        (wrong('<origin xyz="0 0 -0.3"/>\n    <axis', '<origin xyz="0 0"/><axis'), "xyz: expected three numbers"),
        (wrong('<mass value="0.5"/>', '<mass value="a lot"/>'), "value: expected a number, given 'a lot'"),
        (wrong('link name="foot"', 'link name="shank"'), "two links are named 'shank'"),
        (wrong("<robot name", "<robot><speaker/></robot><robot name"), "is not XML"),
        (wrong("<material", "<speaker/><material"), "<speaker> is not known"),
    ],
)
def test_files_that_are_wrong(text: str, said: str) -> None:
    with pytest.raises(ns.ModelError, match=said):
        ns.Robot.from_urdf(text, "planar")


@pytest.mark.quick
def test_other_mistakes(tmp_path: Path) -> None:
    path = tmp_path / "hopper.urdf"
    path.write_text(HOPPER)
    robot = ns.Robot.from_urdf(path)
    for call, said in (
        (lambda: ns.Robot.from_urdf(path, "rolling"), "base: unknown kind of base 'rolling'"),
        (lambda: ns.Robot.from_urdf(path, armature={"hop": 1.0}), "unknown joint 'hop'. Did you mean 'hip'"),
        (lambda: ns.Robot.from_urdf(path, armature={"hip": -1.0}), "nonnegative"),
        (lambda: robot.pose("toe"), "unknown link 'toe'"),
        (lambda: robot.system(actuated=["hop"]), "unknown joint 'hop'"),
        (lambda: ns.Robot.from_urdf("<robot name='r'><link name='a'/></robot>").system(), "nothing moves"),
    ):
        with pytest.raises(ns.ModelError, match=said):
            call()
    nothing = 'ixx="0" iyy="0" izz="0"'
    massless = wrong('<mass value="0.3"/>', '<mass value="0"/>').replace(
        'ixx="0.003" iyy="0.003" izz="0.0003"', nothing
    )
    with pytest.raises(ns.ModelError, match="joint 'knee' moves no inertia"):
        ns.Robot.from_urdf(massless)
    assert ns.Robot.from_urdf(massless, armature={"knee": 0.1}).v.numel() == 2
    assert ns.Robot.from_urdf(wrong('damping="0.1"', 'friction="0.1"')).system(joint_friction=False).n_u == 2


# --- dialects ---


def test_what_moves_nothing_is_one_warning() -> None:
    text = wrong("<material", "<gazebo/><gazebo/><transmission/><material").replace(
        "</link>", "<self_filter/></link>", 1
    )
    text = text.replace('<dynamics damping="0.1"/>', '<dynamics damping="0.1" mu_coulomb="0"/>')
    with pytest.warns(ns.ModelWarning) as given:
        robot = ns.Robot.from_urdf(text)
    assert len(given) == 1
    said = ("gazebo of Gazebo (2)", "transmission of ROS (1)", "self_filter of ROS (1)", "mu_coulomb of <dynamics> (1)")
    assert all(part in str(given[0].message) for part in said)
    assert set(said) < set(robot.tree.left_out)
    assert given[0].filename == __file__


def test_inertias_that_no_body_has_are_one_warning() -> None:
    """Their mass matrix is positive definite, so that the motion is defined."""
    with pytest.warns(ns.ModelWarning, match="moments of inertia of 'shank'"):
        robot = ns.Robot.from_urdf(wrong('ixx="0.003" iyy="0.003"', 'ixx="0.9" iyy="0.003"'))
    assert robot.v.numel() == 2


def test_all_faults_of_a_file_are_in_one_message() -> None:
    text = wrong('<mass value="0.3"/>', '<mass value="-1"/>').replace('lower="-1.5"', 'lower="2.5"')
    with pytest.raises(ns.ModelError, match="URDF: 2 faults") as raised:
        ns.Robot.from_urdf(text.replace("0 0 -0.15", "0 0 -0.15", 1))
    assert "shank" in str(raised.value)
    assert "hip" in str(raised.value)


def test_friction_and_restitution_of_bullet() -> None:
    contact = '<contact><lateral_friction value="0.7"/><restitution value="0.4"/><stiffness value="9"/></contact>'
    ball = '<collision><geometry><sphere radius="0.1"/></geometry></collision>'
    with pytest.warns(ns.ModelWarning, match="stiffness of Bullet: soft contacts"):
        robot = ns.Robot.from_urdf(wrong('<link name="foot"/>', f'<link name="foot">{contact}{ball}</link>'), "planar")
    (foot,) = robot.contacts()
    assert (foot.friction[0], foot.restitution) == (0.7, 0.4)
    assert robot.contacts(friction=0.2)[0].friction[0] == 0.2


def test_joints_that_mimic_others_follow_them() -> None:
    """A chain: the third of three follows the second, which follows the first; the motion is that of one coordinate."""
    rod = (
        '<link name="{0}"><inertial><origin xyz="0 0 -0.5"/><mass value="1"/><inertia ixx=".1" iyy=".1" izz=".1"/>'
        "</inertial></link>"
        '<joint name="j{0}" type="continuous"><parent link="wall"/><child link="{0}"/><origin xyz="{0} 0 0"/>'
        '<axis xyz="0 1 0"/>{1}</joint>'
    )
    mimics = ("", '<mimic joint="j1" multiplier="2" offset="0.3"/>', '<mimic joint="j2" multiplier="-1"/>')
    text = (
        '<robot name="r"><link name="wall"/>' + "".join(rod.format(k + 1, m) for k, m in enumerate(mimics)) + "</robot>"
    )
    robot = ns.Robot.from_urdf(text)
    assert [drive.name for drive in robot.drives] == ["j1_effort"]
    system = robot.system(actuated=[])
    motion = ns.simulate(system, x0={"j1": 0.2}, duration=0.5)
    first = motion["j1"]
    np.testing.assert_allclose(motion["j2"], 2 * first + 0.3, atol=1e-9)
    np.testing.assert_allclose(motion["j3"], -motion["j2"], atol=1e-9)
    # By hand: J = diag(0.35), torques -m g l sin q, and the same relation.
    x, w = ca.SX.sym("x"), ca.SX.sym("w")
    weight = 9.81 * 0.5
    torque = -weight * (ca.sin(x) + 2 * ca.sin(2 * x + 0.3) + 2 * ca.sin(2 * x + 0.3))
    one = ns.ODE(x=ca.vertcat(x, w), flow=ca.vertcat(w, torque / (0.35 * (1 + 4 + 4))))
    expected = ns.simulate(one, x0=[0.2, 0.0], duration=0.5).final_state[0]
    assert first[-1] == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("kind", ["planar", "floating", "spherical"])
def test_joints_with_several_coordinates(kind: str) -> None:
    """On a moved body: energy, Jacobians and kinematics."""
    text = wrong('name="knee" type="revolute"', f'name="knee" type="{kind}"')
    text = text.replace('<limit lower="0.05" upper="2.5" effort="40" velocity="20"/>', "").replace(
        '<origin xyz="0 0 -0.3"/>', '<origin xyz="0.1 0.2 -0.3" rpy="0.3 0.2 0.1"/>'
    )
    robot = ns.Robot.from_urdf(text, "floating")
    assert robot.q.numel() - 8 == {"planar": 3, "floating": 7, "spherical": 4}[kind]
    check_robot(robot)
    if kind != "spherical":  # the first coordinates are lengths along axes of the joint: across its normal, or all
        place = robot.position("shank") - robot.position("thigh")
        turned = robot.pose("thigh")[0] @ ca.DM(robot.tree.bodies[2].rotation)
        rows = ca.Function("rows", [robot.q], [turned.T @ ca.jacobian(place, robot.q)[:, 8:11]])
        found = np.array(rows([0, 0, 0, 1, 0, 0, 0, 0.2, 0.1, 0.2, 0.3, 1, 0, 0, 0][: robot.q.numel()]))
        if kind == "floating":
            np.testing.assert_allclose(found, np.eye(3), atol=1e-14)
        np.testing.assert_allclose(found[1, :2], [0, 0] if kind == "planar" else [0, 1], atol=1e-14)
        np.testing.assert_allclose(found[:, :2].T @ found[:, :2], np.eye(2), atol=1e-14)


def test_joints_without_ends() -> None:
    text = wrong('<limit lower="0.05" upper="2.5" effort="40" velocity="20"/>', '<limit effort="7" velocity="2"/>')
    with pytest.warns(ns.ModelWarning, match="read without ends"):
        robot = ns.Robot.from_urdf(text)
    assert robot.limits == {"hip": (-1.5, 1.5)}
    assert robot.efforts["knee"] == 7.0


def test_files_that_other_readers_accept(tmp_path: Path) -> None:
    """A comment before the declaration, and zeros behind the end."""
    path = tmp_path / "hopper.urdf"
    path.write_bytes(b"<!-- ours -->\n<?xml version='1.0'?>" + HOPPER.encode() + b"\0\0")
    assert ns.Robot.from_urdf(path).joint_names == ("hip", "knee")


def test_meshes_are_found(tmp_path: Path) -> None:
    for part in ("ours/meshes", "robots"):
        (tmp_path / part).mkdir(parents=True)
    for name in ("ours/meshes/foot.stl", "robots/toe.stl"):
        (tmp_path / name).touch()
    part = '<visual><geometry><mesh filename="{}"/></geometry></visual>'
    names = ("package://ours/meshes/foot.stl", "toe.stl", "package://lost/toe.stl")
    text = wrong('<link name="foot"/>', f'<link name="foot">{"".join(map(part.format, names))}</link>')
    path = tmp_path / "robots" / "hopper.urdf"
    path.write_text(text)
    expected = [str(tmp_path / "ours/meshes/foot.stl"), str(tmp_path / "robots/toe.stl")]
    found = [shape.mesh for shape in ns.Robot.from_urdf(path).visuals]
    assert found[:2] == expected
    by_list = ns.Robot.from_urdf(text, package_dirs=[tmp_path, tmp_path / "robots"])
    assert [shape.mesh for shape in by_list.visuals] == [*expected, expected[1]]


def test_a_mimic_of_a_joint_with_several_coordinates_is_a_fault() -> None:
    inertial = '<inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1"/></inertial>'
    text = f"""<robot name="r"><link name="a"/><link name="b">{inertial}</link><link name="c">{inertial}</link>
      <joint name="slides" type="planar"><parent link="a"/><child link="b"/><axis xyz="0 0 1"/></joint>
      <joint name="turns" type="continuous"><parent link="b"/><child link="c"/><axis xyz="0 0 1"/>
      <mimic joint="slides" offset="0.3"/></joint></robot>"""
    with pytest.raises(ns.ModelError, match="joint 'slides' is planar, with several coordinates"):
        ns.Robot.from_urdf(text)


def test_meshes_touch_the_ground_by_the_corners_of_their_hulls(tmp_path):
    """A cube of 20 cm, given in centimetres, whose lowest corners are 10 cm below its joint."""
    pytest.importorskip("trimesh")
    corners = [(x, y, z) for x in (-10, 10) for y in (-10, 10) for z in (-10, 10)]
    faces = ["1 2 4", "1 4 3", "5 7 8", "5 8 6", "1 5 6", "1 6 2", "3 4 8", "3 8 7", "1 3 7", "1 7 5", "2 6 8", "2 8 4"]
    lines = [*("v {} {} {}".format(*corner) for corner in corners), *(f"f {face}" for face in faces)]
    (tmp_path / "cube.obj").write_text("\n".join(lines), encoding="utf-8")
    text = """<robot name="lift"><link name="rail"/><link name="cube"><inertial><mass value="2"/>
      <inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial><collision><geometry>
      <mesh filename="cube.obj" scale="0.01 0.01 0.01"/></geometry></collision></link>
      <joint name="slide" type="prismatic"><parent link="rail"/><child link="cube"/><axis xyz="0 0 1"/>
      <limit lower="0" upper="1" effort="5" velocity="3"/></joint></robot>"""
    path = tmp_path / "lift.urdf"
    path.write_text(text, encoding="utf-8")
    robot = ns.Robot.from_urdf(path)
    contacts = robot.contacts()
    gaps = ca.Function("gaps", [robot.q], [ca.vertcat(*[contact.gap for contact in contacts])])
    assert np.sort(np.array(gaps(0.3)).ravel()) == pytest.approx([0.2] * 4 + [0.4] * 4)


def test_what_turns_about_an_axis_across_the_ground_makes_no_contact():
    """Angles of files are rounded: 1.5708 is not a right angle."""
    text = """<robot name="arm"><link name="base"/><link name="disc"><inertial><mass value="2"/>
      <inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>
      <collision><origin xyz="0 0.3 0"/><geometry><box size="0.1 0.1 0.1"/></geometry></collision></link>
      <link name="foot"><inertial><mass value="2"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>
      <collision><origin xyz="0.4 0 0"/><geometry><sphere radius="0.05"/></geometry></collision></link>
      <joint name="turn" type="continuous"><parent link="base"/><child link="disc"/><origin rpy="1.5708 0 0"/>
      <axis xyz="0 1 0"/></joint>
      <joint name="swing" type="continuous"><parent link="disc"/><child link="foot"/><axis xyz="0 0 1"/></joint>
      </robot>"""
    assert [contact.name for contact in ns.Robot.from_urdf(text).contacts(ns.HalfSpace())] == ["foot"]
