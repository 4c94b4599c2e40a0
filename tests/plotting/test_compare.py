"""Several motions in one figure, and figures inside of others."""

import casadi as ca
import pytest
from matplotlib.figure import Figure

import nosnoc_py as ns

pytestmark = pytest.mark.quick


@pytest.fixture(scope="module")
def balls():
    """Two balls of different restitution, one of them for longer."""
    q, v, e, t = (ca.SX.sym(name) for name in ("q", "v", "e", "t"))
    floor = ns.Contact("floor", gap=q, restitution=e)
    system = ns.CLS(q=q, v=v, p=e, t=t, mass_matrix=1, force=-9.81, contacts=[floor])
    return [ns.simulate(system, x0=[1, 0], duration=1 + k, p=[0.9 - 0.3 * k]) for k in range(2)]


def test_two_motions_in_one_figure(balls):
    """Every name twice, with the labels in the legend; the time is no panel; the axis is as long as the longer one."""
    figure = ns.plot({"hard": balls[0], "soft": balls[1]}, ["q_0", "v_0"])
    assert len(figure.axes) == 2
    texts = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert texts == ["q_0, hard", "q_0, soft"]
    styles = [line.get_linestyle() for line in figure.axes[0].get_lines() if line.get_label().startswith("q_0")]
    assert styles == ["-", "--"]
    assert figure.axes[1].get_xlim()[1] > 2.0
    headings = [axes.get_ylabel() for axes in ns.plot(balls).axes]
    assert not any(heading.startswith("t ") or heading == "t" for heading in headings)


def test_a_panel_in_axes_of_ones_own(balls):
    """It is drawn there, and the figure comes back."""
    figure = Figure()
    left, right = figure.subplots(1, 2)
    assert ns.plot(balls[0], ["q_0"], ax=left) is figure
    assert ns.plot(balls, ["v_0"], ax=[right]) is figure
    assert left.get_ylabel().startswith("q_0")
    assert len(right.get_legend().get_texts()) == 2


def test_mistakes_are_told(balls):
    """Too few axes, nothing, and what is no trajectory."""
    with pytest.raises(ns.OptionError, match=r"ax: expected axes for 2 panels \(q_0, v_0\), given 1; choose"):
        ns.plot(balls[0], ["q_0", ("v_0",)], ax=Figure().subplots())
    with pytest.raises(ns.OptionError, match="there is nothing to draw: give a trajectory"):
        ns.plot([])
    with pytest.raises((ns.OptionError, TypeError), match="trajectory"):
        ns.plot({"a": 3})


def test_the_table_of_a_system_with_time(balls):
    """Two times: that of the nodes, and that of the system."""
    pytest.importorskip("pandas")
    frame = balls[0].to_dataframe()
    assert list(frame.columns) == ["time", "q_0", "v_0", "t"]
