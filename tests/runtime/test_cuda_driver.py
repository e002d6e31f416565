"""The driver's side of a session, against a stand-in that records every call and keeps memory."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from amk.errors import AmkError
from amk.runtime.cuda_driver import detect
from amk.runtime.kernel_device import Arguments
from amk.runtime.kernel_program import KernelProgram
from amk.runtime.kernel_trouble import TROUBLE_WORDS
from tests.runtime.driver_stand_in import Recorder, fake_code, opened
from tests.runtime.simt_tools import toy


@pytest.fixture
def program(cache_root: Path, tmp_path: Path) -> KernelProgram:
    """The toy for three blocks."""
    return fake_code(toy(), tmp_path / "program")


def test_launches(program: KernelProgram) -> None:
    api = Recorder()
    with opened(program, api) as session:
        session.step(3)
        session.step(4)
        plan = program.plans[0]
        first, second = api.launches
        assert first["grid"] == (plan.blocks, 1, 1)
        assert first["block"] == (plan.threads, 1, 1)
        assert first["shared"] == plan.shared_bytes
        assert first["stream"] == 0
        assert first["function"] == "amk_program of module 1"
        assert (first["past"], first["number"]) == (0, 1)
        assert (second["past"], second["number"]) == (1, 2)
        assert second["capacity"] >= 2
        session.prefill(list(range(16)))
        assert api.launches[-1]["function"] == "amk_program of module 16"
        assert (api.launches[-1]["past"], api.launches[-1]["number"]) == (2, 1)


def makes(api: Recorder, *tokens: int) -> Callable[[Arguments], None]:
    """A kernel that makes these tokens."""

    def launch(arguments: Arguments) -> None:
        box = api.bytes_at(arguments.made, 8 * len(tokens))
        box[:] = np.array(tokens, np.int64).view(np.uint8)

    return launch


def test_steps_of_a_launch(program: KernelProgram) -> None:
    api = Recorder()
    with opened(program, api) as session:
        api.on_launch = makes(api, 7, 9, 4)
        assert session.steps(5, 6, [4, 8]) == [7, 9, 4]
        first = api.launches[-1]
        assert (first["past"], first["number"], first["steps"], first["end_count"]) == (0, 1, 6, 2)
        assert api.bytes_at(first["ends"], 16).view(np.int64).tolist() == [4, 8]
        assert api.bytes_at(first["token"], 8).view(np.int64).tolist() == [5]
        assert (session.tokens, session.length) == ([5, 7, 9], 3)
        assert first["capacity"] >= 6
        session.step(4)
        second = api.launches[-1]
        assert (second["past"], second["number"], second["steps"], second["end_count"]) == (
            3,
            4,
            1,
            0,
        )
        api.on_launch = lambda arguments: None
        with pytest.raises(AmkError, match="position 4: the kernel made no token"):
            session.steps(1, 2)
        assert session.length == 4


def test_weights_are_written_once_and_nothing_but_results_is_read(program: KernelProgram) -> None:
    api = Recorder()
    with opened(program, api) as session:
        before = len(api.calls)
        session.step(3)
        session.step(4)
        session.step(5)
        moved = [a for n, a in api.calls[before:] if n == "cuMemcpyHtoD"]
        weights = program.weight_bytes()
        assert sum(a[2] for a in moved) < weights / 10
        last = list(api.names())[-4:]
        assert last == [
            "cuMemcpyHtoD", "cuLaunchCooperativeKernel", "cuMemcpyDtoH", "cuMemcpyDtoH"
        ]  # fmt: skip
        api.on_launch = makes(api, 7)
        assert session.steps(5, 1) == [7]
        assert list(api.names())[-3:] == last[:3]  # no logits are read


def test_operands_point_to_what_was_written(program: KernelProgram) -> None:
    api = Recorder()
    with opened(program, api) as session:
        session.step(9)
        table = np.frombuffer(api.memory[api.launches[0]["operands"]], np.uint64)
        plan = program.plans[0]
        at = plan.operands.index(
            next(i for i, s in enumerate(program.layout.slots) if s.kind == "input")
        )
        token = api.bytes_at(int(table[at]), 8).view(np.int64)
        assert token[0] == 9


def test_everything_is_freed(program: KernelProgram) -> None:
    api = Recorder()
    opened(program, api).close()
    assert api.memory == {}
    assert api.names().count("cuModuleUnload") == 2
    assert api.names()[-1] == "cuDevicePrimaryCtxRelease"


def test_a_lost_launch_is_explained_and_the_next_starts_afresh(program: KernelProgram) -> None:
    api = Recorder()
    with opened(program, api) as session:

        def lose(arguments: Arguments) -> None:
            words = np.array([2, 1, 0, 2, 1, 5, 8, 0], np.uint32)
            api.bytes_at(arguments.trouble, 4 * TROUBLE_WORDS)[:] = words.view(np.uint8)
            api.memory[arguments.events][:4] = 7

        api.on_launch = lose
        with pytest.raises(AmkError, match=r"stage 2 .*o_proj.*event 0.*5 of 8 counted, 3 missing"):
            session.step(1)
        assert session.length == 0
        api.on_launch = lambda arguments: None
        session.step(1)
        assert api.launches[-1]["number"] == 1
        assert not api.memory[api.launches[-1]["events"]].any()


def test_growth_stays_on_the_device(program: KernelProgram) -> None:
    api = Recorder()
    with opened(program, api) as session:
        cache = session.cache
        assert cache is not None
        for token in (1, 2):
            session.step(token)
        for name, spec in cache.specs.items():
            rows = np.arange(spec.nbytes(2), dtype=np.uint8)
            api.bytes_at(cache.arrays[name], rows.size)[:] = rows
        held = {name: cache.rows(name, 2) for name in cache.specs}
        before, weights = len(api.calls), program.weight_bytes()
        session.step(3)
        moved = api.calls[before:]
        assert cache.capacity("k0") == 4
        assert {name: cache.rows(name, 2).tobytes() for name in held} == {
            name: rows.tobytes() for name, rows in held.items()
        }
        # A copy a head of each of two caches, none through the host but what a step needs.
        copies = [a for n, a in moved if n == "cuMemcpyDtoD"]
        assert [a[2] for a in copies] == [2 * 16 * 2] * 4
        assert sum(a[2] for n, a in moved if n in ("cuMemcpyHtoD", "cuMemcpyDtoH")) < weights / 10
        assert [n for n, _ in moved].count("cuMemFree") == 2


def test_memory_that_runs_out_while_caches_grow(program: KernelProgram) -> None:
    """The session goes on with what it has, at addresses that are still its own."""
    api = Recorder()
    with opened(program, api) as session:
        for token in (1, 2):
            session.step(token)
        api.fail, api.works = "cuMemAlloc", 1  # the second cache finds no room
        with pytest.raises(AmkError, match="cuMemAlloc failed: out of memory"):
            session.step(3)
        assert session.length == 2
        api.fail = ""
        session.truncate(1)
        session.step(3)
        assert session.cache is not None
        assert {session.cache.capacity(n) for n in session.cache.specs} == {4}
        table = np.frombuffer(api.memory[api.launches[-1]["operands"]], np.uint64)
        for address in table:
            api.bytes_at(int(address), 1)
    assert api.memory == {}


def test_forks(program: KernelProgram) -> None:
    api = Recorder()
    session = opened(program, api)
    session.step(1)
    before = len(api.calls)
    fork = session.fork()
    written = sum(a[2] for n, a in api.calls[before:] if n == "cuMemcpyHtoD")
    assert written < program.weight_bytes() / 10
    assert "cuMemcpyDtoD" not in api.names(before)
    fork.step(2)
    assert "cuMemcpyDtoD" in api.names(before)
    assert (api.launches[-1]["past"], api.launches[-1]["number"]) == (1, 1)
    session.step(3)
    assert api.launches[-1]["number"] == 2
    shared = set(api.launches[-1].items()) & set(api.launches[-2].items())
    assert not {"events", "trouble", "made", "operands", "token"} & {k for k, _ in shared}
    session.close()
    fork.step(4)
    assert "cuModuleUnload" not in api.names()
    fork.close()
    assert api.memory == {}
    assert api.names()[-1] == "cuDevicePrimaryCtxRelease"


def test_a_fork_that_finds_no_memory_changes_nothing(program: KernelProgram) -> None:
    api = Recorder()
    with opened(program, api) as session:
        session.step(1)
        with session.fork() as fork:
            api.fail, api.works = "cuMemAlloc", 1
            with pytest.raises(AmkError, match="out of memory"):
                fork.step(2)
            api.fail = ""
            session.step(3)
            fork.step(2)
            assert (session.tokens, fork.tokens) == ([1, 3], [1, 2])
        api.fail, held = "cuMemAlloc", len(api.memory)
        with pytest.raises(AmkError, match="out of memory"):
            session.fork()
        assert len(api.memory) == held
    assert api.memory == {}


def test_another_thread_has_the_context_too(program: KernelProgram) -> None:
    api = Recorder()
    with opened(program, api) as session:
        assert api.names().count("cuCtxSetCurrent") == 1
        thread = threading.Thread(target=session.step, args=(1,))
        thread.start()
        thread.join()
        session.step(2)
        assert api.names().count("cuCtxSetCurrent") == 2
        assert session.length == 2


def test_a_context_that_is_lost(program: KernelProgram) -> None:
    """Nothing more is asked of it, so that the first error is the one that is seen."""
    api = Recorder()
    session = opened(program, api)
    session.step(1)
    api.fail, api.status = "cuMemcpyDtoH", 719
    said = r"cuMemcpyDtoH failed: .* \(719\); this process cannot use the GPU any more"
    with pytest.raises(AmkError, match=said):
        session.steps(2, 1)
    before = len(api.calls)
    session.close()
    assert api.names(before) == ["cuDevicePrimaryCtxRelease"]


def test_too_little_free_memory(program: KernelProgram) -> None:
    api = Recorder()
    api.free = 1000
    with pytest.raises(AmkError, match=r"toy needs .* GB on the GPU, which has 0\.0 free"):
        opened(program, api)
    assert "cuMemAlloc" not in api.names()
    assert api.names()[-1] == "cuDevicePrimaryCtxRelease"


@pytest.mark.parametrize("function", ["cuMemAlloc", "cuModuleLoadData", "cuMemsetD8"])
def test_errors_say_what_failed_and_leave_nothing(program: KernelProgram, function: str) -> None:
    api = Recorder(fail=function)
    with pytest.raises(AmkError, match=rf"CUDA driver: {function} failed: out of memory \(2\)"):
        opened(program, api)
    assert api.memory == {}


def test_a_grid_that_does_not_fit_is_refused(program: KernelProgram) -> None:
    api = Recorder()
    api.resident = 0
    with pytest.raises(AmkError, match="wants 3 blocks at once and this GPU holds 0"):
        opened(program, api)
    assert "cuMemAlloc" not in api.names()


def test_a_model_too_large_is_refused_before_any_allocation(program: KernelProgram) -> None:
    api = Recorder()
    api.total = 1000
    with pytest.raises(AmkError, match=r"needs .* GB on the GPU, which has 0\.0"):
        opened(program, api)
    assert "cuMemAlloc" not in api.names()
    assert "cuDevicePrimaryCtxRetain" not in api.names()


@pytest.mark.parametrize(
    ("name", "capability", "sms", "target"),
    [
        ("NVIDIA H100 80GB HBM3", 90, 132, "h100"),
        ("NVIDIA H200", 90, 132, "h200"),
        ("NVIDIA L4", 89, 58, "l4"),
        ("NVIDIA GeForce RTX 4090", 89, 128, "rtx4090"),
        ("NVIDIA A100-SXM4-80GB", 80, 108, "a100"),
        ("Tesla T4", 75, 40, "t4"),
        ("NVIDIA A10G", 86, 80, "a10g"),
    ],
)
def test_detection(name: str, capability: int, sms: int, target: str) -> None:
    api = Recorder(name, a75=capability // 10, a76=capability % 10, a16=sms)
    assert detect(api).name == target


def test_an_unknown_architecture_is_refused() -> None:
    with pytest.raises(AmkError, match="sm_53"):
        detect(Recorder("NVIDIA Old", a75=5, a76=3))
