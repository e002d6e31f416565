"""The README's examples run."""

import re
import shlex
from pathlib import Path

import pytest

from amk.cli.main import main

README = (Path(__file__).parents[2] / "README.md").read_text()
COMMANDS = re.findall(r"^    (amk .*?)(?:\s{2,}#.*)?$", README, re.MULTILINE)


def test_python_example(capsys):
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})
    tokens = eval(capsys.readouterr().out)
    assert len(tokens) == 8
    assert all(0 <= t < 256 for t in tokens)


@pytest.mark.parametrize("command", [c for c in COMMANDS if " toy " in c])
def test_toy_command(command, capsys):
    assert main(shlex.split(command)[1:]) == 0
    assert len(capsys.readouterr().out.split()) == 8


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_are_understood(command, capsys):
    """A wrong option is exit code 2; these fail, if at all, because the model is not there."""
    words = shlex.split(command)[1:]
    if "toy" not in words:
        assert main(words) == 1
        assert "model.gguf" in capsys.readouterr().err or "./folder" in " ".join(words)
