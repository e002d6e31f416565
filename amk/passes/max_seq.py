"""How many positions a module is compiled for: its attribute `amk.max_seq`."""

from __future__ import annotations

from xdsl.dialects.builtin import IntegerAttr, ModuleOp, i64

from amk.errors import AmkError

ATTRIBUTE = "amk.max_seq"


def resolve_max_seq(module: ModuleOp, option: int | None, what: str) -> int:
    """The pass option if given, which is then written on the module, else the attribute.

    Raises AmkError when both are missing, when they differ, or when the number is not positive.
    """
    attribute = module.attributes.get(ATTRIBUTE)
    known = attribute.value.data if isinstance(attribute, IntegerAttr) else None
    if option is None and known is None:
        raise AmkError(f"{what}: give max-seq, or set {ATTRIBUTE} on the module")
    if option is not None and known is not None and option != known:
        raise AmkError(f"{what}: max-seq is {option}, but the module has {ATTRIBUTE} = {known}")
    number = option if option is not None else known
    assert number is not None
    if number < 1:
        raise AmkError(f"{what}: max-seq is {number}; give a positive number of positions")
    module.attributes[ATTRIBUTE] = IntegerAttr(number, i64)
    return number
