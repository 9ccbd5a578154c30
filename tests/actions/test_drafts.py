"""The texts of first easyconfigs, site files and imported easyconfigs: every line that they can have."""

import json
import string
from dataclasses import replace

import pytest

from sifmod.actions.author.draft import Source, draft
from sifmod.actions.author.import_easyconfig import easyconfig_text
from sifmod.actions.author.new_file import quoted
from sifmod.actions.author.site import draft_site
from sifmod.actions.author.survey import Survey
from sifmod.config.site import SiteFile
from sifmod.config.yaml.parse import parse_yaml
from sifmod.config.yaml.validate import check_layer
from sifmod.image.guess import Guess, Named
from sifmod.image.inspect.gpu import Gpu
from sifmod.image.inspect.python_environments import PythonEnvironment
from sifmod.imports.result import Imported, Value

OCI, SCHEMA = "org.opencontainers.image.", "org.label-schema."
GUESS = Guess(
    named=Named("x", "the name of the file", "1.0", "nothing"),
    gpu=Gpu("none", "", "nothing in it is for a GPU"),
    labels={},
    python=None,
    others=(),
    contents=(),
    wrappers=(),
    path=(),
)
SOURCE = Source("docker://host/x:1", "a tag", "amd64")
HEAD = [
    "# A first easyconfig, written by `sifmod new docker://host/x:1` from the image's metadata and contents.",
    "# Review and correct it; `sifmod check` validates it, `sifmod install` installs it.",
    "",
]
WRAPPERS = "# commands that were found in the image, and sifmod's own scripts"


def lines(guess: Guess, source: Source = SOURCE, named: tuple[str, str] = ("x", "1.0")) -> list[str]:
    """Those after the head."""
    text = draft(guess, source, "docker://host/x:1", named)
    found = text.split("\n")
    assert (found[:3], found[-1]) == (HEAD, "")
    return found[3:-1]


def test_a_draft_of_little() -> None:
    assert lines(GUESS) == [
        "# from the name of the file",
        "name: x",
        "# from nothing",
        "version: '1.0'",
        "# nothing in it is for a GPU",
        "accelerator: none",
        "image:",
        "  # a tag",
        "  sources: ['docker://host/x:1']",
        "  arch: amd64",
        WRAPPERS,
        "wrappers: []",
    ]


def test_a_draft_of_much() -> None:
    packages = {"torch": "2.2.0", "numpy": "1.26", "six": "1"}
    guess = Guess(
        named=Named("PyTorch", "its packages", "2.2.0", "the package torch", framework=True, module="torch"),
        gpu=Gpu("cuda", "12.1", "CUDA_VERSION\nis set"),
        labels={
            f"{OCI}description": " \n ",
            f"{SCHEMA}description": "  A tool: it's\n  good ",
            f"{OCI}title": "no",
            "license": "MIT",
            f"{OCI}url": "ftp://host.example",
            f"{OCI}source": " https://host.example/x ",
            f"{OCI}documentation": "https://host.example/docs",
        },
        python=PythonEnvironment("conda", "/opt/conda/envs/e", "3.10", packages, prefix="/opt/conda", env="e"),
        others=tuple(f"/{letter}" for letter in string.ascii_lowercase[:11]),
        contents=(("torch", "2.2.0"), ("numpy", "1.26")),
        wrappers=("python", "pip"),
        path=("/opt/x/bin",),
    )
    source = Source("x.sif", "a name", "arm64", sha256="f" * 64, filename="x.sif")
    assert lines(guess, source, ("PyTorch", "3.0")) == [
        "# from its packages",
        "name: PyTorch",
        "version: '3.0'",
        "versionsuffix: '-cuda-12.1-python-3.10'",
        "description: 'A tool: it''s good'",
        "license: MIT",
        "homepage: 'https://host.example/x'",
        "docurls: ['https://host.example/docs']",
        "# the best known of its packages; 1 more are in the image",
        "contents:",
        "  torch: '2.2.0'",
        "  numpy: '1.26'",
        r"# CUDA_VERSION\nis set",
        "accelerator: cuda",
        "image:",
        "  filename: x.sif",
        "  # a name",
        "  sources: [x.sif]",
        f"  sha256: {'f' * 64}",
        "  arch: arm64",
        f"# other environments in the image: {', '.join(guess.others[:10])}",
        "# Python 3.10 in a conda environment",
        "conda: {prefix: /opt/conda, env: e}",
        "# its directory is not on the image's PATH",
        "path+: [/opt/x/bin]",
        WRAPPERS,
        "wrappers: [python, pip]",
        "sanity_check:",
        "  commands: ['python -c \"import torch\"']",
    ]
    without = lines(replace(guess, wrappers=("pip",)), source, ("mine", "2.2.0"))
    assert without[:3] == ["name: mine", "# from the package torch", "version: '2.2.0'"]
    assert without[-1] == "wrappers: [pip]"
    of_all = replace(guess, contents=(*guess.contents, ("six", "1")))
    assert "# its packages" in lines(of_all, source)


@pytest.mark.parametrize(
    ("kind", "version", "expected"),
    [
        ("venv", "3.12", ["# Python 3.12 in a venv", "venv: /opt/venv"]),
        ("venv", "", ["# a Python in a venv", "venv: /opt/venv"]),
        ("system", "3.12", ["# Python 3.12 in /opt/venv"]),
        ("prefix", "", ["# a Python in /opt/venv"]),
    ],
)
def test_the_python_of_a_draft(kind: str, version: str, expected: list[str]) -> None:
    python = PythonEnvironment(kind, "/opt/venv", version, {})  # type: ignore[arg-type]
    found = lines(replace(GUESS, python=python))
    at = found.index("  arch: amd64") + 1
    assert found[at : found.index(WRAPPERS)] == expected


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://host.example/a b", False),
        ("see https://host.example", False),
        ("https://host.example/ü", False),
        ("https://" + "x" * 992, True),
        ("https://" + "x" * 993, False),
    ],
)
def test_what_counts_as_an_address(url: str, shown: bool) -> None:
    for name in ("url", "source"):
        found = [line for line in lines(replace(GUESS, labels={f"{OCI}{name}": url})) if line.startswith("homepage")]
        assert found == ([f"homepage: '{url}'"] if shown else [])


@pytest.mark.parametrize("name", [f"{OCI}description", f"{SCHEMA}description", f"{OCI}title"])
def test_each_label_that_describes(name: str) -> None:
    labels = {f"{OCI}description": "", name: "words"}
    assert "description: words" in lines(replace(GUESS, labels=labels))


@pytest.mark.parametrize("name", [f"{OCI}licenses", "license"])
def test_each_label_of_a_licence(name: str) -> None:
    assert "license: BSD" in lines(replace(GUESS, labels={name: "BSD"}))


@pytest.mark.parametrize("word", ["y", "n", "yes", "no", "on", "off", "true", "false", "null", "Yes", "NULL"])
def test_words_that_yaml_takes_for_something_else_are_quoted(word: str) -> None:
    assert quoted(word) == f"'{word}'"


@pytest.mark.parametrize("text", ["a", "/a/b.c_d+e-f", "A1"])
def test_plain_words_are_not(text: str) -> None:
    assert (quoted(text), quoted(text, always=True)) == (text, f"'{text}'")


@pytest.mark.parametrize("text", ["", "1", "-a", "a b", "a: b", "a#", "it's", "{a", "~", "a\\n"])
def test_anything_else_reads_back_as_itself(text: str) -> None:
    node, problems = parse_yaml(f"key: {quoted(text)}\n".encode(), "f.yaml")
    assert (problems, node.entries["key"].text) == ((), text)
    assert quoted(text).startswith("'")


def test_a_site_file_of_a_machine_with_nothing() -> None:
    text = draft_site("x", ("none", "no GPU is here"), Survey((), (), (), (), ()))
    assert text.startswith("# The site x, written by `sifmod site new`. Correct it, `sifmod check` it")
    assert "\nname: x\ndescription: x\n" in text
    assert "\n# no GPU is here: auto looks on each machine" in text
    assert "\naccelerator: none\n" in text
    assert "# accelerators: {rocm: devices, cuda: nv}\n" in text
    assert text.partition("\nbinds:\n")[2].partition("\n\n")[0].splitlines() == [
        "  slurm: []  # e.g. [{source: '/var/spool/slurmd', optional: true}]",
        "  fabric: []  # e.g. [{source: '/opt/cray', optional: true}]",
        "  host-libs: []  # e.g. [{source: '/usr/lib64/x.so*', optional: true}]",
        "  filesystems: []  # e.g. [{source: '/scratch', optional: true}]",
    ]
    assert text.endswith(
        "\n# runscript_env: {NCCL_SOCKET_IFNAME: hsn0, NCCL_NET: AWS Libfabric}\n\n# The site is recognised if all "
        "of these exist.\ndetect:\n  paths: []\n"
    )
    node, problems = parse_yaml(text.encode(), "s.yaml")
    assert (problems, check_layer(SiteFile, node)) == ((), ())


KEYS: dict[str, Value] = {
    "sanity_check": {"commands": ("true",), "paths": ()},
    "wrappers": ("sh", {"it's": {"command": ("a b", "c"), "x": True}}, "no"),
    "path+": ("/a",),
    "env": {"A": "x", "B C": "1"},
    "binds": (),
    "contents": {},
    "user_software": True,
    "conda": {"prefix": "/opt", "env": "e"},
    "image": {"sources": ("docker://x/y:1",), "arch": "amd64"},
    "description": "\n  one\ttwo \n\n    more\x01\n",
    "homepage": "https://x\u2028y",
    "version": "1.0",
    "name": "X",
}


def test_an_imported_easyconfig() -> None:
    """In the order of the documentation, whatever the order of the keys; texts read back as they were."""
    text = easyconfig_text(Imported(KEYS, ("a note", "word " * 40)), "dir/x\n.eb")
    assert text.splitlines() == [
        r"# Made from dir/x\n.eb by `sifmod import`, which read it and ran nothing.",
        "# Not imported, or only approximately:",
        "# - a note",
        f"# - {'word ' * 21}word",
        f"#   {('word ' * 18).strip()}",
        "name: X",
        "version: '1.0'",
        "description: |",
        "  one   two",
        "",
        "    more",
        r'homepage: "https://x\u2028y"',
        "contents: {}",
        "image:",
        "  sources:",
        "    - 'docker://x/y:1'",
        "  arch: 'amd64'",
        "conda:",
        "  prefix: '/opt'",
        "  env: 'e'",
        "user_software: true",
        "binds: []",
        "env:",
        "  A: 'x'",
        "  'B C': '1'",
        "path+:",
        "  - /a",
        "wrappers:",
        "  - sh",
        "  - 'it''s':",
        "      command:",
        "        - 'a b'",
        "        - c",
        "      x: true",
        "  - 'no'",
        "sanity_check:",
        "  commands:",
        "    - 'true'",
        "  paths: []",
    ]
    assert text.endswith("\n")
    again = easyconfig_text(Imported(dict(reversed(KEYS.items())), ("a note", "word " * 40)), "dir/x\n.eb")
    assert again == text
    assert "Not imported" not in easyconfig_text(Imported(KEYS, ()), "x")


@pytest.mark.parametrize(
    ("description", "expected"),
    [
        ("  one \n", "description: one"),
        ("one\n two", "description: |\n  one\n   two"),
        (" one\ntwo", "description: |2\n   one\n  two"),
        ("one   two", "description: 'one two'"),
    ],
)
def test_an_imported_description(description: str, expected: str) -> None:
    text = easyconfig_text(Imported({"description": description, "user_software": False}, ()), "x")
    assert text.partition("\n")[2] == f"{expected}\nuser_software: false\n"


def test_every_key_that_is_imported_has_its_place() -> None:
    order = [
        *("name", "version", "versionsuffix", "description", "homepage", "docurls", "whatis", "moduleclass"),
        *("license", "contents", "accelerator", "image", "verb", "conda", "venv", "activate", "user_software"),
        *("binds", "env", "host_env", "path+", "wrappers", "runscripts", "conflict", "family", "sanity_check"),
    ]
    text = easyconfig_text(Imported(dict.fromkeys(sorted(order), "a"), ()), "x")
    assert [line.partition(":")[0] for line in text.splitlines()[1:]] == order


@pytest.mark.parametrize("letter", "\x00\x1f\x7f\x9f\u2028\u2029\ufeff\ue000\uf8ff")
def test_letters_that_are_spelled(letter: str) -> None:
    text = easyconfig_text(Imported({"homepage": f"a{letter}b"}, ()), "x")
    assert text.partition("\n")[2] == f"homepage: {json.dumps(f'a{letter}b')}\n"
