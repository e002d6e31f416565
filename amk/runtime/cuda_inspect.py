"""What the machine code of a kernel does: its instructions, by nvdisasm, without a GPU."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from pathlib import Path

from amk.errors import ToolchainError
from amk.runtime.cuda_nvrtc import INSTALL_HINT

INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)", re.MULTILINE)
LOCAL_MEMORY = ("LDL", "STL")
MATRIX = ("HMMA", "QGMMA", "HGMMA", "UTCHMMA")


def find_nvdisasm() -> str:
    """The path of nvdisasm, from the PATH or NVIDIA's package."""
    if (found := shutil.which("nvdisasm")) is not None:
        return found
    spec = importlib.util.find_spec("nvidia")
    for folder in spec.submodule_search_locations or () if spec else ():
        for path in sorted(Path(folder).glob("*/bin/nvdisasm")):
            return str(path)
    raise ToolchainError(f"nvdisasm is missing; {INSTALL_HINT}")


def nvdisasm(cubin: bytes, option: str) -> str:
    """What nvdisasm prints of machine code; ToolchainError when it cannot read it."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        done = subprocess.run(
            [find_nvdisasm(), option, file.name], capture_output=True, text=True, errors="replace"
        )
    if done.returncode != 0:
        raise ToolchainError(f"nvdisasm failed: {done.stderr.strip() or done.returncode}")
    return done.stdout


def disassemble(cubin: bytes) -> str:
    """The machine code as text; ToolchainError when nvdisasm cannot read it."""
    return nvdisasm(cubin, "-c")


def instructions(cubin: bytes) -> Counter[str]:
    """How often each instruction, with its modifiers, stands in the machine code."""
    return Counter(INSTRUCTION.findall(disassemble(cubin)))


def having(found: Counter[str], *parts: str) -> int:
    """Instructions that begin with the first part and have the others among their modifiers."""
    first, *rest = parts
    return sum(
        n
        for name, n in found.items()
        if name.split(".")[0] == first and set(rest) <= set(name.split("."))
    )
