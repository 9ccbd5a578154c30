"""The easyconfig's model: what a layer may hold, and every mistake in plain words at its place."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sifmod.config.easyconfig import Easyconfig, EasyconfigFile
from sifmod.config.yaml.node import Mark, merge, tree
from sifmod.config.yaml.parse import parse_yaml
from sifmod.config.yaml.validate import build, check_layer

MINIMAL: dict[str, object] = {
    "name": "App",
    "version": "1.0",
    "accelerator": "none",
    "image": {"filename": "app.sif", "arch": "amd64", "sources": ("app.sif",)},
}
HERE = Mark("f.yaml", 1, 1)


def problems(text: str) -> list[str]:
    node, found = parse_yaml(text.encode(), "f.yaml")
    assert not found
    return [str(problem).removeprefix("f.yaml:") for problem in check_layer(EasyconfigFile, node)]


def problem(text: str) -> str:
    (found,) = problems(text)
    return found


def easyconfig(**keys: object) -> Easyconfig:
    built = build(Easyconfig, tree({**MINIMAL, **keys}, HERE))
    assert isinstance(built, Easyconfig), built
    return built


def refused(**keys: object) -> str:
    built = build(Easyconfig, tree({**MINIMAL, **keys}, HERE))
    assert isinstance(built, tuple)
    (found,) = built
    return f"{found.key}: {found.message}" if found.key else found.message


def test_a_layer_may_leave_anything_out() -> None:
    assert problems("versionsuffix: -x") == []
    assert problems("image: {arch: arm64}\nconda: {env: pytorch}\nvariants: {rocm: {}, cuda: {image: {}}}") == []


def test_a_layer_may_remove_and_append() -> None:
    assert problems("description: null\nbinds+: [/data]\nenv: {A: null}\nvariants: {x: null}") == []
    assert problems("image: {sources+: [x.sif], build: null}") == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nmae: null", "1:1: nmae: unknown key; did you mean name?"),
        ("biinds+: null", "1:1: biinds+: unknown key; did you mean binds?"),
        ("image: {source: ~}", "1:9: image.source: unknown key; did you mean sources?"),
        ("variants: {rocm: {nmae: null}}", "1:19: variants.rocm.nmae: unknown key; did you mean name?"),
        ("sanity_check: {path: null}", "1:16: sanity_check.path: unknown key; did you mean paths?"),
    ],
)
def test_a_key_that_is_not_known_cannot_be_removed_either(text: str, expected: str) -> None:
    assert problem(text) == expected


def test_an_unknown_key_comes_with_the_one_that_was_meant() -> None:
    assert problem("nmae: x") == "1:1: nmae: unknown key; did you mean name?"
    assert problem("image:\n  source: [x]") == "2:3: image.source: unknown key; did you mean sources?"
    assert problem("variants: {rocm: {host-env: {}}}") == (
        "1:19: variants.rocm.host-env: unknown key; did you mean host_env?"
    )
    assert problem("variants: {rocm: {variants: {}}}").startswith("1:19: variants.rocm.variants: unknown key; ")
    assert problem("conda: {zzz: 1}") == "1:9: conda.zzz: unknown key; known are env and prefix"


def test_a_bare_version_is_shown_in_its_quoted_form() -> None:
    assert problem("version: 2.20") == "1:10: version: expected text, got the number 2.20; write version: '2.20'"
    assert problem("version: 1_0") == "1:10: version: expected text, got the number 1_0; write version: '1_0'"
    assert problem("version: 2024-02-09") == (
        "1:10: version: expected text, got the date 2024-02-09; write version: '2024-02-09'"
    )
    assert problem("contents: {torch: 2.10}") == (
        "1:19: contents.torch: expected text, got the number 2.10; write torch: '2.10'"
    )
    assert problem("whatis: [2.10]") == "1:10: whatis[0]: expected text, got the number 2.10; write '2.10'"


def test_a_boolean_where_text_belongs_is_shown_in_its_quoted_form() -> None:
    assert problem("env: {DEBUG: yes}") == (
        "1:14: env.DEBUG: expected text, got yes, which YAML reads as true; write DEBUG: 'yes'"
    )
    assert problem("description: Off") == (
        "1:14: description: expected text, got Off, which YAML reads as false; write description: 'Off'"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("docurls: 3", "1:10: docurls: expected a list of text, got the number 3"),
        ("docurls: http://x", "1:10: docurls: expected a list of text, got the text 'http://x'"),
        ("docurls+: x", "1:11: docurls+: expected a list to append, got the text 'x'"),
        ("env+: {A: b}", "1:7: env+: expected a list to append, got keys and values"),
        ("binds: /x", "1:8: binds: expected a list of bind paths, got the text '/x'"),
        ("binds: [3]", "1:9: binds[0]: expected a bind path such as /data or /data:/inside:ro, got the number 3"),
        ("binds: [{target: /x}]", "1:9: binds[0].source: is missing"),
        ("binds: [{source: /x, optional: 'no'}]", "1:32: binds[0].optional: expected true or false, got the text 'no'"),
        ("image: x.sif", "1:8: image: expected keys and values, got the text 'x.sif'"),
        ("sanity_check: []", "1:15: sanity_check: expected keys and values, got a list"),
        ("description: {a: b}", "1:14: description: expected text, got keys and values"),
        ("whatis: [~]", "1:10: whatis[0]: expected text, got nothing"),
        ("accelerator: roc", "1:14: accelerator: expected rocm, cuda or none, got the text 'roc'; did you mean rocm?"),
        ("image: {arch: x86}", "1:15: image.arch: expected amd64 or arm64, got the text 'x86'"),
        ("verb: start", "1:7: verb: expected exec or run, got the text 'start'"),
        ("user_software: maybe", "1:16: user_software: expected true or false, got the text 'maybe'"),
        ("user_software: /data", "1:16: user_software: expected true or false, got the text '/data'"),
        ("gpu_selection: auto", "1:16: gpu_selection: expected slurm, localid or none, got the text 'auto'"),
        ("wrappers: all", "1:11: wrappers: expected a list of commands, or auto, got 'all'"),
        ("binds: [{source: /x, links: all}]", "1:29: binds[0].links: expected true or false, got the text 'all'"),
        ("image: {sources: ['']}", "1:19: image.sources[0]: is empty"),
        ("variants: {a: 3}", "1:15: variants.a: expected keys and values, got the number 3"),
    ],
)
def test_mistakes_are_told_in_plain_words(text: str, message: str) -> None:
    assert problem(text) == message


def test_every_problem_is_told_at_once_in_the_order_of_the_file() -> None:
    text = "version: 2.20\nnmae: x\nenv: {1A: b, C: no}\nvariants:\n  rocm: {image: {sha256: abc}}\n"
    text += "image: {sources: x}\n"
    assert [found.split(": ")[:2] for found in problems(text)] == [
        ["1:10", "version"],
        ["2:1", "nmae"],
        ["3:7", "env.1A"],
        ["3:17", "env.C"],
        ["5:26", "variants.rocm.image.sha256"],
        ["6:18", "image.sources"],
    ]


def test_a_key_of_strange_letters_stays_on_one_line() -> None:
    assert problem('"a\\nb": 1').startswith("1:1: 'a\\nb': unknown key")


def test_numbers_in_the_environment_are_taken_as_they_are_written() -> None:
    node = parse_yaml(b"env: {A: 007, B: 1.50, C: 1e-5, D: 12:30:45, E: 2024-02-09, F: 0x1F}", "f.yaml")[0]
    assert not check_layer(EasyconfigFile, node)
    built = build(Easyconfig, merge((tree(MINIMAL, HERE), node), HERE))
    assert isinstance(built, Easyconfig)
    assert dict(built.env) == {"A": "007", "B": "1.50", "C": "1e-5", "D": "12:30:45", "E": "2024-02-09", "F": "0x1F"}


NAMES = [
    *("", ".hidden", "-x", "a b", "a/b", "..", "a..b", "é", "a\n", "$(touch x)", "]==]", "[exec touch x]", "a;b"),
    "x" * 101,
]


@pytest.mark.parametrize("text", NAMES)
def test_names_that_are_no_file_names_are_refused(text: str) -> None:
    assert refused(name=text).startswith("name: ")
    assert refused(version=text).startswith("version: ")


@pytest.mark.parametrize("text", ["a b", "a/b", "..", "é", "a\n", "$(touch x)", "]==]", "[exec touch x]", "x" * 101])
def test_suffixes_that_cannot_be_in_a_file_name_are_refused(text: str) -> None:
    assert refused(versionsuffix=text).startswith("versionsuffix: ")


def test_a_version_that_module_systems_read_as_a_marker_is_refused() -> None:
    assert refused(version="default").startswith("version: 'default' cannot be a version")


def test_version_and_suffix_together_are_checked() -> None:
    assert refused(version="1.", versionsuffix=".2") == "version and versionsuffix together hold '..'"


@pytest.mark.parametrize("text", ["2.2.0", "2.2.0a0+81ea7a4", "1.0_rc-1", "0"])
def test_versions_in_use_are_taken(text: str) -> None:
    assert easyconfig(version=text).module.version == text


@pytest.mark.parametrize("control", ["\n", "\r", "\t", "\0", "\x1b", "\x7f", "\x85", "\u2028"])
def test_control_characters_are_refused_wherever_one_line_is_meant(control: str) -> None:
    text = f"a{control}b"
    for keys in (
        {"homepage": text},
        {"whatis": (text,)},
        {"env": {"A": text}},
        {"host_env": {"A": text}},
        {"runscript_env": {"A": text}},
        {"activate": text},
        {"binds": (f"/{text}",)},
        {"path": (f"/{text}",)},
        {"sanity_check": {"commands": (text,)}},
        {"image": {"filename": "a.sif", "arch": "amd64", "sources": (text,)}},
    ):
        assert "is not allowed here" in refused(**keys)


@pytest.mark.parametrize("key", ["description", "homepage", "license", "docurls", "whatis"])
def test_a_text_for_all_users_holds_no_login(key: str) -> None:
    login, none = "see https://me:hunter2@x.org", "see https://x.org/@me, or mail me@x.org"
    many = key in ("docurls", "whatis")
    assert easyconfig(**{key: (none,) if many else none})
    problem = refused(**{key: (login,) if many else login})
    assert "a login cannot be used here, because all users would read it" in problem
    assert "hunter2" not in problem
    image = {"sources": ("a.sif",), "arch": "amd64", "filename": "a.sif"}
    assert "all users would read it" in refused(image={**image, "available": login})


def test_a_description_may_hold_lines_and_any_printable_text() -> None:
    text = "]==] \"quotes\" 'and' $(touch x) `x` \\ [exec touch x] {a} é 漢字\n\n\tsecond paragraph\n"
    assert easyconfig(description=text).description == text


@pytest.mark.parametrize("control", ["\r", "\0", "\x1b", "\x7f", "\x9b", "\u2028"])
def test_a_description_holds_no_other_control_character(control: str) -> None:
    assert refused(description=f"a{control}").startswith("description: the character")


@pytest.mark.parametrize("name", ["1A", "A-B", "A B", "", "A=B", "é", "A$(x)", "A\n"])
def test_what_is_no_variables_name_is_refused(name: str) -> None:
    for key in ("env", "host_env", "runscript_env"):
        assert "is not a valid variable name" in refused(**{key: {name: "x"}})


@pytest.mark.parametrize("name", ["PATH", "PREPEND_PATH", "APPEND_PATH", "WITH_CONDA"])
def test_variables_that_other_keys_make_are_refused_in_env(name: str) -> None:
    assert refused(env={name: "x"}).startswith(f"env.{name}: {name} is made from the key")


@pytest.mark.parametrize("name", ["PATH", "SIF", "MODULEPATH", "_SIFMOD_LOADED", "LMOD_CMD", "SINGULARITY_BINDPATH"])
def test_variables_of_the_module_system_are_refused_in_host_env(name: str) -> None:
    assert "cannot be set here" in refused(host_env={name: "x"})


def test_a_container_variable_in_host_env_is_sent_to_env() -> None:
    assert refused(host_env={"SINGULARITYENV_X": "1"}) == (
        "host_env.SINGULARITYENV_X: write X under env, which sets it in the container"
    )


@pytest.mark.parametrize(
    ("spelled", "source", "target", "options"),
    [
        ("/a", "/a", "/a", ()),
        ("/a:/b", "/a", "/b", ()),
        ("/a:/b:ro", "/a", "/b", ("ro",)),
        ("/a b/c:/d e", "/a b/c", "/d e", ()),
        ("/x.squashfs:/b:ro,image-src=/", "/x.squashfs", "/b", ("ro", "image-src=/")),
        ({"source": "/a", "target": "/b", "options": "ro,id=1"}, "/a", "/b", ("ro", "id=1")),
        ({"source": "/$HOME/'x'"}, "/$HOME/'x'", "/$HOME/'x'", ()),
    ],
)
def test_bind_paths_in_both_spellings(spelled: object, source: str, target: str, options: tuple[str, ...]) -> None:
    (bind,) = easyconfig(binds=(spelled,)).binds
    assert (bind.source, bind.target, bind.options, bind.optional) == (source, target, options, False)


@pytest.mark.parametrize(
    ("spelled", "message"),
    [
        ("a", "binds[0].source: expected an absolute path, got 'a'"),
        ("/a:b", "binds[0].target: expected an absolute path, got 'b'"),
        ("/a:", "binds[0].target: expected an absolute path, got ''"),
        (
            "/a,/b",
            "binds[0].source: a path with , cannot be bound into a container: '/a,/b'; several bind paths are several "
            "items of the list",
        ),
        ('/a"', "binds[0].source: a path with \" cannot be bound into a container: '/a\"'"),
        ("/a\\", "binds[0].source: a path with \\ cannot be bound into a container: '/a\\\\'"),
        ({"source": "/a:b"}, "binds[0].source: a path with : cannot be bound into a container: '/a:b'"),
        (
            "/a:/b:rw:ro",
            "binds[0].options: unknown bind option 'rw:ro': expected ro, rw, id=NUMBER or image-src=PATH",
        ),
        ("/a:/b:", "binds[0].options: unknown bind option '': expected ro, rw, id=NUMBER or image-src=PATH"),
        ({"source": ""}, "binds[0].source: expected an absolute path, got ''"),
    ],
)
def test_bind_paths_that_a_runtime_cannot_take_are_refused(spelled: object, message: str) -> None:
    assert refused(binds=(spelled,)) == message


@pytest.mark.parametrize("name", ["a/b", ".a", "-a", "", "a b", "$(x)", "apptainer", "singularity"])
def test_wrappers_are_plain_file_names_and_never_the_runtime(name: str) -> None:
    assert refused(wrappers=(name,)).startswith("wrappers[0]: ")


@pytest.mark.parametrize(
    "name", ["a.simg", "a", "/a.sif", "../a.sif", "a b.sif", "a:b.sif", "a,b.sif", ".sif", "-a.sif"]
)
def test_the_images_name_is_that_of_a_sif(name: str) -> None:
    assert refused(image={"filename": name, "arch": "amd64", "sources": ("x",)}).startswith("image.filename: ")


def test_lumis_image_name_is_taken() -> None:
    name = "lumi-pytorch-rocm-5.6.1-python-3.10-pytorch-v2.2.0-dockerhash-f72ddd8ef883.sif"
    assert easyconfig(image={"filename": name, "arch": "amd64", "sources": (name,)}).required_image.filename == name


@pytest.mark.parametrize("digest", ["", "abc", "A" * 64, "g" * 64, "sha256:" + "a" * 64, "a" * 65, "a" * 64 + "\n"])
def test_a_digest_is_64_hexadecimal_digits(digest: str) -> None:
    image = {"filename": "a.sif", "arch": "amd64", "sources": ("x",), "sha256": digest}
    assert refused(image=image).startswith("image.sha256: ")


@pytest.mark.parametrize("name", ["a b", "a;b", "$(x)", "", "[x]", "../a", "a\n"])
def test_conflict_and_family_hold_names_only(name: str) -> None:
    assert refused(conflict=(name,)).startswith("conflict[0]: ")
    assert refused(family=name).startswith("family: ")
    assert refused(depends_on=("a/1", f"a/{name}/1")).startswith("depends_on[1]: ")


def test_many_conflicts_are_taken() -> None:
    names = tuple(f"module{number}/1.0" for number in range(300))
    assert easyconfig(conflict=names).conflict == names


def test_keys_that_exclude_each_other() -> None:
    image = {"filename": "a.sif", "arch": "amd64"}
    assert refused(image=image) == "image: expected sources (a list), or build"
    assert refused(image={**image, "sources": ("x",), "build": "/x.def"}) == "image: give sources or build, not both"
    assert refused(activate="x", conda={"prefix": "/opt/conda"}) == "give activate, or conda and venv, not both"
    assert refused(activate="x", venv="/opt/venv") == "give activate, or conda and venv, not both"
    assert easyconfig(conda={"prefix": "/opt/conda"}, venv="/opt/venv").conda is not None


def test_an_easyconfig_is_frozen_and_made_of_tuples() -> None:
    made = easyconfig(env={"B": "1", "A": "2"}, whatis=("x",))
    assert made.env == (("B", "1"), ("A", "2"))
    assert hash(made)
    with pytest.raises(ValueError, match="frozen"):
        made.name = "Other"  # type: ignore[misc]


def test_runscripts_are_those_that_there_are() -> None:
    from typing import get_args

    import sifmod.module
    from sifmod.config.easyconfig import Runscript

    templates = Path(sifmod.module.__file__).parent / "templates" / "runscripts"
    assert {path.name.removesuffix(".j2") for path in templates.iterdir()} >= set(get_args(Runscript))
    assert "did you mean conda-python-simple?" in refused(runscripts=("conda-python-simpel",))


@given(st.text())
def test_text_in_any_key_is_taken_as_it_is_or_refused(text: str) -> None:
    for key in ("description", "homepage", "license", "activate", "family", "venv", "version"):
        built = build(Easyconfig, tree({**MINIMAL, key: text}, HERE))
        if isinstance(built, Easyconfig):
            assert getattr(built, key) == text
        else:
            assert built
            assert all(found.key == key for found in built)
            assert all("\n" not in str(found) for found in built)


@pytest.mark.parametrize("name", ["HOME", "UID", "IFS", "e", "__x", "APPTAINER_SHELL", "SINGULARITY_NAME"])
def test_the_runtimes_own_variables_are_refused(name: str) -> None:
    assert problem(f"env: {{{name}: x}}").endswith(
        f"env.{name}: {name} belongs to the runtime or its shell and cannot be set from outside the container"
    )
