"""`stitchfleet COMMAND`: finds the subcommands that the packages declare (entry points `stitchfleet.commands`) and runs one.

A subcommand is a class with `help`, `configure(parser)` and `run(arguments) -> exit code`. Only the chosen one is imported, so that
`stitchfleet run` needs neither the packages for databases nor those for Kubernetes.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from importlib import metadata
from typing import Any

from stitchfleet.compiler.support.entry_points import entry_points

GROUP = "stitchfleet.commands"

# Shown by `stitchfleet --help` without importing the commands.
SUMMARIES = {
    "run": "run a command with stitching switched on in it",
    "doctor": "check whether this machine has what stitching needs",
    "compile": "compile an HLO file, or print a stage of its compilation",
    "explain": "explain a kernel's plan, a job's step or a guard's bundle",
    "jobs": "list the recorded jobs",
    "report": "print the device-hours saved in a week, with their interval",
    "db": "create, upgrade, check, freeze and prune the database",
    "ingest": "serve the fleet: receive jobs' records over HTTP",
    "webhook": "serve the cluster: inject stitchfleet into labelled pods",
    "controller": "serve the cluster: make weekly reports, maintain the database",
    "check-injection": "check whether the cluster injects a labelled pod",
}

# The extra (setup.cfg) with the packages that a command needs, if it is not `report`.
EXTRAS = {
    "compile": "compiler",
    "explain": "compiler",
    "ingest": "ingest",
    "webhook": "operator",
    "controller": "operator",
}


def main(argv: list[str] | None = None) -> int:
    """The entry point of the `stitchfleet` command. Returns the exit code.

    argv: the words after `stitchfleet`; None: those of this process. A user's mistake prints one line and returns 2.
    """
    words = sys.argv[1:] if argv is None else argv
    commands = {entry.name: entry for entry in entry_points(GROUP)}
    if not words or words[0] in ("-h", "--help"):
        _print_help(sorted(commands))
        return 0 if words else 2
    if words[0] == "--version":
        print(f"stitchfleet {metadata.version('stitchfleet')}")
        return 0
    entry = commands.get(words[0])
    if entry is None:
        print(f"stitchfleet: no command {words[0]!r}; there are: {', '.join(sorted(commands))}", file=sys.stderr)
        return 2
    try:
        command: Any = entry.load()()
    except ImportError as error:
        extra = EXTRAS.get(words[0], "report")
        print(
            f"stitchfleet {words[0]}: a package is missing: {error} (pip install 'stitchfleet[{extra}]')",
            file=sys.stderr,
        )
        return 2
    parser = argparse.ArgumentParser(
        prog=f"stitchfleet {words[0]}", description=command.help, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    command.configure(parser)
    arguments = parser.parse_args(words[1:])
    try:
        status = int(command.run(arguments))
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        _let_go_of_output()
        return 0
    except OSError as error:
        print(f"stitchfleet {words[0]}: {error}", file=sys.stderr)
        _let_go_of_output()
        return 2
    except KeyboardInterrupt:
        return 130


def _let_go_of_output() -> None:
    """Redirects standard output to /dev/null: it cannot be written any more, and Python would report that again at its exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print_help(names: list[str]) -> None:
    print(
        "usage: stitchfleet COMMAND [...]\n\nMake TensorFlow jobs faster, check their numbers, and measure the saving.\n\ncommands:"
    )
    for name in sorted(names, key=lambda name: list(SUMMARIES).index(name) if name in SUMMARIES else 99):
        print(f"  {name:<15} {SUMMARIES.get(name, '')}")
    print("\nSee `stitchfleet COMMAND --help` for a command's options.")


if __name__ == "__main__":
    sys.exit(main())
