"""The text of an easyconfig's draft: what is known of an image, and what its author has to decide."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sifmod.actions.author.new_file import quoted
from sifmod.config.redact import shown
from sifmod.image.guess import Guess
from sifmod.image.inspect.python_environments import PythonEnvironment
from sifmod.image.printable import line

_OCI = "org.opencontainers.image."
_URL = re.compile(r"https?://[!-~]+")
_SCHEMA = "org.label-schema."


@dataclass(frozen=True)
class Source:
    """The image's part of the easyconfig: its source and its digest."""

    source: str
    why: str  # a comment about the source
    arch: str
    sha256: str = ""  # the expected digest; "" if the source pins the image
    filename: str = ""  # "" for the default
    pip: tuple[str, ...] | None = None  # packages to build on it, which makes it the base


def draft(guess: Guess, source: Source, asked: str, named: tuple[str, str]) -> str:
    """The YAML text for the image that `asked` names; `named` are the module's name and version.

    Text from the image is quoted and fits on one line; the same arguments give the same text.
    """
    words = _comment(shown(asked) if source.pip is None else f"--from {shown(asked)}")
    lines = [
        f"# A first easyconfig, written by `sifmod new {words}` from the image's metadata and contents.",
        "# Review and correct it; `sifmod check` validates it, `sifmod install` installs it.",
        *_identity(guess, named, map(_package, (source.pip or ())[:1])),
        *_about(guess),
        f"# {_comment(guess.gpu.why)}",
        f"accelerator: {guess.gpu.accelerator}",
        *_image(source),
        *_python(guess),
        *_commands(guess),
    ]
    return "\n".join(lines) + "\n"


def _identity(guess: Guess, named: tuple[str, str], added: Iterable[str]) -> Iterator[str]:
    name, version = named
    guessed = guess.named
    yield ""
    if name == guessed.name:
        yield f"# from {_comment(guessed.name_from)}"
    yield f"name: {quoted(name)}"
    if version == guessed.version:
        yield f"# from {_comment(guessed.version_from)}"
    yield f"version: {quoted(version, always=True)}"
    suffix = guess.versionsuffix + "".join(f"-{name}" for name in added)
    if suffix:
        yield f"versionsuffix: {quoted(suffix)}"


def _about(guess: Guess) -> Iterator[str]:
    labels = guess.labels
    for key, names in (
        ("description", (f"{_OCI}description", f"{_SCHEMA}description", f"{_OCI}title")),
        ("license", (f"{_OCI}licenses", "license")),
    ):
        if text := next((" ".join(labels[name].split()) for name in names if labels.get(name, "").strip()), ""):
            yield f"{key}: {quoted(line(text, 1000))}"
    if homepage := _first_url(guess, ("url", "source")):
        yield f"homepage: {quoted(homepage)}"
    if documentation := _first_url(guess, ("documentation",)):
        yield f"docurls: {_list((documentation,))}"
    if guess.contents:
        others = len(guess.python.packages) - len(guess.contents) if guess.python else 0
        yield f"# the best known of its packages; {others} more are in the image" if others else "# its packages"
        yield "contents:"
        yield from (f"  {quoted(name)}: {quoted(version, always=True)}" for name, version in guess.contents)


def _first_url(guess: Guess, names: Iterable[str]) -> str:
    found = (guess.labels.get(f"{_OCI}{name}", "").strip() for name in names)
    return next((url for url in found if _URL.fullmatch(url) and len(url) <= 1000), "")


def _image(source: Source) -> Iterator[str]:
    yield "image:"
    if source.pip is not None:
        yield "  build:"
        yield f"    # {_comment(source.why)}"
        yield f"    from: {quoted(source.source)}"
        yield "    # packages to add, as pip spells them; protected packages stay as they are in the base"
        yield f"    pip: {_list(source.pip)}"
        yield "    # more: requirements, files, env, labels"
        yield f"  arch: {quoted(source.arch)}"
        return
    if source.filename:
        yield f"  filename: {quoted(source.filename)}"
    yield f"  # {_comment(source.why)}"
    yield f"  sources: {_list((source.source,))}"
    if source.sha256:
        yield f"  sha256: {quoted(source.sha256)}"
    yield f"  arch: {quoted(source.arch)}"


def _python(guess: Guess) -> Iterator[str]:
    if guess.others:
        yield f"# other environments in the image: {_comment(', '.join(guess.others[:10]))}"
    if python := guess.python:
        yield from _environment(python)
    if guess.path:
        yield "# its directory is not on the image's PATH"
        yield f"path+: {_list(guess.path)}"


def _environment(python: PythonEnvironment) -> Iterator[str]:
    version = f"Python {python.version}" if python.version else "a Python"
    if python.kind == "conda":
        yield f"# {version} in a conda environment"
        yield f"conda: {{prefix: {quoted(python.prefix)}, env: {quoted(python.env)}}}"
    elif python.kind == "venv":
        yield f"# {version} in a venv"
        yield f"venv: {quoted(python.directory)}"
    else:
        yield f"# {version} in {_comment(python.directory)}"


def _commands(guess: Guess) -> Iterator[str]:
    yield "# commands that were found in the image, and sifmod's own scripts"
    yield f"wrappers: {_list(guess.wrappers)}"
    if guess.named.module:
        check = f'python -c "import {guess.named.module}"'
        if "python" in guess.wrappers:
            yield f"sanity_check:\n  commands: {_list((check,))}"


def _list(texts: Iterable[str]) -> str:
    return f"[{', '.join(quoted(text) for text in texts)}]"


def _package(requirement: str) -> str:
    return "".join(re.findall("^[A-Za-z0-9][A-Za-z0-9._-]*", requirement)).rstrip("._-").lower()


def _comment(text: str) -> str:
    return line(text, 300)
