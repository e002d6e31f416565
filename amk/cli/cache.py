"""`amk cache`: what the cache on disk holds, and clearing it."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from amk.cli.common import add_json, command, mebibytes, print_json, say

EXAMPLES = """\
  amk cache                     kinds, entries and bytes
  amk cache clear               remove everything
  AMK_CACHE_DIR=/fast/amk amk cache
"""


def register(subparsers: Any) -> None:
    parser = command(subparsers, "cache", run, "show or clear the cache on disk", EXAMPLES)
    parser.add_argument("action", nargs="?", choices=("clear",), help="remove every entry")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    from amk.runtime.cache import all_stats, cache_dir, clear_all

    root, before = cache_dir(), all_stats()
    if options.action == "clear":
        clear_all()
    freed = sum(s.nbytes for s in before) - sum(s.nbytes for s in all_stats())
    kinds = all_stats()
    if options.json:
        print_json({"root": str(root), "kinds": [asdict(s) for s in kinds], "freed": freed})
        return 0
    if options.action == "clear":
        say(f"freed {mebibytes(freed)} in {root}")
        return 0
    print(root)
    for stats in kinds:
        print(f"  {stats.kind:10} {stats.entries:6} entries  {mebibytes(stats.nbytes):>12}")
    return 0
