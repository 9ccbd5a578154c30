"""Whatever the text, each language reads the literal back as that text and runs no part of it."""

import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sifmod.errors import ModuleError
from sifmod.module import quote
from support.hostile_texts import KNOWN, SIGNS

# any text without NUL; what means something to an interpreter far more often than chance would give it
HOSTILE = st.text(st.one_of(st.sampled_from(SIGNS), st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
TEXTS = st.lists(HOSTILE, min_size=1, max_size=30)


def interpret(program: str, script: str) -> str:
    """What the program prints when it reads the script from a file, in an empty directory that stays empty."""
    with tempfile.TemporaryDirectory() as directory, tempfile.NamedTemporaryFile() as file:
        file.write(script.encode())
        file.flush()
        done = subprocess.run(
            (program, file.name), capture_output=True, cwd=directory, env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
        )
        assert done.returncode == 0, (done.stderr.decode(), script)
        assert not list(Path(directory).iterdir())
        return done.stdout.decode()


def lua(literals: list[str]) -> str:
    """Each as the argument of a call, with and without parentheses, as modulefiles have it."""
    return interpret(
        "lua5.3", "".join(f"io.write({text}, '\\0'); io.stdout:write{text}:write'\\0';\n" for text in literals)
    )


def tcl(literals: list[str]) -> str:
    """Each as a word of a command, and as one within a braced body."""
    puts = "puts -nonewline stdout"
    return interpret(
        "tclsh",
        "fconfigure stdout -encoding utf-8 -translation lf\n"
        + "".join(f"{puts} {text}; {puts} \\0\nif 1 {{\n{puts} {text}; {puts} \\0\n}}\n" for text in literals),
    )


def sh(literals: list[str]) -> str:
    """Each as an argument, and as the value of a variable."""
    return interpret("sh", "".join(f"printf '%s\\0' {text}\nx={text}; printf '%s\\0' \"$x\"\n" for text in literals))


LANGUAGES = pytest.mark.parametrize(
    ("interpreter", "literal"), [(lua, quote.lua), (tcl, quote.tcl), (sh, quote.shell)], ids=["lua", "tcl", "sh"]
)


@LANGUAGES
@given(texts=TEXTS)
@example(texts=KNOWN)
@settings(max_examples=60)
def test_every_text_comes_back(
    interpreter: Callable[[list[str]], str], literal: Callable[[str], str], texts: list[str]
) -> None:
    read = interpreter([literal(text) for text in texts]).split("\0")[:-1]
    assert read == [text for text in texts for _ in range(2)]


@pytest.mark.parametrize("literal", [quote.lua, quote.tcl, quote.shell])
def test_nul_is_refused(literal: Callable[[str], str]) -> None:
    with pytest.raises(ModuleError, match="NUL"):
        literal("a\0b")


def test_plain_text_stays_readable() -> None:
    assert quote.lua("/pfs") == '"/pfs"'
    assert quote.lua("two\nlines\n") == "[==[\ntwo\nlines\n]==]"
    assert quote.tcl("/pfs:/a_b-1.0") == "/pfs:/a_b-1.0"
    assert quote.tcl("two words [x] $y") == "{two words [x] $y}"
    assert quote.shell("/opt/x.sif") == "/opt/x.sif"
    assert quote.shell("it's") == "'it'\\''s'"
