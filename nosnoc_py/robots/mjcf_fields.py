"""Fields of a compiled model of MuJoCo: what is read, what has no effect on rigid bodies, and all others.

A field that is in neither table has to be at its default, the value that it has in a plain model. So a feature that
nobody thought of, or that a later version of MuJoCo adds, is an error and never ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np

# What `mjcf` reads, by the first word of the names.
READ = {
    "opt": "gravity disableflags enableflags disableactuator",
    "body": "parentid pos quat mass inertia ipos iquat jntadr jntnum mocapid gravcomp",
    "jnt": "type qposadr dofadr bodyid limited range pos axis stiffness stiffnesspoly actfrclimited actfrcrange "
    "actgravcomp",
    "dof": "damping dampingpoly frictionloss armature",
    "geom": "type size bodyid pos quat contype conaffinity condim friction priority dataid",
    "site": "bodyid pos quat",
    "tendon": "adr num limited range frictionloss armature stiffness stiffnesspoly damping dampingpoly lengthspring "
    "length0",
    "wrap": "type objid prm",
    "actuator": "trntype trnid gear dyntype dynprm gaintype gainprm biastype biasprm ctrllimited ctrlrange "
    "forcelimited forcerange group armature damping dampingpoly ctrladr ctrlnum outadr actadr",
    "eq": "type obj1id obj2id objtype active0 data",
    "pair": "geom1 geom2 dim friction",
    "exclude": "signature",
    "qpos": "qpos0 spring",
    "key": "time qpos qvel act ctrl mpos mquat",
}
# What has no effect on the motion of rigid bodies, by its reason, as patterns of whole names.
WITHOUT_EFFECT = {
    "pictures": r"vis|tex_.*|mat_.*|hfield_.*|skin_.*|cam_.*|light_.*|tendon_width|"
    r".*_(rgba|matid|group|texid|castshadow)|site_(size|type|dataid)|text_.*",
    "shapes as meshes, which make no contacts": r"mesh_.*|oct_.*|bvh_.*",
    "sensors and data of users": r"sensor_.*|numeric_.*|tuple_.*|.*_user|opt_magnetic",
    "names, addresses and sizes": r"names?(_.*)?|paths|signature|.*_(bvhadr|bvhnum|pathadr|treeid)|text_data|"
    r"n(?!flex$|plugin$|plastic$|history$)[a-zA-Z0-9_]+|tree_.*|flg_gravcomp|"
    r"body_(rootid|weldid|dofnum|dofadr|geomnum|geomadr|simple|sameframe|margin|contype|conaffinity)|"
    r"dof_(bodyid|jntid|parentid|Madr|simplenum)|geom_(sameframe|aabb|rbound)|site_sameframe|"
    r"jnt_actuatorid|tendon_(actuatorid|treenum|type)|actuator_(actnum|outnum|ctrlspec|historyadr)|"
    r"pair_signature|[BDM]_(colind|diag|rowadr|rownnz)|map[DM]2[DM]|ten_J_.*|efm.*|.*_plasticadr",
    "derived values": r"stat|body_(subtreemass|invweight0)|dof_(M0|invweight0|length)|tendon_invweight0|"
    r"actuator_(acc0|length0|lengthrange)",
    "soft contacts and limits: here they are rigid": r".*_(solref|solimp|solreffriction|solmix|margin|gap)(_.*)?|"
    r"opt_(o_.*|cone|impratio)",
    "numerics": r"opt_(timestep|tolerance|iterations|ls_.*|noslip_.*|ccd_.*|sdf_.*|jacobian|solver|integrator|"
    r"sleep_tolerance|apirate|mpr_.*|graph_conditional|run_collision_detection|has_fluid)|actuator_(actearly|actrange)",
    "without a fluid": r"geom_fluid",
    "flexible bodies, if there are any": r"flex_.*|flexedge_.*",
    "plugins, if there are any": r"plugin_.*|plugin",
}
# Why fields are refused that have a meaning by themselves.
REASONS = {
    "opt_density": "forces of a fluid are not supported",
    "opt_viscosity": "forces of a fluid are not supported",
    "opt_wind": "forces of a fluid are not supported",
    "nflex": "flexible bodies are not supported",
    "nplugin": "plugins are not supported",
    "geom_plugin": "plugins are not supported",
    "actuator_plugin": "plugins are not supported",
    "geom_adhesion": "adhesion is not supported",
    "pair_adhesion": "adhesion is not supported",
    "flg_adhesion": "adhesion is not supported",
    "geom_surfacevel": "give surfaces that move as ns.Contact(surface_velocity=)",
    "actuator_delay": "delays are not supported",
    "actuator_actlimited": "activations with limits are not supported",
    "jnt_springyield": "plastic springs are not supported",
    "tendon_springyield": "plastic springs are not supported",
}
# Objects by the first word of the names of their fields.
OBJECTS = {"jnt": "JOINT", "eq": "EQUALITY"} | {
    kind.lower(): kind for kind in ("BODY", "GEOM", "SITE", "TENDON", "ACTUATOR", "PAIR", "EXCLUDE", "FLEX")
}
# One of everything, as plain as it can be.
PLAIN = """<mujoco><worldbody>
<body name="a"><joint name="j"/><geom name="g" size="1"/><site/></body>
<body name="b"><joint name="k"/><geom name="h" size="1"/></body></worldbody>
<tendon><fixed><joint joint="j" coef="1"/></fixed></tendon><actuator><motor joint="j"/></actuator>
<equality><joint joint1="j"/></equality><contact><pair geom1="g" geom2="h"/></contact></mujoco>"""


def named(mujoco: Any, model: Any, kind: str, i: int) -> str:
    """Return the name of an object, or its kind with its number."""
    result = mujoco.mj_id2name(model, getattr(mujoco.mjtObj, f"mjOBJ_{kind}"), i)
    return str(result) if result else f"{kind.lower()}{i}"


def unread(mujoco: Any, model: Any) -> Iterator[str]:
    """Yield a sentence for every field of a model that is neither read nor without effect, and not at its default."""
    defaults = _values(mujoco.MjModel.from_xml_string(PLAIN))
    known = _known()
    for name, value in _values(model).items():
        if known.fullmatch(name):
            continue
        given, usual = np.atleast_1d(value), np.atleast_1d(defaults.get(name, 0))
        if not given.size:
            continue
        # Rows of one element: all have the default of the plain one.
        row = usual[0] if usual.size else np.zeros(given.shape[1:])
        differs = (given != row).reshape(len(given), -1).any(axis=1)
        word, _, field = name.partition("_")
        for i in np.flatnonzero(differs).tolist():
            where = f"<option {field}>" if word == "opt" else name
            if word in OBJECTS:
                where = f"{OBJECTS[word].lower()} {named(mujoco, model, OBJECTS[word], i)!r}: {field}"
            text = np.array2string(np.asarray(given[i]), precision=4, separator=", ")
            yield f"{where} is {text}: {REASONS.get(name, 'this is not read')}."


def _values(model: Any) -> dict[str, Any]:
    """Return the numbers of a model by their names."""
    result = {}
    for prefix, source in (("", model), ("opt_", model.opt)):
        for name in dir(source):
            value = None if name.startswith("_") else getattr(source, name)
            if isinstance(value, int | float | np.number | np.ndarray) and not isinstance(value, bool | np.bool_):
                result[prefix + name] = value
    return result


@lru_cache(maxsize=1)
def _known() -> re.Pattern[str]:
    read = [f"{word}_({'|'.join(fields.split())})" for word, fields in READ.items()]
    return re.compile("|".join([*read, "qpos0", *WITHOUT_EFFECT.values()]))
