"""`amk`: the command line. Results go to stdout, people's output and errors to stderr.

Exit codes: 0, 1 (the work failed), 2 (usage), 130 (Ctrl-C). A subcommand is a file with
`register(subparsers)`, listed in `COMMANDS`; it imports what it needs when it runs.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module

from amk.cli.common import UsageError, say
from amk.errors import AmkError

COMMANDS = (
    "import_", "compile", "explain", "generate", "eval", "bench", "targets", "doctor", "cache",
)  # fmt: skip

DESCRIPTION = "Compiles a decoder language model into one kernel per decode step, and runs it."

EXAMPLES = """\
MODEL is a folder with safetensors, a .gguf file, a hub id in the local cache, or toy / toy-2L.

examples:
  amk generate toy --prompt-ids 1,2,3 --max-tokens 8
  amk generate model.gguf --prompt "The capital of France is" --stream
  amk compile model.gguf -o out                every level, the C source, the library
  amk doctor                                   what this machine has, and what is missing
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `amk` with `argv`, by default the process's; returns the exit code."""
    warnings.showwarning = show_warning
    try:
        options = parser().parse_args(argv)
        code = options.run(options)
        sys.stdout.flush()
        return code
    except SystemExit as stop:
        # argparse leaves this way after --help and after a usage error.
        return stop.code if isinstance(stop.code, int) else 2
    except UsageError as error:
        return fail(str(error), 2)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return close_stdout()
    except AmkError as error:
        return fail(str(error), 1)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return fail(f"{where}{error.strerror or error}", 1)
    except MemoryError:
        return fail("out of memory", 1)


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="amk",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    subparsers = top.add_subparsers(metavar="COMMAND", required=True)
    for name in COMMANDS:
        import_module(f"amk.cli.{name}").register(subparsers)
    return top


def show_warning(message: Warning | str, *rest: object) -> None:
    """One line, without the source line that raised it."""
    say(f"amk: warning: {' '.join(str(message).split())}")


def fail(message: str, code: int) -> int:
    say(f"amk: error: {' '.join(message.split())}")
    return code


def close_stdout() -> int:
    """The reader went away: nothing more is written, not even by the interpreter's last flush."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return 1


if __name__ == "__main__":
    sys.exit(main())
