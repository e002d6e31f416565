"""Folders, hub snapshots and toys as sources, and every kind of bad one."""

import errno
import json
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from tiny_files import raw_safetensors, save_folder, save_toy

from amk.errors import AmkError, ImportRefused, ModelFileError
from amk.runtime.source import open_source

HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"
NORM = "model.norm.weight"


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("AMK_CACHE_DIR", str(tmp_path / "cache"))


def toy_tensors():
    toy = open_source("toy")
    return {key: toy.read(key) for key in toy.tensors()}


# --- toys ---


@pytest.mark.parametrize(("name", "layers"), [("toy", 1), ("toy-2L", 2)])
def test_toy_loads_into_transformers(name, layers):
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    source = open_source(name)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**source.config()))
    assert len(model.model.layers) == layers
    for key, tensor in model.state_dict().items():
        assert source.read(key).shape == tuple(tensor.shape)
    assert set(source.tensors()) == set(model.state_dict()) - {HEAD}
    assert source.eos_token_ids() == []
    assert source.tokenizer().decode(source.tokenizer().encode("hé")) == "hé"


def test_toy_weights_never_change():
    """The values are part of the toy: results elsewhere depend on them."""
    source = open_source("toy")
    assert source.read(NORM)[:3].tolist() == [
        1.118952989578247,
        1.2366007566452026,
        1.2051239013671875,
    ]
    query = source.read("model.layers.0.self_attn.q_proj.weight")
    assert 0.9 < query.var() * 64 < 1.1
    assert abs(query.mean()) < 0.01


def test_toys_differ_in_depth_alone():
    one, two = open_source("toy"), open_source("toy-2L")
    assert one.fingerprint() != two.fingerprint()
    assert all(np.array_equal(one.read(key), two.read(key)) for key in one.tensors())


# --- reading ---


def test_read_into_a_buffer_and_as_another_dtype(tmp_path):
    source = open_source(save_toy(tmp_path / "m"))
    out = np.zeros((256, 64), np.uint16)
    assert source.read(EMBEDDING, out=out, dtype="bf16") is out
    f32 = source.read(EMBEDDING)
    assert np.array_equal(f32, open_source("toy").read(EMBEDDING))
    assert np.abs((out.astype(np.uint32) << 16).view(np.float32) / f32 - 1).max() <= 2**-8
    assert np.array_equal(source.read(EMBEDDING, dtype="f16"), f32.astype(np.float16))
    with pytest.raises(ValueError, match=r"buffer is float32"):
        source.read(EMBEDDING, out=np.empty((64, 256), np.float32))


def test_bfloat16_folder_from_transformers(tmp_path):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=False,
        eos_token_id=[2, 5],
    )  # fmt: skip
    model = LlamaForCausalLM(config).to(torch.bfloat16)
    model.save_pretrained(tmp_path / "m", max_shard_size="8KB")
    source = open_source(tmp_path / "m")
    assert len(list((tmp_path / "m").glob("*.safetensors"))) > 1
    assert set(source.tensors()) == set(model.state_dict())
    assert source.eos_token_ids() == [2, 5]
    for key, tensor in model.state_dict().items():
        assert source.info(key).dtype == "bf16"
        assert np.array_equal(source.read(key), tensor.view(torch.uint16).numpy())
        assert np.array_equal(source.read(key, dtype="f32"), tensor.float().numpy())


def test_checkpoint_without_the_models_prefix(tmp_path):
    """Some checkpoints were saved from the model inside the language model."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=40, n_embd=16, n_layer=1, n_head=2))
    tensors = {key: value.numpy() for key, value in model.transformer.state_dict().items()}
    config = model.config.to_dict() | {"architectures": ["GPT2LMHeadModel"]}
    save_folder(tmp_path / "m", tensors, config)
    source = open_source(tmp_path / "m")
    for key, tensor in model.state_dict().items():
        assert np.array_equal(source.read(key), tensor.numpy()), key
    with pytest.raises(ModelFileError, match=r"no tensor 'transformer\.h\.7\.x'"):
        source.read("transformer.h.7.x")


def test_a_prefix_is_left_out_for_the_whole_file_or_not_at_all(tmp_path):
    tensors = toy_tensors()
    tensors["norm.weight"] = tensors.pop(NORM)
    save_folder(tmp_path / "m", tensors, open_source("toy").config())
    with pytest.raises(ModelFileError, match=r"no tensor 'model\.norm\.weight'"):
        open_source(tmp_path / "m").read(NORM)


# --- ties ---


def test_tied_head_is_the_embedding(tmp_path):
    source = open_source(save_toy(tmp_path / "m"))
    assert HEAD not in source.tensors()
    assert source.info(HEAD) == source.info(EMBEDDING)
    assert np.array_equal(source.read(HEAD), source.read(EMBEDDING))


def test_tie_works_the_other_way(tmp_path):
    tensors = toy_tensors()
    tensors[HEAD] = tensors.pop(EMBEDDING)
    save_folder(tmp_path / "m", tensors, open_source("toy").config())
    assert np.array_equal(open_source(tmp_path / "m").read(EMBEDDING), tensors[HEAD])


def test_untied_model_needs_its_head(tmp_path):
    source = open_source(save_toy(tmp_path / "m", tie_word_embeddings=False))
    with pytest.raises(ModelFileError, match=r"no tensor 'lm_head\.weight'"):
        source.read(HEAD)


def test_silent_config_ties_as_its_class_does(tmp_path):
    llama = open_source(save_toy(tmp_path / "a", tie_word_embeddings=None))
    assert llama.config()["tie_word_embeddings"] is False
    gemma = open_source(save_toy(tmp_path / "b", tie_word_embeddings=None, model_type="gemma"))
    assert gemma.config()["tie_word_embeddings"] is True


@pytest.mark.parametrize("equal", [True, False])
def test_a_stored_head_that_differs_is_not_tied(tmp_path, equal):
    tensors = toy_tensors()
    tensors[HEAD] = tensors[EMBEDDING].copy()
    if not equal:
        tensors[HEAD][0, 0] += 1
    save_folder(tmp_path / "m", tensors, open_source("toy").config())
    source = open_source(tmp_path / "m")
    assert source.config()["tie_word_embeddings"] is equal
    assert np.array_equal(source.read(HEAD), tensors[HEAD])


# --- identity ---


def test_fingerprint_is_of_the_shape_and_not_the_place(tmp_path):
    one = open_source(save_toy(tmp_path / "a", _name_or_path="x", transformers_version="1"))
    two = open_source(save_toy(tmp_path / "b"))
    assert one.fingerprint() == two.fingerprint()
    assert one.weights_key() != two.weights_key()
    other = open_source(save_toy(tmp_path / "c", rms_norm_eps=1e-6))
    assert other.fingerprint() != two.fingerprint()
    narrow = {key: value.astype(np.float16) for key, value in toy_tensors().items()}
    save_folder(tmp_path / "d", narrow, open_source("toy").config())
    assert open_source(tmp_path / "d").fingerprint() != two.fingerprint()


def test_config_is_the_callers_own(tmp_path):
    source = open_source(save_toy(tmp_path / "m"))
    source.config()["rope_parameters"]["rope_theta"] = 1
    assert source.config()["rope_parameters"]["rope_theta"] == 10000.0


def test_end_tokens_come_from_the_generation_config(tmp_path):
    folder = save_toy(tmp_path / "m", eos_token_id=3)
    assert open_source(folder).eos_token_ids() == [3]
    (folder / "generation_config.json").write_text('{"eos_token_id": [4, 5]}')
    assert open_source(folder).eos_token_ids() == [4, 5]
    (folder / "generation_config.json").write_text('{"eos_token_id": "4"}')
    with pytest.raises(ModelFileError, match="token ids must be numbers"):
        open_source(folder).eos_token_ids()


# --- hub ---


def hub_model(root: Path) -> Path:
    folder = root / "hub" / "models--org--name"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text("abc123")
    return save_toy(folder / "snapshots" / "abc123")


def test_hub_id_is_found_in_the_local_cache(tmp_path, monkeypatch):
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    folder = hub_model(tmp_path)
    assert open_source("org/name").path == folder
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "elsewhere"))
    with pytest.raises(ModelFileError, match="hf download org/name"):
        open_source("org/name")


def test_hub_snapshot_that_is_gone(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    folder = hub_model(tmp_path)
    save_toy(tmp_path / "outside")
    for commit in ("gone", "../../../outside", "", "."):
        (folder.parents[1] / "refs" / "main").write_text(commit)
        with pytest.raises(ModelFileError, match="names a snapshot that is not there"):
            open_source("org/name")


@pytest.mark.parametrize(
    "name", ["", "no/such/folder/here", "/no/such", "../x", "gone.gguf", "a\0b"]
)
def test_what_is_no_model_at_all(name):
    with pytest.raises(ModelFileError) as caught:
        open_source(name)
    assert "\n" not in str(caught.value)


# --- bad folders ---


def test_empty_folder(tmp_path):
    with pytest.raises(ModelFileError, match=r"no config\.json: it is empty"):
        open_source(tmp_path)


def test_folder_with_a_gguf_says_so(tmp_path):
    (tmp_path / "x.gguf").touch()
    with pytest.raises(ModelFileError, match=r"give the file itself, .*x\.gguf"):
        open_source(tmp_path)


def test_pickles_are_refused(tmp_path):
    folder = save_toy(tmp_path / "m")
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelFileError, match=r"neither model\.safetensors nor"):
        open_source(folder)
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({}))
    with pytest.raises(ModelFileError, match="pickled weights only"):
        open_source(folder)
    with pytest.raises(ModelFileError, match="is a pickle"):
        open_source(folder / "pytorch_model.bin")


def test_other_files_are_refused(tmp_path):
    folder = save_toy(tmp_path / "m")
    with pytest.raises(ModelFileError, match="give its folder"):
        open_source(folder / "model.safetensors")
    with pytest.raises(ModelFileError, match=r"is not a \.gguf file"):
        open_source(folder / "config.json")
    os.mkfifo(tmp_path / "pipe.gguf")
    with pytest.raises(ModelFileError, match="neither a folder nor a regular file"):
        open_source(tmp_path / "pipe.gguf")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"model_type": "bert", "architectures": ["BertForMaskedLM"]}, "is bert .BertForMaskedLM"),
        ({"model_type": "t5", "is_encoder_decoder": True}, "is t5"),
        ({"quantization_config": {"quant_method": "gptq"}}, "quantized with gptq"),
    ],
)
def test_models_of_another_kind_are_refused_by_name(tmp_path, overrides, message):
    folder = save_toy(tmp_path / "m", **overrides)
    with pytest.raises(ImportRefused, match=message):
        open_source(folder)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "not valid JSON"),
        (b"\xff\xfe{", "not valid JSON"),
        (b"[1]", "list, not a JSON object"),
        (b"[" * 100_000, "not valid JSON"),
        (b"{}", "no model_type"),
        (b'{"model_type": "llama", "architectures": "X"}', "not a list"),
    ],
)
def test_damaged_config(tmp_path, text, message):
    folder = save_toy(tmp_path / "m")
    (folder / "config.json").write_bytes(text)
    with pytest.raises(ModelFileError, match=message):
        open_source(folder)


@pytest.mark.parametrize("part", ["config.json", "model.safetensors"])
def test_no_permission(tmp_path, monkeypatch, part):
    folder = save_toy(tmp_path / "m")
    (folder / part).chmod(0)
    if os.geteuid() == 0:
        # Root reads everything, so the refusal is played.
        real = Path.open

        def refuse(self, *args, **kwargs):
            if self.name == part:
                raise PermissionError(errno.EACCES, "Permission denied", str(self))
            return real(self, *args, **kwargs)

        monkeypatch.setattr(Path, "open", refuse)
        monkeypatch.setattr(Path, "read_bytes", lambda self: self.open("rb").read())
    with pytest.raises(ModelFileError, match="cannot be read: Permission denied"):
        open_source(folder)


# --- bad safetensors ---


@pytest.mark.parametrize("size", [0, 7, 8, 50, 1000, -1, -60_000])
def test_truncated_safetensors(tmp_path, size):
    folder = save_toy(tmp_path / "m")
    path = folder / "model.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[: size if size >= 0 else len(whole) + size])
    with pytest.raises(ModelFileError, match=r"model\.safetensors") as caught:
        open_source(folder)
    assert "\n" not in str(caught.value)


def entry(shape, start, stop, dtype="F32"):
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, stop]}


@pytest.mark.parametrize(
    ("header", "length", "message"),
    [
        ({}, 1 << 62, "header does not fit"),
        ({}, (1 << 64) - 1, "header does not fit"),
        ({"a": entry([2], 0, 8)}, 5, "bad header"),
        (b"\x00" * 16, None, "bad header"),
        (b"[]", None, "not an object"),
        (b'{"a": 1, "a": 2}', None, "given twice"),
        (b"[" * 100_000, None, "bad header"),
        ({"a": 3}, None, "malformed"),
        ({"a": {"dtype": "F32", "shape": [2]}}, None, "malformed"),
        ({"a": entry([2], 0, 8, "F33")}, None, "malformed"),
        ({"a": entry(7, 0, 8)}, None, "malformed"),
        ({"a": entry([-1, -2], 0, 8)}, None, "no count"),
        ({"a": entry([2.0], 0, 8)}, None, "no count"),
        ({"a": entry([3], 0, 8)}, None, "but has 8 bytes"),
        ({"a": entry([1 << 40, 1 << 40], 0, 8)}, None, "but has 8 bytes"),
        ({"a": entry([2], 8, 0)}, None, "but has -8 bytes"),
        ({"a": entry([2], 0, 8), "b": entry([1], 4, 8)}, None, "overlaps"),
        ({"a": entry([1], 4, 8)}, None, "leaves a gap"),
        ({"a": entry([4], 0, 16)}, None, "cut short"),
        ({"a": entry([1], 0, 4)}, None, "cut short"),
    ],
)
def test_lying_safetensors(tmp_path, header, length, message):
    folder = save_toy(tmp_path / "m")
    raw_safetensors(folder / "model.safetensors", header, bytes(8), length)
    with pytest.raises(ModelFileError, match=message) as caught:
        open_source(folder)
    assert "\n" not in str(caught.value)


def test_a_file_cut_while_open_is_noticed(tmp_path):
    folder = save_toy(tmp_path / "m")
    source = open_source(folder)
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(ModelFileError, match="changed while it was open"):
        source.read(NORM)


@pytest.mark.parametrize(
    ("weight_map", "message"),
    [
        ({}, "no weight_map"),
        ({"a": "../../secret.safetensors"}, "not a file beside it"),
        ({"a": "/etc/passwd"}, "not a file beside it"),
        ({"a": "b.safetensors"}, "b.safetensors is missing"),
        ({"zz": "part.safetensors"}, "part.safetensors lacks 'zz'"),
        ({NORM: "part.safetensors"}, "does not list"),
    ],
)
def test_bad_index(tmp_path, weight_map, message):
    folder = save_toy(tmp_path / "m")
    (folder / "model.safetensors").rename(folder / "part.safetensors")
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))
    with pytest.raises(AmkError, match=message):
        open_source(folder)
