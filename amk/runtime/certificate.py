"""The certificate beside a compiled program: which proofs it rests on, and of which files.

Written when a program is compiled, checked before its library is loaded; free of xDSL.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from amk.errors import AmkError

CERTIFICATE = "certificate.json"
FORMAT = 2
ANY_STEPS = "any number of steps a launch"
RULES = tuple(f"V{n}" for n in range(1, 14))


def digest(path: Path) -> str:
    """Hex SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def save_certificate(
    folder: Path, proofs: Sequence[Mapping[str, Any]], files: Sequence[str]
) -> None:
    """Writes the proofs, a mapping each, and the hashes of `files` in `folder`."""
    content = {
        "format": FORMAT,
        "programs": [dict(p) for p in proofs],
        "files": {name: digest(folder / name) for name in files},
    }
    (folder / CERTIFICATE).write_text(json.dumps(content, indent=1) + "\n")


def check_certificate(
    folder: Path, max_seq: int, tokens: Sequence[int], files: Sequence[str]
) -> None:
    """AmkError unless the certificate holds a proof under every rule for each program, at every
    position, and names `files` with the contents they have."""
    path = folder / CERTIFICATE
    advice = "run `amk cache clear` and compile again"
    try:
        content = json.loads(path.read_text())
        proofs, hashes = content["programs"], content["files"]
        known = content["format"] == FORMAT and len(proofs) == len(tokens)
        for proof, width in zip(proofs, tokens, strict=True) if known else ():
            known &= proof["positions"] == max_seq - width + 1
            known &= set(proof["obligations"]) >= set(RULES) and "steps" in proof
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise AmkError(f"{path}: no certificate of this program ({error}); {advice}") from error
    if not known:
        raise AmkError(f"{path}: the certificate is for another program; {advice}")
    for name in files:
        if hashes.get(name) != digest(folder / name):
            raise AmkError(f"{folder / name}: the certificate is for other contents; {advice}")


def covers_steps(folder: Path, number: int) -> bool:
    """Does the proof of a program hold for any number of steps a launch? Of a certificate that
    `check_certificate` has accepted."""
    content = json.loads((folder / CERTIFICATE).read_text())
    return content["programs"][number]["steps"] == ANY_STEPS


def refuse_several_steps(folder: Path, proved: bool) -> None:
    """AmkError unless the decode program in `folder` is proved for launches of several steps."""
    if not proved:
        raise AmkError(
            f"{folder / CERTIFICATE}: the proof is for one step a launch; take steps one at a time"
            " (`amk explain` says what is against several)"
        )
