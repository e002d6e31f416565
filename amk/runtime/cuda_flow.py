"""Which instructions of a kernel stand before which: its machine code as a graph."""

from __future__ import annotations

import re
from itertools import pairwise

import networkx as nx

from amk.runtime.cuda_inspect import nvdisasm

NODE = re.compile(r'^"(?P<name>[^"]+)"\n\[label="\{(?P<label>.*)\}"\]$', re.MULTILINE)
EDGE = re.compile(r'^"([^"]+)":(\w+)(?::\w)? -> "([^"]+)":(\w+)', re.MULTILINE)
PORT = re.compile(r"<(\w+)>")
INTERNAL = "$"
"""How the names of functions begin that a kernel calls."""

Segment = tuple[str, str]
"""A run of instructions without a branch out of its middle: its block, and its port there."""


def control_flow(cubin: bytes) -> nx.DiGraph:
    """The control flow graph of the machine code, by nvdisasm. A node is a segment; its attribute
    `text` holds the instructions. Raises ToolchainError when nvdisasm cannot read the code."""
    text = nvdisasm(cubin, "-cfg")
    graph = nx.DiGraph()
    for node in NODE.finditer(text):
        name, parts = node["name"], re.split(r"(?<!\\)\|", node["label"])
        ports = [found[1] for part in parts if (found := PORT.match(part))]
        for port, part in zip(ports, parts, strict=True):
            graph.add_node((name, port), text=part.replace("\\", ""))
        graph.add_edges_from(pairwise((name, port) for port in ports))
    for source, out, target, into in EDGE.findall(text):
        graph.add_edge((source, out), (target, into))
    return graph


def holding(graph: nx.DiGraph, *patterns: str) -> set[Segment]:
    """The segments that hold an instruction that one of the patterns matches from its name on."""
    wanted = re.compile("|".join(rf"(?<![\w.])(?:{pattern})" for pattern in patterns))
    return {node for node, text in graph.nodes(data="text") if wanted.search(str(text))}


def before_any(graph: nx.DiGraph, *patterns: str) -> set[Segment]:
    """The segments a warp can reach before the first instruction that one of `patterns` matches:
    from the kernel's first on, without a segment that holds one."""
    (first,) = (n for n in graph if graph.in_degree(n) == 0 and not n[0].startswith(INTERNAL))
    rest = graph.subgraph(set(graph) - holding(graph, *patterns))
    return {first, *nx.descendants(rest, first)} if first in rest else set()
