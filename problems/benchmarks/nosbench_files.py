"""NOSBENCH files: an MPCC as one JSON object of numbers and serialised CasADi functions.

    minimise    augmented_objective_fun(w, p) = objective + penalty
    subject to  lbw <= w <= ubw,  lbg <= g_fun(w, p) <= ubg,  0 <= G_fun(w, p), H_fun(w, p) >= 0,  G_i H_i = 0.

`w` and `p` are serialised SX symbols, the functions are called with (w, p), `w0` and `p0` are start point and parameter
values. An infinity is a string or the token of JSON's usual extension, and a single number needs no brackets. The
format is that of the benchmark NOSBENCH (Nurkanovic, Pozharskiy, Diehl 2024).
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.errors import ModelError
from nosnoc_py.files import write_atomically
from nosnoc_py.mpcc.program import MPCC

# The trial process reads the texts in this order, and reports each one: the first that is missing has failed.
SYMBOLS = ("w", "p")
FUNCTIONS = ("g_fun", "G_fun", "H_fun", "objective_fun", "augmented_objective_fun")
NUMBERS = ("lbw", "ubw", "w0", "lbg", "ubg", "p0")
TEXTS = SYMBOLS + FUNCTIONS

# Program of the trial process. CasADi trusts the lengths it reads: a damaged text may request any amount of memory, run
# for hours or crash the process, so it is first read in a process of its own. Input: [texts, seconds, bytes] as JSON.
_TRIAL = """
import json, signal, sys, casadi
texts, seconds, size = json.load(sys.stdin)
try:
    import resource
    resource.setrlimit(resource.RLIMIT_AS, (size, size))
    signal.setitimer(signal.ITIMER_PROF, seconds)
except (ImportError, ValueError, OSError):
    pass
print("ready", flush=True)
for name, text in texts.items():
    if name.endswith("_fun"):
        function = casadi.Function.deserialize(text)
        function(*[casadi.SX.sym("x", function.sparsity_in(i)) for i in range(function.n_in())])
    else:
        casadi.SX.deserialize(text)
    print(name, flush=True)
"""


def load(path: str | Path) -> MPCC:
    """Read a NOSBENCH file.

    `objective` is objective_fun and `penalty` is augmented_objective_fun - objective_fun: augmented_objective_fun is
    minimised and objective_fun is reported. Rows keep their order; a pair is a row of G_fun and the same row of H_fun.

    Files written by `save` have checksums of their symbols and functions. Other files are first read in a process of
    their own (0.1 s), because CasADi may crash on damaged ones; damage that leaves them readable (another digit in a
    constant) is not detected.

    Raises
    ------
    ModelError
        Naming path and field: no readable file, no JSON object, missing fields, a field of the wrong type, functions
        that CasADi cannot read or that do not fit (w, p), and everything that `MPCC.of_pairs` refuses (lengths, NaN,
        lower > upper).
    """
    path = Path(path)
    try:
        fields = _fields(path)
        numbers = {name: _numbers(name, fields[name]) for name in NUMBERS}
        texts = {name: _text(name, fields[name]) for name in TEXTS}
        # Matching checksums show that the texts are undamaged: CasADi may read them at once.
        if not _checksums_match(texts, fields.get("checksums")):
            _try_in_subprocess(texts)
        return _program(texts, numbers)
    except ModelError as error:
        # The inner ModelError is quoted in full; only the cause below it is news in a traceback.
        raise ModelError(f"{path}: {error}") from error.__cause__


def save(mpcc: MPCC, path: str | Path) -> Path:
    """Write an MPCC to a NOSBENCH file, entirely or not at all.

    Every single product becomes a pair of rows of G_fun and H_fun, whatever the aggregation, because residuals are
    taken over the single products. A quantity in no product becomes a row of g_fun. Names of variables are written;
    names of rows, scales, the aggregation, and switched equations that are not enforced are not.

    Returns
    -------
    Path
        The path written.

    Raises
    ------
    ModelError
        If switched equations are enforced (the format cannot represent them), or the file cannot be written.
    """
    path = Path(path)
    if mpcc.enforced.any():
        raise ModelError(
            f"{path}: a NOSBENCH file cannot hold the {mpcc.enforced.sum()} switched equations that this MPCC "
            'enforces; build it with another step equilibration than "direct" and isolate_forces=False.'
        )
    try:
        # Strict JSON: infinities are strings already, and NaN is refused.
        write_atomically(path, json.dumps(_to_fields(mpcc), allow_nan=False, indent=1).encode())
    except OSError as error:
        raise ModelError(f"{path}: cannot be written: {error.strerror or error}.") from error
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from None
    return path


def _fields(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file; it has all fields."""
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelError(f"cannot be read: {error.strerror or error}; expected a NOSBENCH file.") from error
    except (ValueError, RecursionError) as error:
        raise ModelError(f"not JSON, or truncated: {error}.") from error
    if not isinstance(fields, dict):
        raise ModelError(f"expected a JSON object, given {_kind(fields)}.")
    missing = [name for name in TEXTS + NUMBERS if name not in fields]
    if missing:
        raise ModelError(f"missing fields: {', '.join(missing)}.")
    return fields


def _numbers(name: str, value: Any) -> list[float]:
    """Return a list of numbers; a string may only be an infinity."""
    values = value if isinstance(value, list) else [value]
    return [_number(name, i, entry) for i, entry in enumerate(values)]


def _number(name: str, position: int, value: Any) -> float:
    try:
        # bool is a subclass of int, and JSON's true would be read as 1.
        number = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else None
    except (ValueError, OverflowError):
        number = None
    # Only infinities need quotes; a quoted number is a sign of another format.
    if number is None or (isinstance(value, str) and math.isfinite(number)):
        raise ModelError(f"{name}: expected numbers, given {_kind(value)} at position {position}.")
    return number


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ModelError(f"{name}: expected a string that CasADi's serialize() wrote, given {_kind(value)}.")
    return value


def _kind(value: Any) -> str:
    return {"NoneType": "null", "dict": "an object", "list": "a list"}.get(type(value).__name__, f"{value!r:.40}")


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _checksums_match(texts: Mapping[str, str], checksums: Any) -> bool:
    """Return True if the serialised texts match their checksums, False if there are none; raise for a mismatch."""
    if checksums is None:
        return False
    if not isinstance(checksums, dict):
        raise ModelError(f"checksums: expected an object, given {_kind(checksums)}.")
    for name, text in texts.items():
        if checksums.get(name) != _checksum(text):
            raise ModelError(
                f"{name}: damaged, it does not fit its checksum; if it was replaced on purpose, remove the field "
                "'checksums'."
            )
    return True


def _try_in_subprocess(texts: Mapping[str, str]) -> None:
    """Read the texts in a process of its own; raise an error for the text at which it failed."""
    if not sys.executable or getattr(sys, "frozen", False):
        return  # a frozen application has no interpreter to start
    size = sum(map(len, texts.values()))
    # Seconds of the processor and bytes grow with the texts, so that large valid files pass; 2 GiB of address space
    # are for the libraries.
    order = json.dumps([texts, 1 + 1e-6 * size, 2**31 + 1000 * size])
    # An empty entry of `sys.path` is the working folder, which the option -P below removes.
    paths = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    # Every thread reserves address space, which the limit of the trial counts.
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    try:
        command = [sys.executable, "-P", "-c", _TRIAL]  # -P: files in the working folder must not shadow modules
        done = subprocess.run(command, input=order.encode(), capture_output=True, timeout=120, env=environment)
        survived, failed, error = done.stdout.split(), done.returncode != 0, done.stderr.decode(errors="replace")
    except subprocess.TimeoutExpired as late:
        survived, failed, error = (late.stdout or b"").split(), True, ""
    except OSError:
        return  # no process can be started: read without the test
    # Without the word "ready" the process itself could not start or import: that says nothing about the texts.
    if failed and survived:
        # "ready" is the first word, so that the count of words minus one is the index of the text that failed.
        raise _unreadable(TEXTS[len(survived) - 1], error)


def _unreadable(name: str, error: str) -> ModelError:
    """Return the error of an unreadable text; CasADi's message tells if a newer version wrote it."""
    lines = [line for line in error.strip().splitlines() if "version" in line]
    reason = f" ({lines[-1].strip()})" if lines else ""
    return ModelError(
        f"{name}: CasADi {ca.__version__} cannot read this text; it is damaged, or a newer CasADi wrote it{reason}."
    )


def _read(name: str, read: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return read(*arguments)
    except Exception as error:  # CasADi raises many types for damaged texts
        raise _unreadable(name, str(error)) from error


def _program(texts: Mapping[str, str], numbers: Mapping[str, list[float]]) -> MPCC:
    w, p = (_symbols(name, texts[name]) for name in SYMBOLS)
    g, G, H, objective, augmented = (_called(name, texts[name], w, p) for name in FUNCTIONS)
    for name, value in (("objective_fun", objective), ("augmented_objective_fun", augmented)):
        if value.numel() != 1:
            raise ModelError(f"{name}: expected a scalar, given {value.numel()} entries.")
    if G.numel() != H.numel():
        raise ModelError(f"G_fun and H_fun: expected as many rows, given {G.numel()} and {H.numel()}.")
    penalty = _difference(augmented, objective)
    arrays = {name: np.array(values, dtype=float) for name, values in numbers.items()}
    return MPCC.of_pairs(w=w, p=p, g=g, G=G, H=H, objective=objective, penalty=penalty, **arrays)


def _symbols(name: str, text: str) -> ca.SX:
    symbols = _read(name, ca.SX.deserialize, text)
    if not symbols.is_dense() or not symbols.is_valid_input():
        raise ModelError(f"{name}: expected a column of symbols, given SX {symbols.shape} that holds something else.")
    symbols = ca.vec(symbols)
    _read(name, lambda: [symbols[i].name() for i in range(symbols.numel())])
    return symbols


def _called(name: str, text: str, w: ca.SX, p: ca.SX) -> ca.SX:
    """Return the value of a serialised function at (w, p)."""
    function = _read(name, ca.Function.deserialize, text)
    if function.n_in() != 2 or function.n_out() != 1:
        raise ModelError(f"{name}: expected a function (w, p) -> value, given {function}.")
    for i, symbols in enumerate((w, p)):
        if function.numel_in(i) != symbols.numel():
            raise ModelError(
                f"{name}: expected an argument {SYMBOLS[i]} of {symbols.numel()} entries, given {function}."
            )
    return ca.vec(ca.densify(_read(name, function, w, p)))


def _difference(augmented: ca.SX, objective: ca.SX) -> ca.SX:
    """Return augmented - objective without the terms of the two sums that cancel.

    Deserialised functions share no nodes, so that equal terms have to be identified; otherwise they would double the
    work of every gradient and Hessian of objective + weight penalty.
    """
    whole, part = ca.vertsplit(ca.cse(ca.vertcat(augmented, objective)))
    terms: dict[int, ca.SX] = {}
    count: Counter[int] = Counter()
    open_ends = [(whole, 1), (part, -1)]
    # The limit matters for sums that share sums, which may have 2^n terms.
    for _ in range(10 * (ca.n_nodes(whole) + ca.n_nodes(part))):
        if not open_ends:
            return sum((times * terms[key] for key, times in count.items() if times), ca.SX(0))
        node, sign = open_ends.pop()
        if node.op() in (ca.OP_ADD, ca.OP_SUB):
            # The first operand is pushed last and popped first: terms keep their order, and sums their rounding.
            open_ends += [(node.dep(1), sign if node.op() == ca.OP_ADD else -sign), (node.dep(0), sign)]
        else:
            terms[node.element_hash()] = node
            count[node.element_hash()] += sign
    return augmented - objective


def _to_fields(mpcc: MPCC) -> dict[str, Any]:
    """Return all fields of the file, in strict JSON."""
    i, j = mpcc.pairs()
    # Quantities in no product have to be nonnegative, too.
    left, right = (np.setdiff1d(np.arange(rows.numel()), used) for rows, used in ((mpcc.G, i), (mpcc.H, j)))
    unpaired = ca.vertcat(mpcc.G[left.tolist(), 0], mpcc.H[right.tolist(), 0])
    lower = np.zeros(unpaired.numel())
    values = {
        "g_fun": ca.vertcat(mpcc.g, unpaired),
        "G_fun": mpcc.G[i.tolist(), 0],
        "H_fun": mpcc.H[j.tolist(), 0],
        "objective_fun": mpcc.objective,
        "augmented_objective_fun": mpcc.objective + mpcc.penalty,
    }
    texts = {name: getattr(mpcc, name).serialize() for name in SYMBOLS}
    texts |= {name: ca.Function(name, [mpcc.w, mpcc.p], [value]).serialize() for name, value in values.items()}
    numbers = {name: getattr(mpcc, name) for name in NUMBERS}
    numbers["lbg"] = np.concatenate([mpcc.lbg, lower])
    numbers["ubg"] = np.concatenate([mpcc.ubg, lower + np.inf])
    return {
        **texts,
        **{name: [_strict(name, value) for value in array.tolist()] for name, array in numbers.items()},
        "checksums": {name: _checksum(text) for name, text in texts.items()},
    }


def _strict(name: str, number: float) -> float | str:
    """Return a number as JSON can hold it: an infinity as a string."""
    if math.isnan(number):
        raise ModelError(f"{name}: expected numbers, given NaN.")
    return number if math.isfinite(number) else str(number)
