"""Data types of the reproduction: papers, experiments, entries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from problems.reproduction.verdicts import Agreement

Results = Mapping[str, Any]
Read = tuple[str | int, ...] | Callable[[Results], Any]


@dataclass(frozen=True, eq=False, kw_only=True)
class Experiment:
    """Run of a problem.

    Parameters
    ----------
    name : str
        Within its paper.
    module : str
        Module of the problem, in `problems`.
    settings : mapping
        Changes of the problem's settings for a full run.
    quick : mapping, optional
        The same for `--quick`; None for the problem's own quick settings on top of `settings`.
    timeout, quick_timeout : float
        [s], on a machine where other programs run as well.
    needs : tuple of str
        Packages without which there is nothing to run.
    may_fail : bool
        The entries are assessed although the problem itself ends without success.
    figures : tuple of str, optional
        Those that the report shows; None for all of them.
    """

    name: str
    module: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    quick: Mapping[str, Any] | None = None
    timeout: float = 900.0
    quick_timeout: float = 300.0
    needs: tuple[str, ...] = ()
    may_fail: bool = False
    figures: tuple[str, ...] | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class Entry:
    """Row of the report: a number or statement of the paper at one place, and the result here.

    Parameters
    ----------
    where : str
        Figure, table or section.
    what : str
    experiment : str, optional
        Name of the `Experiment` that finds it; None for what is out of scope.
    read : path or function (results) -> value
        Place in the results of the experiment: a path of keys, or a small function. The value is a number, or for
        `Holds` a pair (holds, text).
    paper : number or str, optional
        None where the paper gives no number.
    unit : str
    agreement : Agreement
    remark : str
        Always shown; errata and what was chosen belong here.
    why : str
        Shown where the verdict is "differs": the reason, as far as it is known.
    erratum : path or function (results) -> (shown, text), optional
        For a number that does not follow from the paper's data: True if the results show this, and an explanation. A
        row that would differ then has the verdict "the paper's".
    out_of_scope : str
        The reason, for an entry without an experiment.
    needs : tuple of str
        Packages without which the experiment, which can be run, does not have this number.
    quick : bool
        True if the number is meaningful in the smaller version, too.
    """

    where: str
    what: str
    experiment: str | None = None
    read: Read = ()
    paper: float | str | None = None
    unit: str = ""
    agreement: Agreement = field(default_factory=Agreement)
    remark: str = ""
    why: str = ""
    erratum: Read | None = None
    out_of_scope: str = ""
    needs: tuple[str, ...] = ()
    quick: bool = True


@dataclass(frozen=True, eq=False, kw_only=True)
class Paper:
    """Paper with its experiments and entries.

    Parameters
    ----------
    name : str
        On the command line.
    title, subject : str
    experiments : tuple of Experiment
    entries : tuple of Entry
        In the order of the paper.
    """

    name: str
    title: str
    subject: str
    experiments: tuple[Experiment, ...]
    entries: tuple[Entry, ...]

    def experiment(self, name: str) -> Experiment:
        """Return the experiment of this name."""
        return next(one for one in self.experiments if one.name == name)


def value_of(entry: Entry, results: Results) -> Any:
    """Return the value that an entry reads from results.

    Raises
    ------
    KeyError, IndexError, TypeError
        If the results have no such place.
    """
    if callable(entry.read):
        return entry.read(results)
    value: Any = results
    for key in entry.read:
        value = value[key]
    return value
