"""`amk-opt`: reads IR, runs passes, prints IR. The output goes to stdout or `-o FILE` and nothing
else does; timings, dumps and errors go to stderr. Exit codes: 0, 1 (the work failed), 2 (usage)."""

from __future__ import annotations

import argparse
import inspect
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from xdsl.dialects.builtin import ModuleOp
from xdsl.frontend import get_all_frontends
from xdsl.passes import get_pass_option_infos
from xdsl.printer import Printer
from xdsl.targets import get_all_targets
from xdsl.utils.exceptions import DiagnosticException, ParseError, VerifyException
from xdsl.xdsl_opt_main import xDSLOptMain

from amk.codegen.targets import TARGETS
from amk.errors import AmkError
from amk.ir import DIALECTS
from amk.passes import PASSES, PIPELINES, first_line, parse_passes, run_pipeline, verify

DESCRIPTION = "Runs amk's passes on IR in text form and prints the result."

EXAMPLES = """\
examples:
  amk-opt step.mlir                                      parse, verify, print
  amk-opt step.mlir -p canonicalize,raise                two passes
  amk-opt step.mlir -p 'split-init{max-seq=512},dce'     a pass with an option
  amk-opt step.mlir -p 'amk-decode{max-seq=512}'         a named pipeline, options for its passes
  amk-opt step.mlir -p raise --pass-statistics           what the pass did, on stderr
  amk-opt step.mlir -p 'amk-decode{max-seq=512}' -t cpu  the C that such a program becomes
  amk-opt step.mlir -p raise --run 1,2,3                 logits of an interpreter, seeded weights
  amk-opt --list-passes                                  passes, their options, pipelines
  cat step.mlir | amk-opt -p canonicalize -o out.mlir    from stdin, to a file
"""


class UsageError(Exception):
    """What was typed does not make sense; the command exits with 2."""


class AmkOpt(xDSLOptMain):
    """xDSL's optimiser driver with amk's dialects and passes."""

    version_format = "amk-opt built on xDSL {xdsl_version}"

    def register_all_dialects(self) -> None:
        for name, factory in DIALECTS.items():
            self.ctx.register_dialect(name, factory)

    def register_all_frontends(self) -> None:
        self.available_frontends |= get_all_frontends()

    def register_all_passes(self) -> None:
        for name, factory in PASSES.items():
            self.register_pass(name, factory)

    def register_all_targets(self) -> None:
        self.available_targets |= {**get_all_targets(), **TARGETS}

    def register_all_arguments(self, arg_parser: argparse.ArgumentParser) -> None:
        super().register_all_arguments(arg_parser)
        arg_parser.prog = "amk-opt"
        arg_parser.formatter_class = argparse.RawDescriptionHelpFormatter
        arg_parser.epilog = EXAMPLES
        arg_parser.add_argument(
            "--pass-statistics",
            action="store_true",
            help="print what each pass counted to stderr",
        )
        arg_parser.add_argument(
            "--remarks",
            action="store_true",
            help="print what each pass decided or refused, and where, to stderr",
        )
        arg_parser.add_argument(
            "--run",
            metavar="TOKENS",
            type=token_list,
            help="interpret the module on comma-separated tokens from position 0, with seeded"
            " weights, and print the logits as JSON instead of the module",
        )
        arg_parser.add_argument(
            "--list-passes", action="store_true", help="list passes and pipelines, and stop"
        )

    def setup_pipeline(self) -> None:
        """Reads the pipeline, so that a wrong one is a usage error before any work."""
        try:
            parse_passes(self.args.passes)
        except AmkError as e:
            raise UsageError(str(e)) from e

    def run(self) -> None:
        if self.args.list_passes:
            print(list_passes(), end="")
            return
        chunks, extension = self.prepare_input()
        texts: list[str] = []
        for chunk, offset in chunks:
            with chunk:
                texts.append(self.run_chunk(chunk, extension, offset))
        self.write("// -----\n".join(texts))

    def run_chunk(self, chunk, extension: str, offset: int) -> str:
        """The output for one part of a split input; a diagnostic where one was asked for."""
        try:
            module = self.parse_chunk(chunk, extension, offset)
            if module is None:
                return ""
            self.apply_passes(module)
            if self.args.run is not None:
                return run_text(module, self.args.run)
            return self.output_resulting_program(module)
        except ParseError as e:
            if not self.args.parsing_diagnostics:
                raise
            return parse_message(e, offset) + "\n"
        except (AmkError, DiagnosticException) as e:
            if not self.args.verify_diagnostics:
                raise
            return first_line(e) + "\n"

    def apply_passes(self, prog: ModuleOp) -> None:
        checked = not self.args.disable_verify
        if checked:
            try:
                verify(prog)
            except VerifyException as e:
                raise AmkError(f"the input is invalid: {first_line(e)}") from e
        reports = run_pipeline(
            prog,
            self.args.passes,
            self.ctx,
            on_pass=self.after_pass,
            check="each" if checked else "never",
        )
        if self.args.pass_statistics:
            for report in reports:
                counted = ", ".join(f"{n} {what}" for what, n in report.statistics.items() if n)
                print(f"{report.name}: {counted or 'nothing'}", file=sys.stderr)
        if self.args.remarks:
            for report in reports:
                for said in report.remarks:
                    print(f"{said.location}: remark: {report.name}: {said.text}", file=sys.stderr)

    def after_pass(self, name: str, module: ModuleOp, seconds: float) -> None:
        if self.args.time_passes:
            print(f"{name}: {seconds * 1e3:.3f} ms", file=sys.stderr)
        if self.args.print_between_passes:
            print(f"// IR after {name}:", file=sys.stderr)
            Printer(stream=sys.stderr, print_generic_format=self.args.print_op_generic).print_op(
                module
            )
            print(file=sys.stderr)

    def write(self, text: str) -> None:
        """To stdout, or to the output file, which appears whole or not at all."""
        if self.args.output_file is None:
            sys.stdout.write(text)
            sys.stdout.flush()
            return
        path = Path(self.args.output_file)
        partial = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            partial.write_text(text, encoding="utf-8")
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)


def token_list(text: str) -> list[int]:
    """Comma-separated token ids."""
    return [int(t) for t in text.split(",")]


def run_text(module: ModuleOp, tokens: list[int]) -> str:
    """The logits of an interpreter as one line of JSON a position, every digit of the f32."""
    from amk.interpreters.run_module import run_module

    rows = run_module(module, tokens)
    return "".join(
        json.dumps({"position": i, "argmax": int(row.argmax()), "logits": row.tolist()}) + "\n"
        for i, row in enumerate(rows)
    )


def list_passes() -> str:
    """A line a pass: its name with its options, and the first line of its file's docstring."""
    lines = ["passes:"]
    for name, factory in sorted(PASSES.items()):
        kind = factory()
        options = " ".join(
            o.name.replace("_", "-") + ("" if o.default_value is None else f"={o.default_value}")
            for o in get_pass_option_infos(kind)
        )
        document = inspect.getdoc(inspect.getmodule(kind)) or ""
        first = document.split("\n\n")[0].replace("\n", " ").replace("`", "")
        first = first.removeprefix(f"{name}: ")
        lines.append(f"  {name}{'{' + options + '}' if options else ''}  {first}".rstrip())
    lines.append("pipelines:")
    lines += [f"  {name}  {spec}" for name, spec in sorted(PIPELINES.items())]
    return "\n".join(lines) + "\n"


def parse_message(error: ParseError, offset: int = 0) -> str:
    """`file:line:column: what`, in one line."""
    span = error.span
    text = span.input.content[: span.start]
    newline = b"\n" if isinstance(text, bytes) else "\n"
    line = text.count(newline) + 1 + offset  # type: ignore[arg-type]
    column = span.start - (text.rfind(newline) + 1) + 1  # type: ignore[arg-type]
    message = " ".join(error.msg.split())
    return f"{span.input.name}:{line}:{column}: {message}"


def main(args: Sequence[str] | None = None) -> int:
    """Runs `amk-opt` with `args`, by default the process's; returns the exit code."""
    try:
        AmkOpt(DESCRIPTION, args).run()
    except UsageError as e:
        return fail(str(e), 2)
    except ParseError as e:
        return fail(parse_message(e), 1)
    except OSError as e:
        return fail(f"{e.filename or 'output'}: {e.strerror}", 1)
    except (AmkError, DiagnosticException, VerifyException, ValueError) as e:
        return fail(first_line(e), 1)
    except KeyboardInterrupt:
        return 130
    return 0


def fail(message: str, code: int) -> int:
    print(f"amk-opt: error: {message}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
