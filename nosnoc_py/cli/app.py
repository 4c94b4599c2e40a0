"""The commands and their options; the work is done in the modules beside, which are imported when it is asked for."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from nosnoc_py import __version__
from nosnoc_py.cli.commands import Commands, remember_json, say

JSON_HELP = "Last line of the output: one JSON object."
Json = Annotated[bool, typer.Option("--json", callback=remember_json, help=JSON_HELP)]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Write nothing but errors (and JSON).")]
Changes = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Change the configuration, e.g. solver.sigma_0=10; repeatable."),
]
Config = Annotated[Path, typer.Argument(metavar="CONFIG", help="A YAML file.")]
Output = Annotated[Path | None, typer.Option(metavar="FILE.nc", help="Where to keep the result.")]
Figures = Annotated[Path | None, typer.Option(metavar="DIR", help="Folder for figures; default none.")]

app = typer.Typer(
    cls=Commands,
    help="Simulation and optimal control of mechanical systems with impacts, friction and other discontinuities.",
    epilog="Exit codes: 0 success, 1 the work ended without success, 2 a mistake in the request, 130 interrupted.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # [kg] is a unit here, no markup
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit; `arguments` instead of those of this process."""
    with suppress(ValueError):  # only the main thread may
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # a batch system's end of time is like Ctrl-C
    app(arguments, prog_name="nosnoc-py")


def _version(value: bool) -> None:
    if value:
        typer.echo(f"nosnoc_py {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


ONCE = "A `sweep` in it is left aside: the rest is done once."


@app.command("simulate", help=f"Simulate the system of a configuration.\n\nThe part `simulate` has the data. {ONCE}")
@app.command("solve", help=f"Solve the optimal control problem of a configuration.\n\n{ONCE}")
def solve_or_simulate(
    context: typer.Context,
    config: Config,
    output: Output = None,
    figures: Figures = None,
    changes: Changes = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Two commands that take the same: solve an optimal control problem, simulate a system."""
    from nosnoc_py.cli.solving import work

    simulated = context.command.name == "simulate"
    code = work(config, changes or (), simulated=simulated, output=output, figures=figures, json=json, quiet=quiet)
    raise typer.Exit(code)


@app.command()
def sweep(
    config: Config,
    workers: Annotated[int | None, typer.Option(metavar="N", help="Processes at a time; default run.workers.")] = None,
    output: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of the results; default run.output.")
    ] = None,
    scheduler: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Run on this Dask cluster, e.g. tcp://host:8786.")
    ] = None,
    retry: Annotated[bool, typer.Option("--retry", help="Do again what ended without a result.")] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run all variations of a configuration in separate processes.

    Finished runs are kept at once. The same command again goes on where it was interrupted or killed; --retry also does
    those again that died, timed out or raised an error.
    """
    from nosnoc_py.cli.sweeps import work

    raise typer.Exit(
        work(config, workers=workers, output=output, scheduler=scheduler, retry=retry, json=json, quiet=quiet)
    )


@app.command()
def show(
    result: Annotated[Path, typer.Argument(metavar="RESULT", help="A .nc file, or the output folder of a sweep.")],
    figures: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of figures; default beside the result, none with --json.")
    ] = None,
    x: Annotated[str | None, typer.Option(metavar="COLUMN", help="Sweep: along x in a heat map.")] = None,
    y: Annotated[str | None, typer.Option(metavar="COLUMN", help="Sweep: along y in a heat map.")] = None,
    value: Annotated[str | None, typer.Option(metavar="COLUMN", help="Sweep: what is drawn, e.g. iterations.")] = None,
    group: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Sweep: draw a performance profile, a curve for each of these.")
    ] = None,
    json: Json = False,
) -> None:
    """Print and draw the contents of a result.

    Of a solution or trajectory: its summary, events and figures. Of a sweep: the table of its runs, and a heat map over
    two swept quantities, or a performance profile.
    """
    if result.is_dir():
        from nosnoc_py.cli.sweeps import show_folder

        show_folder(result, figures, x=x, y=y, value=value, group=group, json=json)
    else:
        from nosnoc_py.cli.showing import show_file

        show_file(result, figures, json=json)


@app.command()
def robot(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A URDF file, or an MJCF file (.xml).")],
    base: Annotated[str, typer.Option(metavar="KIND", help="URDF: fixed, planar or floating.")] = "fixed",
    picture: Annotated[Path | None, typer.Option(metavar="FILE.png", help="Draw the robot.")] = None,
    view: Annotated[str, typer.Option(metavar="VIEW", help="Of the picture: xz, yz, xy or oblique.")] = "oblique",
    json: Json = False,
) -> None:
    """Show what is read of a robot file, what is left out, and draw it.

    A file that is refused is an error that names all reasons.
    """
    from nosnoc_py.cli.robots import work

    work(file, base=base, picture=picture, view=view, json=json)


@app.command(context_settings={"allow_interspersed_args": False})
def benchmark(
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME [OPTIONS]]", help="Everything behind NAME is for it.")
    ] = None,
    json: Json = False,
) -> None:
    """List the benchmarks, or run one.

    `benchmark NAME` does what `python -m problems.benchmarks.NAME` does. Benchmarks take --quick, --json, --set
    KEY=VALUE ... and --figures DIR; `benchmark NAME --help` lists all options.
    """
    from nosnoc_py.cli import benchmarks

    if arguments:
        raise typer.Exit(benchmarks.run(arguments[0], [*arguments[1:], *(["--json"] if json else [])]))
    say(json, {"benchmarks": benchmarks.BENCHMARKS}, benchmarks.listed())


@app.command(
    add_help_option=False,  # everything is handed over, --help too
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
)
def reproduce(context: typer.Context, json: Json = False) -> None:
    """Repeat the experiments of the papers and write a report."""
    from nosnoc_py.cli import benchmarks

    raise typer.Exit(benchmarks.reproduce([*context.args, *(["--json"] if json else [])]))


@app.command()
def examples(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new or empty folder.")], json: Json = False
) -> None:
    """Copy models, problems and notebooks to a folder.

    The folder also gets tests/references, the reference solutions that problems compare with. In the folder every
    problem runs by `python -m problems.NAME`, and the commands benchmark and reproduce work.
    """
    from nosnoc_py.cli import examples as examples_of_package

    written = examples_of_package.copy(folder)
    say(json, {"written": [str(path) for path in written]}, examples_of_package.next_steps(folder))


@app.command()
def info(json: Json = False) -> None:
    """Show versions, available solvers and threads."""
    from nosnoc_py.cli.information import described, information

    report = information()
    say(json, report, described(report))


@app.command()
def cite(json: Json = False) -> None:
    """Print BibTeX entries of the package and its methods."""
    from nosnoc_py.cli.citation import bibtex, keys

    say(json, {"bibtex": bibtex(), "keys": keys()}, bibtex())
