"""A stable hash of a program: what its text says, without the cost of printing it."""

from __future__ import annotations

import hashlib

from xdsl.ir import Attribute, SSAValue

from amk.ir import mk


def fingerprint(program: mk.ProgramOp) -> str:
    """Hex SHA-256 over every op in order: its name, the values it uses, its properties and the
    types of its results. Names of values and locations do not enter, as they change nothing."""
    numbers: dict[SSAValue, int] = {}
    texts: dict[Attribute, str] = {}

    def text(attribute: Attribute) -> str:
        found = texts.get(attribute)
        if found is None:
            found = texts[attribute] = str(attribute)
        return found

    digest = hashlib.sha256()
    for op in program.walk():
        fields = [op.name, *(str(numbers[v]) for v in op.operands)]
        for table in (op.properties, op.attributes):
            fields += [f"{key}={text(table[key])}" for key in sorted(table)]
        for region in op.regions:
            for block in region.blocks:
                for argument in block.args:
                    numbers[argument] = len(numbers)
                fields.append(f"({len(block.args)})")
        for result in op.results:
            numbers[result] = len(numbers)
            fields.append(text(result.type))
        digest.update("\n".join(fields).encode() + b"\0")
    return digest.hexdigest()
