"""Optimal control problems with contacts from the literature, one file each."""

from importlib import import_module

from problems.benchmarks.contact.posed import Posed

NAMES = (
    "crisp_pushbot",
    "crisp_push_box",
    "crisp_transport",
    "crisp_hopper",
    "two_carts",
    "three_carts",
    "slung_load",
    "spinner",
    "ellipse_squeeze",
    "throwing_ball",
    "kneed_hopper",
    "monoped",
    "five_link_biped",
    "walled_cart_pole",
    "push_t",
    "one_legged_hopper",
)


def posed(name: str) -> Posed:
    """Return the problem of a file."""
    problem: Posed = import_module(f"{__name__}.{name}").PROBLEM
    return problem
