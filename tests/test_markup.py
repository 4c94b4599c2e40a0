"""HTML for notebooks: content of the texts, escaped, well formed, and the same names as `repr`."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser

import casadi as ca
import pytest

import nosnoc_py as ns
from nosnoc_py.markup import MOST_ROWS, page, paragraph, table, tree
from nosnoc_py.status import Status

pytestmark = pytest.mark.quick


class Parsed(HTMLParser):
    """Tags that are opened and closed in order, and the texts between them."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []
        self.tags: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        assert not {name for name, _ in attrs} - {"colspan"}, "no styles"
        self.open.append(tag)
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)

    @property
    def text(self) -> str:
        return "\n".join(self.texts)


def shown(value: object) -> Parsed:
    return Parsed(value._repr_html_())


@pytest.fixture(scope="module")
def ball() -> ns.CLS:
    q, v, u = (ca.SX.sym(name) for name in "qvu")
    ground = ns.Contact("floor <b>&", gap=q, restitution=0.8)
    return ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u - 9.81, contacts=[ground], names={"q": ["height"]})


@pytest.fixture(scope="module")
def ocp(ball) -> ns.OCP:
    return ns.OCP(ball, horizon=1.0, x0=[1.0, 0.0], stage_cost=ball.u**2, terminal_state={"height": 0.6})


@pytest.fixture(scope="module")
def solution(ocp) -> ns.Solution:
    return ns.solve(ocp, ns.MultiPhase(sequence=ns.Sequence([{}, "impact floor <b>&", {}])))


def test_texts_are_escaped():
    assert page("<i>", paragraph("a & b"), "") == "<div><b>&lt;i&gt;</b><p>a &amp; b</p></div>"
    assert table([("<x>", 1)], ("a<b", "c")) == (
        "<table><tr><th>a&lt;b</th><th>c</th></tr><tr><td>&lt;x&gt;</td><td>1</td></tr></table>"
    )
    assert "&lt;b&gt;" in tree("<b>\n  <b>")
    assert paragraph("") == table([]) == ""


def test_long_tables_are_cut_off():
    parsed = Parsed(table([(k, k) for k in range(MOST_ROWS + 3)]))
    assert parsed.tags.count("tr") == MOST_ROWS + 1
    assert parsed.texts[-1] == "... and 3 more"


def test_a_tree_follows_indentation():
    parsed = Parsed(tree("a\n  b\n    c\n  d\n      e\n    f\ng"))
    assert parsed.texts == ["a", "b", "c", "d", "e", "f", "g"]
    assert parsed.tags.count("ul") >= 3


def test_systems_and_problems_show_their_repr(ball, ocp):
    for value in (ball, ocp, ns.transcribe(ocp, ns.FESDJ(control_stages=2)), ns.ODE(x=ball.q, flow=-ball.q)):
        words = " ".join(repr(value).replace("\n", " ").split())
        assert " ".join(shown(value).text.split()) == words


def test_a_trajectory_has_a_table_of_events(ball):
    motion = ns.simulate(ball, x0=[1.0, 0.0], duration=1.0)
    parsed = shown(motion)
    assert parsed.texts[0] == repr(motion).splitlines()[0]
    assert {"states (2)", "height, v_0", "impulse [N s]", "impact", "floor <b>&", "0.451524", "7.973"} <= set(
        parsed.texts
    )
    short = shown(ns.simulate(ball, x0=[1.0, 0.0], duration=0.1))
    assert "event" not in short.texts


def test_events_that_are_no_impacts_have_no_columns_of_impacts():
    x = ca.SX.sym("x")
    modes = ns.Modes("sides", functions=x - 1, signs=[[-1], [1]], flows=[1, 2])
    motion = ns.simulate(ns.PSS(x=x, modes=[modes]), x0=[0.0], duration=2.0)
    parsed = shown(motion)
    assert "switch" in parsed.texts
    assert "impulse [N s]" not in parsed.texts


def test_a_solution_answers_the_first_questions(solution):
    parsed = shown(solution)
    assert solution.success
    assert parsed.texts[0].startswith("Solution: solved")
    for title in ("objective", "certificate", "stationarity", "residuals", "states (2)"):
        assert title in parsed.texts
    assert {"phase", "begins with", "modes", "ends at [s]", "impact floor <b>&", "nothing closed"} <= set(parsed.texts)
    assert parsed.texts.count("floor <b>&") == 1  # its event
    assert "what to try" not in parsed.texts


def test_a_failure_says_what_to_try(solution):
    failed = replace(solution, status=Status.LOCALLY_INFEASIBLE)
    parsed = shown(failed)
    assert Status.LOCALLY_INFEASIBLE.remedy in parsed.texts
    assert "Events and modes of the last iterate, which is not a solution:" in parsed.texts


def test_a_certificate_compares_events(solution):
    certificate = solution.certificate
    assert certificate is not None
    parsed = shown(certificate)
    assert parsed.texts[0] == f"Certificate: {certificate.verdict}"
    assert {certificate.reason, "claimed [s]", "true [s]", "objective", "referee"} <= set(parsed.texts)
