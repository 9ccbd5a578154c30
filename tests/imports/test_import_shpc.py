"""A container.yaml of singularity-hpc: what each line of it becomes, and every note."""

from pathlib import Path

import pytest

from sifmod.imports.result import CannotImportError, Imported, Value
from sifmod.imports.shpc import read_shpc

DIGEST = f"sha256:{'a' * 64}"
HEAD = f"docker: quay.io/example/tool\nlatest: {{'1.0': '{DIGEST}'}}\n"
SOURCE = f"docker://quay.io/example/tool:1.0@{DIGEST}"
OPTIONAL = "binds: all are optional here, skipped if their source is missing"
NO_TEXT = "only texts without $ and ` are, and of PATH the directories before :$PATH"
NO_WRAPPER = "a wrapper needs a valid name, and a command of at most 4096 letters with its options"
NONE_MADE = "no alias was imported, so start-shell is the only wrapper: `wrappers: auto` finds the image's commands"
NOBODYS = "features.gpu does not name an accelerator: without `accelerator` the site's is used"
FEATURE = "features.{}: a directory from singularity-hpc's settings; the runtime binds home and /tmp"
FOR_SH = "alias {}: its command line needs a shell; sh runs it inside the container"
PLAIN: dict[str, Value] = {
    "name": "tool",
    "version": "1.0",
    "description": "",
    "accelerator": "none",
    "image": {"sources": (SOURCE,)},
    "wrappers": ("tool",),
}
ALIASES = "aliases: {tool: tool}\n"


def read(directory: Path, text: str) -> Imported:
    path = directory / "container.yaml"
    path.write_text(text)
    return read_shpc(path)


# what stands beside HEAD and ALIASES: the keys that it adds or changes, and its notes
LINES: dict[str, tuple[dict[str, Value | None], tuple[str, ...]]] = {
    "": ({}, ()),
    "description: 'A  tool\n  of two lines'": ({"description": "A tool of two lines"}, ()),
    "url: https://x.example": ({"homepage": "https://x.example"}, ()),
    "url: http://x.example": ({"homepage": "http://x.example"}, ()),
    "url: x.example": ({}, ()),
    "maintainer: ' @some  body'": ({"whatis": ("Maintainer: @some body",)}, ()),
    "maintainer: ''": ({}, ()),
    "features: {gpu: true}": ({"accelerator": None}, (NOBODYS,)),
    "features: {gpu: false, home: false, x11: false}": ({}, ()),
    "features: {gpu: 'true', home: 'true', other: false}": ({}, ("features.other is an unknown feature",)),
    "features: {home: true, x11: true, " + "y" * 80 + ": true}": (
        {},
        (FEATURE.format("home"), FEATURE.format("x11"), f"features.{'y' * 60} is an unknown feature"),
    ),
    "env: {A: b, C: '3', D: ''}": ({"env": {"A": "b", "C": "3", "D": ""}}, ()),
    "env: {PATH: '/a:b:/c:$PATH', A: b}": ({"path+": ("/a", "/c"), "env": {"A": "b"}}, ()),
    "env: {PATH: '/a:${PATH}'}": ({"path+": ("/a",)}, ()),
    "env: {PATH: '/a:/b', B: 'x$Y', C: 'a`b`', E: '" + "$" * 100 + "'}": (
        {},
        (
            f"env.PATH: /a:/b is not imported: {NO_TEXT}",
            f"env.B: 'x$Y' is not imported: {NO_TEXT}",
            f"env.C: 'a`b`' is not imported: {NO_TEXT}",
            f"env.E: '{'$' * 80}' is not imported: {NO_TEXT}",
        ),
    ),
    "env: {A: [1], B: {c: d}}": (
        {},
        (
            f"env.A: '' is not imported: {NO_TEXT}",
            f"env.B: '' is not imported: {NO_TEXT}",
        ),
    ),
    "tags: {'1.0': x}": ({}, ()),
    "tags: {'1.0': x, '0.9': y, '0.8': z}": ({}, ("tags: 0.9, 0.8: an easyconfig is for one tag",)),
    "tags: {" + ", ".join(f"t{n}: x" for n in range(21)) + "}": (
        {},
        (f"tags: {', '.join(f't{n}' for n in range(20))} …: an easyconfig is for one tag",),
    ),
    "tags: {" + ", ".join(f"t{n}: x" for n in range(20)) + "}": (
        {},
        (f"tags: {', '.join(f't{n}' for n in range(20))}: an easyconfig is for one tag",),
    ),
    "filter: []\ntest: x\ndocker_scripts: {}\nsingularity_scripts: {}\noverrides: {}\nother: 1\n" + "z" * 80 + ": 1": (
        {},
        (
            "filter selects the tags for singularity-hpc's own updates",
            "test is a script for singularity-hpc; write its commands under sanity_check",
            "docker_scripts are only for docker",
            "singularity_scripts are programs in separate files",
            "other is not imported",
            f"{'z' * 60} is not imported",
        ),
    ),
    "oras: ''\npath: ''": ({}, ()),
    "gh: ''": ({}, ("gh is not imported",)),
}  # fmt: skip


@pytest.mark.parametrize("line", LINES)
def test_what_a_line_adds(line: str, tmp_path: Path) -> None:
    keys, notes = LINES[line]
    made = read(tmp_path, f"{HEAD}{ALIASES}{line}\n")
    wanted: dict[str, Value | None] = {**PLAIN, **keys}
    assert made.keys == {key: value for key, value in wanted.items() if value is not None}
    assert sorted(made.notes) == sorted(notes)
    assert made.publisher == "example"


Wrappers = tuple[Value, ...]
# `aliases`, the wrappers, and the notes
ALIASES_OF: dict[str, tuple[Wrappers, tuple[str, ...]]] = {
    "{}": ((), (NONE_MADE,)),
    "{a: a, b: /x/b, c: 'c  --flag   x'}": (("a", {"b": "/x/b"}, {"c": "c --flag x"}), ()),
    "{a: 'b \"$@\"', c: 'c $*', d: 'd $@', e: 'e \"$*\" '}": (({"a": "b"}, "c", "d", "e"), ()),
    "{a: \"b 'x  y' z\"}": (({"a": "b 'x  y' z"},), ()),
    "{a: 'b $HOME', c: 'd && e', f: 'g \"$@\" | h', i: 'j; k', l: 'm `n`', o: '(p)'}": (
        (
            {"a": "sh -c 'b $HOME \"$@\"' a"},
            {"c": "sh -c 'd && e \"$@\"' c"},
            {"f": "sh -c 'g \"$@\" | h \"$@\"' f"},
            {"i": "sh -c 'j; k \"$@\"' i"},
            {"l": "sh -c 'm `n` \"$@\"' l"},
            {"o": "sh -c '(p) \"$@\"' o"},
        ),
        tuple(FOR_SH.format(name) for name in "acfilo"),
    ),
    "{a: \"b '$HOME | *'\"}": (({"a": "b '$HOME | *'"},), ()),
    "{a b: c, a..b: c, '': c, d: '', e: ' '}": (
        (),
        (
            f"alias 'a b' is not imported: {NO_WRAPPER}",
            f"alias 'a..b' is not imported: {NO_WRAPPER}",
            f"alias '' is not imported: {NO_WRAPPER}",
            f"alias 'd' is not imported: {NO_WRAPPER}",
            f"alias 'e' is not imported: {NO_WRAPPER}",
            NONE_MADE,
        ),
    ),
    "{a: '" + "b" * 4096 + "', c: '" + "d" * 4097 + "'}": (
        ({"a": "b" * 4096},),
        (f"alias 'c' is not imported: {NO_WRAPPER}",),
    ),
    "{a: \"b 'c\", d: -e, f: \"''\"}": (
        (),
        (
            "alias a: \"b 'c\" is not a valid command line: No closing quotation",
            "alias d: '-e' is not a valid command line: it does not start with a command",
            "alias f: \"''\" is not a valid command line: it does not start with a command",
            NONE_MADE,
        ),
    ),
    "[{name: a, command: b}, {name: c, command: c, other: d, " + "y" * 80 + ": 1}, {command: d}, x]": (
        ({"a": "b"}, "c"),
        (
            "alias c: other is not imported",
            f"alias c: {'y' * 60} is not imported",
            f"alias '' is not imported: {NO_WRAPPER}",
        ),
    ),
    "[{name: a, command: b, singularity_options: '--pid'}, {name: c, command: d, singularity_options: \"'\"}]": (
        ({"a": "b"}, {"c": "d"}),
        (
            "alias a: the option --pid is not imported",
            "alias c: \"'\" is not a valid command line: No closing quotation",
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("aliases", ALIASES_OF)
def test_what_aliases_become(aliases: str, tmp_path: Path) -> None:
    wrappers, notes = ALIASES_OF[aliases]
    made = read(tmp_path, f"{HEAD}aliases: {aliases}\n")
    assert made.keys.get("wrappers", ()) == wrappers
    assert sorted(made.notes) == sorted(notes)


def test_options_of_several_aliases_are_those_of_the_module(tmp_path: Path) -> None:
    options = ("-B /a,/b:/c:ro --bind /a", "-B /d")
    aliases = ", ".join(f"{{name: t{n}, command: x, singularity_options: '{one}'}}" for n, one in enumerate(options))
    made = read(tmp_path, f"{HEAD}aliases: [{aliases}]\n")
    assert made.keys["binds"] == (
        {"source": "/a", "optional": True},
        {"source": "/b", "target": "/c", "options": "ro", "optional": True},
        {"source": "/d", "optional": True},
    )
    assert made.notes == (OPTIONAL,)


def test_gpus_and_variables_in_the_options_of_an_alias_are_imported(tmp_path: Path) -> None:
    """Both were dropped without a note."""
    made = read(tmp_path, f"{HEAD}aliases: [{{name: a, command: x, singularity_options: '--nv --env A=b'}}]\n")
    assert (made.keys["accelerator"], made.keys["env"]) == ("cuda", {"A": "b"})
    made = read(tmp_path, f"{HEAD}aliases: [{{name: a, command: x, singularity_options: '--nv --rocm'}}]\n")
    assert "accelerator" not in made.keys
    assert any("does not name an accelerator" in note for note in made.notes)


def test_a_variable_with_several_values_in_options_is_not_silently_one_of_them(tmp_path: Path) -> None:
    """An easyconfig has one value for all commands."""
    options = {"a": "--env A=1", "b": "--env A=1 --env B=1", "c": "--env A=2", "d": "--env B=2"}
    listed = ", ".join(f"{{name: {name}, command: x, singularity_options: '{one}'}}" for name, one in options.items())
    made = read(tmp_path, f"{HEAD}aliases: [{listed}]\nenv: {{B: '2'}}\n")
    assert made.keys["env"] == {"B": "2", "A": "1"}
    assert made.notes == (
        "alias b: the option --env B is not imported: the variable has another value in this module",
        "alias c: the option --env A is not imported: the variable has another value in this module",
    )


GH = "gh: the SIF of a release has no digest here; `sifmod install` prints one to add"
BESIDE = "path: a local SIF; put the easyconfig beside the container.yaml, or an absolute path into image.sources"
ITS_DIGEST = f"{BESIDE} (its digest there: {DIGEST})"


@pytest.mark.parametrize(
    ("text", "name", "source", "publisher", "notes"),
    [
        (f"docker: tool\nlatest: {{v: '{DIGEST}'}}", "tool v", f"docker://tool:v@{DIGEST}", "", ()),
        (f"oras: r.example:5/a/t\nlatest: {{v: ' {DIGEST} '}}", "t v", f"oras://r.example:5/a/t:v@{DIGEST}", "a", ()),
        (f"docker: a/b\noras: c/d\nlatest: {{v: '{DIGEST}'}}", "b v", f"docker://a/b:v@{DIGEST}", "a", ()),
        (
            f"docker: a/b\nlatest: {{latest: '{DIGEST}'}}",
            "b latest",
            f"docker://a/b:latest@{DIGEST}",
            "a",
            ("version: the tag `latest` is not a version; the digest selects the image",),
        ),
        (
            "gh: a/b\nlatest: {v: 1.2}",
            "b v",
            "https://github.com/a/b/releases/download/1.2/a-b.v.sif",
            "a",
            (GH,),
        ),
        ("path: x.sif\nlatest: {v: y}", "x v", "./x.sif", "", (BESIDE,)),
        (f"path: {DIGEST}.sif\nlatest: {{latest: y}}", "{} latest", f"./{DIGEST}.sif", "", (BESIDE,)),
        ("path: /d/e/x-v.sif\nlatest: {v: y}", "x v", "/d/e/x-v.sif", "e", (BESIDE,)),
        (f"path: d/x_{DIGEST}.sif\nlatest: {{v: '{DIGEST}'}}", "x v", f"d/x_{DIGEST}.sif", "d", (ITS_DIGEST,)),
        (f"path: x-v-sha256-{'a' * 64}.sif\nlatest: {{v: y}}", "x v", f"./x-v-sha256-{'a' * 64}.sif", "", (BESIDE,)),
    ],
)  # fmt: skip
def test_the_image(text: str, name: str, source: str, publisher: str, notes: tuple[str, ...], tmp_path: Path) -> None:
    made = read(tmp_path, f"{text}\n{ALIASES}")
    assert f"{made.keys['name']} {made.keys['version']}" == name.format(tmp_path.name)
    assert (made.keys["image"], made.publisher, made.notes) == ({"sources": (source,)}, publisher, notes)


def test_a_file_that_is_called_by_its_digest_is_for_the_module_of_its_directory(tmp_path: Path) -> None:
    directory = tmp_path / "alphafold" / "2.3.2"
    directory.mkdir(parents=True)
    for tag, name in (("latest", "alphafold 2.3.2"), ("v1", "2.3.2 v1")):
        made = read(directory, f"path: {DIGEST}.sif\nlatest: {{{tag}: y}}\n{ALIASES}")
        assert f"{made.keys['name']} {made.keys['version']}" == name


@pytest.mark.parametrize(
    ("place", "accelerator"),
    [
        ("r.example/rocm/x", "rocm"),
        ("amdih/x", "rocm"),
        ("r.example/amd/x", "rocm"),
        ("r.example/amdx/x", None),
        ("nvcr.io/x/y", "cuda"),
        ("nvcrxio/x/y", None),
        ("nvidia/x", "cuda"),
        ("a/cuda", "cuda"),
        ("a/x", None),
    ],
)
def test_whose_gpus(place: str, accelerator: str | None, tmp_path: Path) -> None:
    text = f"docker: {place}\nlatest: {{v: '{DIGEST}'}}\n{ALIASES}"
    assert read(tmp_path, text).keys["accelerator"] == "none"
    made = read(tmp_path, f"{text}features: {{gpu: true}}\n")
    assert (made.keys.get("accelerator"), made.notes) == (accelerator, () if accelerator else (NOBODYS,))


def test_an_override_replaces_what_it_may(tmp_path: Path) -> None:
    text = (
        f"{HEAD}{ALIASES}description: first\nenv: {{A: b}}\nfeatures: {{home: true}}\nurl: https://x.example\n"
        "test: x\noverrides: {'1.0': more/v1.yaml, '2.0': not-there.yaml}\n"
    )
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "v1.yaml").write_text(
        "aliases: {b: c}\ndescription: second\nenv: {C: d}\nfeatures: {x11: true}\nurl: https://y.example\n"
        "docker: other\ndocker_scripts: {}\nsingularity_scripts: {}\n"
    )
    made = read(tmp_path, text)
    assert made.keys == PLAIN | {
        "wrappers": ({"b": "c"},),
        "description": "second",
        "env": {"C": "d"},
        "homepage": "https://x.example",
    }
    assert made.notes == (
        FEATURE.format("x11"),
        "test is a script for singularity-hpc; write its commands under sanity_check",
        "docker_scripts are only for docker",
        "singularity_scripts are programs in separate files",
    )


NO_DIGEST = "latest.v: expected sha256: and 64 hexadecimal digits, got "


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"latest: {{v: '{DIGEST}'}}", "has no image: expected one of docker, oras, gh, path"),
        ("docker: a/b", "expected one tag under latest, got 0"),
        ("docker: a/b\nlatest: {v: x, w: y}", "expected one tag under latest, got 2"),
        ("docker: a/b\nlatest: {v: x}", f"{NO_DIGEST}'x'"),
        (f"docker: a/b\nlatest: {{v: '{DIGEST}a'}}", f"{NO_DIGEST}'{DIGEST[:60]}'"),
        ("docker: a/b\nlatest: {a..b: x}", "latest: 'a..b' is not valid as a tag and a version"),
        ("docker: a/b\nlatest: {'a/b': x}", "latest: 'a/b' is not valid as a tag and a version"),
        ("docker: a/b\nlatest: {'" + "a" * 101 + "': x}", f"latest: '{'a' * 60}' is not valid as a tag and a version"),
        ("docker: 'a b'\nlatest: {v: x}", "docker: 'a b' is not a valid repository"),
        ("gh: -" + "b" * 80 + "\nlatest: {v: x}", f"gh: '-{'b' * 59}' is not a valid repository"),
        (
            f"{HEAD}overrides: {{'1.0': /x.yaml}}",
            "overrides.1.0: '/x.yaml' does not name a file beside the container.yaml",
        ),
        (
            f"{HEAD}overrides: {{'1.0': ../x.yaml}}",
            "overrides.1.0: '../x.yaml' does not name a file beside the container.yaml",
        ),
        (f"{HEAD}overrides: {{'1.0': ''}}", "overrides.1.0: '' does not name a file beside the container.yaml"),
    ],
)
def test_what_cannot_be_imported(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(CannotImportError) as caught:
        read(tmp_path, text)
    assert caught.value.message == message


def test_what_is_wrong_with_the_yaml_is_told_by_its_line(tmp_path: Path) -> None:
    for text, begin in (("docker: a\nlatest: {\n", "line "), ("docker: a\ndocker: b\n", "line 2: docker: ")):
        with pytest.raises(CannotImportError) as caught:
            read(tmp_path, text)
        assert caught.value.message.startswith(begin)
