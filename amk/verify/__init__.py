"""Proofs about `mk` programs for every position; `prove` is the door. See docs/verify.md."""

from amk.verify.check import prove as prove
from amk.verify.findings import Certificate as Certificate
from amk.verify.findings import Finding as Finding
from amk.verify.findings import Report as Report
