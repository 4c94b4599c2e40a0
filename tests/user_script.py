"""A ball that is thrown so that it bounces once: system, simulation, optimal control, figures, numbers, files."""

import casadi as ca
import numpy as np

import nosnoc_py as ns

q, v, u = ca.SX.sym("q"), ca.SX.sym("v"), ca.SX.sym("u")
ground = ns.Contact("ground", gap=q, restitution=0.8)
ball = ns.CLS(
    q=q, v=v, u=u, mass_matrix=1.0, force=u - 9.81, contacts=[ground], names={"q": ["height"]}, units={"height": "m"}
)
motion = ns.simulate(ball, x0={"height": 1.0}, duration=1.0, u=[0.0], times=np.linspace(0.0, 1.0, 11))
height = motion["height"]
print(motion.status, float(height[-1]), motion.events[0].time, motion.final_state.round(3))

ocp = ns.OCP(
    ball,
    horizon=1.0,
    x0=[1.0, 0.0],
    stage_cost=u**2,
    bounds={"u_0": (-20.0, 20.0), "height": (None, 2.0)},
    path_constraints=[v <= 6.0, ns.Constraint(q, upper=1.5, name="ceiling")],
    terminal_state={"height": 0.6},
)
method = ns.FESDJ(control_stages=5, finite_elements=2, rk_stages=2)
solution = ns.solve(ocp, method, ns.Homotopy(), guess=motion, time_limit=60.0)
if solution.success and solution.certificate is not None:
    print(solution.objective, solution.certificate.verdict, solution.certificate.confirmed)
work = solution.value(u * v)
power = solution.sample(u * v, np.linspace(0.0, 1.0, 5))
print(work.max(), power.shape)
for event in solution.impacts:
    print(event.name, event.kind, event.impulse)
figure = ns.plot(solution, ["height", "u_0"], path="ball.png")
figure.suptitle("ball")
solution.save("ball.nc")
again = ns.load("ball.nc")
print(again.summary())
partition = ns.Modes("side", flows=[1.0, -1.0], functions=q, signs=[[1], [-1]])
sliding = ns.simulate(ns.PSS(x=q, modes=partition), x0=[0.5], duration=1.0)
print(sliding.message)
x, w, t = ca.SX.sym("x"), ca.SX.sym("w"), ca.SX.sym("t")
way = ns.Data([0, 1, 2], [0.0, 1.0, 1.0], name="way")
cart = ns.ODE(x=x, u=w, t=t, flow=w, data=[way])
task = ns.OCP(cart, horizon=2.0, x0=[0.0], stage_cost=ns.least_squares(x, way(t)), bounds=ns.Bounds(u=(-5, 5)))
problem = ns.transcribe(task, ns.FESD(control_stages=4, finite_elements=1))
print(problem.solve(p={"way": [0.0, -1.0, 0.0]}).u[0, 0])
places, rates = ca.SX.sym("q", 3), ca.SX.sym("v", 3)
disc = ns.Placed(ns.Sphere(0.1), places[:2], places[2], coordinates=ns.Coordinates(places, rates))
(touch,) = ns.contacts(disc, ns.HalfSpace((0, 1)), name="ground", friction=0.5)
print(touch.gap, touch.name)
pendulum = ns.lagrangian(q=x, v=w, kinetic=0.5 * w**2, potential=-9.81 * ca.cos(x))
simulator = ns.Simulator(ball, step=0.1)
state = simulator.step(simulator.init([1.0, 0.0]), [0.0])
print(state.t, state.x, state.status.success, pendulum.energy)
