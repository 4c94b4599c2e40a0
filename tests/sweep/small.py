"""A sweep that is tiny and fast, and tasks that misbehave; copied beside a configuration, or found by the path."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import casadi as ca

import nosnoc_py as ns


def _log(word):
    """One line in a file that only grows; one write is one line, also from several processes."""
    if "SMALL_LOG" in os.environ:
        file = os.open(os.environ["SMALL_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, f"{word}\n".encode())
        os.close(file)


def _wait_at_the_gate():
    """A test that closes the gate knows who is at work: what is killed then is killed at work, on any machine."""
    gate = Path(os.environ.get("SMALL_GATE", "no gate"))
    if gate.exists():
        _log("held")
    while gate.exists():
        time.sleep(0.01)


def ball(height=1.0, number=0, pause=0.0):
    """A ball that falls without hitting: q(t) = height - g t^2 / 2."""
    _log(f"start {height:g} {number}")
    _wait_at_the_gate()
    time.sleep(pause)
    q, v = ca.SX.sym("q"), ca.SX.sym("v")
    return ns.CLS(q=q, v=v, mass_matrix=ca.DM(1), force=ca.DM(-9.81), contacts=[ns.Contact("ground", gap=q)])


def fallen(system, trajectory, height, number):
    """The height at the end, and once more that of the run by its numbers."""
    _log(f"end {height:g} {number}")
    return {"height": trajectory.final_state[0], "number": number + 10 * height, "undefined": float("nan")}


def task(seed=0):
    """Minimum effort to bring a point from 0 to 1 in a second: (v(0) = v(1) = 0) the objective is 12."""
    q, v, u = (ca.SX.sym(name) for name in "qvu")
    system = ns.CLS(q=q, v=v, u=u, mass_matrix=ca.DM(1), force=u, contacts=[ns.Contact("wall", gap=q + 9)])
    ends = [ns.Constraint(q, 1.0, 1.0), ns.Constraint(v, 0.0, 0.0)]
    return ns.OCP(system, horizon=1.0, x0=[0, 0], stage_cost=u**2, terminal_constraints=ends)


def start(seed):
    """A guess: a constant control."""
    return [float(seed)]


def wrong_measure(problem, result):
    """Not a mapping."""
    return 3


def answer(value=1, **more):
    """A task that does what it should."""
    _log(f"start {value}")
    return {"success": True, "status": "solved", "value": value, **more}


def with_file(value=1):
    """A task that gives a file, too."""
    return {"success": True, "value": value}, {".bin": bytes(range(256)) * value}


def leave(code=3):
    """A crash."""
    _log("start leave")
    print("last words", file=sys.stderr, flush=True)
    os._exit(code)


def shoot():
    """A kill from outside, such as by the kernel when memory is short."""
    _log("start shoot")
    os.kill(os.getpid(), signal.SIGKILL)


def leave_once(marker):
    """A crash the first time only."""
    if not Path(marker).exists():
        Path(marker).touch()
        os._exit(1)
    return {"success": True, "status": "solved"}


def hang(children=""):
    """Never ends, and has a child that does not, either."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    if children:
        Path(children).write_text(f"{process.pid} {os.getpid()}")
    time.sleep(600)


def raises(text="no"):
    """A mistake of the user."""
    raise ns.OptionError(text)


def bug():
    """A mistake of the programmer."""
    return {"value": 1 / 0}


def no_json():
    """A row that cannot be kept."""
    return {"value": object()}


def environment():
    """What the process was given."""
    import numpy as np

    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
    return {**{name: os.environ.get(name) for name in names}, "infinite": np.inf, "count": np.int64(3)}


def chatty():
    """Fills standard output, by which the answer must not be disturbed, and standard error."""
    for _ in range(20000):
        print("noise" * 20)
        os.write(2, b"noise" * 20)
    return {"success": True}


def fork_and_die():
    """A process that multiprocessing would start keeps the pipe of the answer open after the death of its parent."""
    if os.fork() == 0:
        time.sleep(600)
    os.kill(os.getpid(), signal.SIGKILL)


def end_by(number):
    """A death by a signal."""
    os.kill(os.getpid(), number)
    time.sleep(600)


def says(text):
    """An error with any text."""
    raise ValueError(text)


def exits(text):
    """A script that was not made to be called."""
    sys.exit(text)


def interrupts():
    """What Ctrl-C would raise, but nobody pressed it."""
    raise KeyboardInterrupt


def full(number):
    """A machine that is full."""
    _log("start full")
    raise OSError(number, os.strerror(number))


def reads():
    """A question to nobody."""
    return {"success": True, "read": sys.stdin.read()}


def terminated():
    """SIGTERM does nothing here, and what is started from here has its usual effect."""
    import multiprocessing

    os.kill(os.getpid(), signal.SIGTERM)
    forked = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
    forked.start()
    program = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"])
    forked.terminate()
    forked.join(10)
    program.terminate()
    return {"success": True, "forked": forked.exitcode, "program": program.wait(10)}


def who():
    """The process, its folder, and where it looks for modules beyond what the task has asked for."""
    return {"success": True, "pid": os.getpid(), "folder": os.getcwd(), "path": sys.path[1:]}


def moves():
    """A task that leaves the folder in which it began."""
    row = who()
    os.chdir("/")
    return row


def odd_suffix(suffix):
    """A file that would be somewhere else."""
    return {"success": True}, {suffix: b"1"}
