"""Simulations as functions of tensors that `torch.autograd` differentiates: the extra `nosnoc_py[torch]`.

    import nosnoc_py.torch as nst

The forward pass is `ns.simulate(..., sensitivities="reverse")`, the backward pass `trajectory.vjp`: exact through
impacts and changes between stick and slip, and finite where there is no derivative (see `nosnoc_py.Gradient`). Numbers
are doubles on the CPU; motions of a batch are independent, and may be simulated in several processes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nosnoc_py.api import simulate as simulate_numbers
from nosnoc_py.arguments import named_arguments
from nosnoc_py.errors import OptionError
from nosnoc_py.processes import mapped
from nosnoc_py.status import Status

try:
    import torch
    from torch.autograd.function import once_differentiable
except ImportError as error:
    raise ImportError("nosnoc_py.torch needs PyTorch: pip install nosnoc_py[torch].") from error

Array = np.ndarray


@dataclass(frozen=True, eq=False, kw_only=True)
class TensorMotion:
    """Motions as tensors, with a leading dimension of a batch if the data have one.

    Attributes
    ----------
    final : (n_x,) or (batch, n_x)
        Last states.
    samples : (m, n_x) or (batch, m, n_x)
        States at `times`; behind the end of a motion that stopped early its last state.
    event_times : (n_events,), or a tuple of them
        Times of the events [s]; motions of a batch may have different numbers.
    status : Status or tuple of Status
    flags : tuple of str, or a tuple of them
        Why a motion has no derivative; its gradient is then that of `nosnoc_py.Gradient`. Empty without gradients.
    """

    final: Any
    samples: Any
    event_times: Any
    status: Any
    flags: Any


@named_arguments
def simulate(
    system: Any,
    x0: Any,
    p: Any = None,
    u: Any = None,
    *,
    duration: float,
    times: Any = None,
    method: Any = None,
    workers: int = 1,
) -> TensorMotion:
    """Simulate a system, differentiably by x0, p and u.

    Parameters
    ----------
    system : CLS, PSS, Heaviside, PDS or HybridSystem
    x0 : tensor (n_x,) or (batch, n_x)
    p : tensor (n_p,) or (batch, n_p), optional
    u : tensor (N, n_u) or (batch, N, n_u), optional
        Controls on N equal intervals.
    duration : float
        Seconds.
    times : (m,), optional
        Times of `samples` [s].
    method : EventDriven, optional
    workers : int
        Number of processes for a batch (on Linux); the gradient needs none.

    Raises
    ------
    OptionError
        For shapes and batches that do not fit.

    Examples
    --------
    The restitution by which a ball is 0.4 m high after 0.6 s; the height is linear in it, and one step of Newton's
    method is enough:

    >>> import casadi as ca, torch
    >>> import nosnoc_py as ns, nosnoc_py.torch as nst
    >>> q, v, e = (ca.SX.sym(name) for name in "qve")
    >>> ground = ns.Contact("ground", gap=q, restitution=e)
    >>> ball = ns.CLS(q=q, v=v, p=e, p_default=[0.5], mass_matrix=1, force=-10, contacts=[ground])
    >>> p = torch.tensor([0.5], requires_grad=True)
    >>> missed = nst.simulate(ball, torch.tensor([1.0, 0.0]), p, duration=0.6).final[0] - 0.4
    >>> (slope,) = torch.autograd.grad(missed, p)
    >>> round((p - missed / slope).item(), 4)
    0.7562
    """
    data = [_double(x0, "x0", 1)]
    data += [_double(given, name, dimensions) for given, name, dimensions in ((p, "p", 1), (u, "u", 2))]
    batches = {len(each) for each, own in zip(data, (1, 1, 2), strict=True) if each is not None and each.dim() > own}
    if len(batches) > 1:
        raise OptionError(f"x0, p, u: expected batches of one size, given {sorted(batches)}.")
    count = batches.pop() if batches else None
    rows = [
        None if each is None else each if each.dim() > own else each.expand(count or 1, *each.shape)
        for each, own in zip(data, (1, 1, 2), strict=True)
    ]
    if not count and count is not None:
        raise OptionError("x0, p, u: expected a batch of at least one motion, given an empty one.")
    kept: list[Any] = []
    options = {"duration": duration, "method": method, "times": None if times is None else np.asarray(times, float)}
    wanted = torch.is_grad_enabled() and any(each is not None and each.requires_grad for each in rows)
    outputs = _Simulation.apply(system, options, workers, wanted, kept, *rows)
    statuses, flags = tuple(each.status for each in kept), tuple(each.flags for each in kept)
    final, samples, *events = outputs
    if count is None:
        return TensorMotion(
            final=final[0], samples=samples[0], event_times=events[0], status=statuses[0], flags=flags[0]
        )
    return TensorMotion(final=final, samples=samples, event_times=tuple(events), status=statuses, flags=flags)


@dataclass(frozen=True, eq=False, kw_only=True)
class _Answer:
    """What a motion gives: numbers that cross the border of processes."""

    final: Array
    samples: Array
    event_times: Array
    end: float
    status: Status
    tape: Any

    @property
    def flags(self) -> tuple[str, ...]:
        return () if self.tape is None else tuple(self.tape.flags)


class _Simulation(torch.autograd.Function):
    """The function of tensors; its last output is a number of event times for each motion."""

    @staticmethod
    def forward(
        ctx: Any, system: Any, options: dict[str, Any], workers: int, wanted: bool, kept: list[_Answer], *rows: Any
    ) -> Any:
        """Simulate all motions, and keep what their gradients need."""
        numbers = [None if each is None else each.detach().numpy() for each in rows]

        def answer(k: int) -> _Answer:
            x0, p, u = (None if each is None else each[k] for each in numbers)
            motion = simulate_numbers(system, x0=x0, p=p, u=u, sensitivities="reverse" if wanted else False, **options)
            end = float(motion.t[-1])
            times = np.zeros(0) if options["times"] is None else np.minimum(options["times"], end)
            return _Answer(
                final=motion.final_state,
                samples=motion(times) if times.size else np.zeros((0, motion.x.shape[1])),
                event_times=np.array([event.time for event in motion.events]),
                end=end,
                status=motion.status,
                tape=motion.variations,
            )

        kept += mapped(answer, range(len(rows[0])), workers)
        ctx.kept, ctx.times = kept, options["times"]
        ctx.shapes = [None if each is None else each.shape for each in rows]
        events = [torch.from_numpy(each.event_times.copy()) for each in kept]
        final, samples = (np.array([getattr(each, name) for each in kept]) for name in ("final", "samples"))
        return (torch.from_numpy(final), torch.from_numpy(samples), *events)

    def _pulled_back(ctx: Any, final: Any, samples: Any, *events: Any) -> Any:
        """Return the gradients of a loss by x0, p and u."""
        gradients = []
        for k, each in enumerate(ctx.kept):
            asked: dict[str, Any] = {"final": final[k].numpy(), "event_times": events[k].numpy()}
            if ctx.times is not None:
                asked["samples"] = np.minimum(ctx.times, each.end), samples[k].numpy()
            gradients.append(each.tape.pulled_back(**asked))
        results: list[Any] = [None] * 5
        for name, shape in zip(("x0", "p", "u"), ctx.shapes, strict=True):
            rows = [getattr(each, name) for each in gradients]
            if name == "u" and shape is not None:
                # A motion that stopped early has not seen its last rows: their gradient is zero.
                rows = [np.vstack([row, np.zeros((shape[1] - len(row), row.shape[1]))]) for row in rows]
            results.append(None if shape is None else torch.from_numpy(np.array(rows)).reshape(shape))
        return tuple(results)

    backward = staticmethod(once_differentiable(_pulled_back))


def _double(given: Any, name: str, dimensions: int) -> Any:
    """Return a tensor of doubles on the CPU with so many dimensions, or one more."""
    if given is None:
        return None
    tensor = torch.as_tensor(given).to(dtype=torch.float64, device="cpu")
    if tensor.dim() not in (dimensions, dimensions + 1):
        raise OptionError(
            f"{name}: expected a tensor of {dimensions} dimensions, or {dimensions + 1} for a batch, given "
            f"{tensor.dim()}."
        )
    return tensor
