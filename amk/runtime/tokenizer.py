"""Text to token ids and back, and chat templates, without transformers."""

from __future__ import annotations

import codecs
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from amk.errors import AmkError, ModelFileError
from amk.runtime.model_files import read_json

# The named special tokens a chat template may use.
SPECIAL_TOKENS = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
)

# Tokens held back at most: a character has no more than four bytes, so more are not one.
MAX_WAITING = 32

Message = Mapping[str, Any]


class TokenStream(ABC):
    """Text out of tokens that arrive one at a time.

    The pieces `push` and `finish` return, joined, are the decoded text of all tokens, and no piece
    ends inside a character. (Where tokens are not valid UTF-8, the two may differ in where they
    put U+FFFD: text that was shown is never taken back.)
    """

    @abstractmethod
    def push(self, token: int) -> str:
        """The text `token` completes, often a word, sometimes none."""

    @abstractmethod
    def finish(self) -> str:
        """What is left when no token follows: U+FFFD for a character that never got whole."""


class TextTokenizer(ABC):
    """What a session needs of a tokenizer. Ids are plain ints."""

    @abstractmethod
    def encode(self, text: str, special: bool = True) -> list[int]:
        """Ids of `text`; `special` adds what the model expects around a prompt, such as BOS."""

    @abstractmethod
    def decode(self, ids: Sequence[int]) -> str:
        """Text of `ids`, special tokens left out."""

    @abstractmethod
    def stream(self) -> TokenStream:
        """A new incremental decoder."""

    @abstractmethod
    def special_tokens(self) -> dict[str, str]:
        """The named special tokens, for the chat template."""

    def chat(self, template: str | None, messages: Sequence[Message]) -> list[int]:
        """Ids of a conversation, ready for the assistant's next turn.

        AmkError when the model has no template; ModelFileError when it refuses the messages.
        """
        if template is None:
            raise AmkError("the model has no chat template: use --prompt")
        return self.encode(render_chat(template, messages, self.special_tokens()), special=False)


class JsonTokenizer(TextTokenizer):
    """The tokenizer of a folder: tokenizer.json, with tokenizer_config.json when it is there."""

    def __init__(self, folder: Path, name: str):
        from tokenizers import Tokenizer

        path = folder / "tokenizer.json"
        if not path.is_file():
            raise ModelFileError(f"{name} has no tokenizer.json: use --prompt-ids")
        try:
            self._tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:
            # The package raises bare Exception for whatever is wrong with the file.
            reason = (str(error).splitlines() or ["unknown"])[0]
            raise ModelFileError(f"{path} is not a usable tokenizer: {reason}") from error
        # Limits a training run left in the file would cut or pad a prompt.
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        # add_bos_token and add_eos_token are not looked at: beside a tokenizer.json transformers
        # ignores them too, for the file's own post-processor has what they say.
        config = _optional_json(folder / "tokenizer_config.json")
        self._special = {
            field: text
            for field in SPECIAL_TOKENS
            if (text := _token_text(config.get(field))) is not None
        }

    def encode(self, text: str, special: bool = True) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=special).ids

    def decode(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(list(ids), skip_special_tokens=True)

    def stream(self) -> TokenStream:
        return _JsonStream(self._tokenizer)

    def special_tokens(self) -> dict[str, str]:
        return dict(self._special)


class _JsonStream(TokenStream):
    """Decodes the tokens of the last piece together with the new ones, and gives what was added.

    The earlier tokens settle the spaces between words. (The package's own DecodeStream raises when
    a later byte changes how earlier ones decode, which a model may well generate.)
    """

    def __init__(self, tokenizer: Any):
        self._tokenizer = tokenizer
        self._shown: list[int] = []
        self._waiting: list[int] = []

    def push(self, token: int) -> str:
        self._waiting.append(token)
        piece = self._added()
        # A replacement character at the end may be a character whose bytes are still to come.
        unfinished = piece.endswith("\ufffd") and len(self._waiting) < MAX_WAITING
        if not piece or unfinished:
            return ""
        self._shown, self._waiting = self._waiting, []
        return piece

    def finish(self) -> str:
        return self._added()

    def _added(self) -> str:
        before = self._tokenizer.decode(self._shown, skip_special_tokens=True)
        both = self._tokenizer.decode(self._shown + self._waiting, skip_special_tokens=True)
        return both[len(before) :]


class ByteTokenizer(TextTokenizer):
    """One token a byte of UTF-8, for models of 256 tokens that have no vocabulary of their own."""

    def encode(self, text: str, special: bool = True) -> list[int]:
        return list(text.encode())

    def decode(self, ids: Sequence[int]) -> str:
        return bytes(ids).decode(errors="replace")

    def stream(self) -> TokenStream:
        return _ByteStream()

    def special_tokens(self) -> dict[str, str]:
        return {}


class _ByteStream(TokenStream):
    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token: int) -> str:
        return self._decoder.decode(bytes([token]))

    def finish(self) -> str:
        return self._decoder.decode(b"", final=True)


def folder_chat_template(folder: Path) -> str | None:
    """A folder's chat template: chat_template.jinja, else the one in tokenizer_config.json."""
    path = folder / "chat_template.jinja"
    if path.is_file():
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ModelFileError(f"{path} cannot be read as text: {error}") from error
    template = _optional_json(folder / "tokenizer_config.json").get("chat_template")
    if isinstance(template, list):
        # The older form: several named templates, of which "default" is meant for plain chat.
        named = {t.get("name"): t.get("template") for t in template if isinstance(t, dict)}
        template = named.get("default")
    return template if isinstance(template, str) else None


def render_chat(
    template: str,
    messages: Sequence[Message],
    special_tokens: Mapping[str, str],
    add_generation_prompt: bool = True,
) -> str:
    """The text of a conversation, as transformers' apply_chat_template renders it.

    `messages` are dicts with "role" and "content". The template comes with the model and is not
    trusted: it runs in Jinja's immutable sandbox. ModelFileError when it fails or refuses.
    """
    import jinja2

    try:
        return (
            _environment()
            .from_string(template)
            .render(
                messages=[dict(message) for message in messages],
                tools=None,
                documents=None,
                add_generation_prompt=add_generation_prompt,
                **special_tokens,
            )
        )
    except (jinja2.TemplateError, TypeError, ValueError, ArithmeticError, LookupError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ModelFileError(f"the chat template refused the messages: {reason}") from error


def _environment() -> Any:
    """The environment chat templates are written for (transformers' documented one)."""
    import jinja2
    import jinja2.ext
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(jinja2.ext.Extension):
        """{% generation %} marks the assistant's text for training and renders as its body."""

        tags = {"generation"}

        def parse(self, parser: Any) -> Any:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


def _tojson(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
    """Jinja's own filter escapes HTML, which a prompt must not be."""
    return json.dumps(value, ensure_ascii=ensure_ascii, **options)


def _raise_exception(message: str) -> None:
    import jinja2

    raise jinja2.TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)


def _token_text(value: object) -> str | None:
    """A token in tokenizer_config.json is its text, or an object with its text as "content"."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None


def _optional_json(path: Path) -> dict[str, Any]:
    return read_json(path) if path.is_file() else {}
