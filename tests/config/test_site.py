"""The site's model: what a site file may say, and mistakes in plain words."""

import pytest

from sifmod.config.site import SiteFile
from sifmod.config.yaml.node import Mark, tree
from sifmod.config.yaml.parse import parse_yaml
from sifmod.config.yaml.validate import build, check_layer


def problem(text: str) -> str:
    (found,) = check_layer(SiteFile, parse_yaml(text.encode(), "s.yaml")[0])
    return str(found).removeprefix("s.yaml:")


def site(text: str) -> SiteFile:
    built = build(SiteFile, parse_yaml(text.encode(), "s.yaml")[0])
    assert isinstance(built, SiteFile), built
    return built


def test_nothing_at_all_is_a_site() -> None:
    built = build(SiteFile, tree({}, Mark("s.yaml", 1, 1)))
    assert isinstance(built, SiteFile)
    assert (built.accelerator, built.runtime, built.module_syntax, built.arch) == ("auto", "auto", "auto", "auto")
    assert (built.link, built.lock_lease, built.prefix) == ("copy", 30, None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("acelerator: rocm", "1:1: acelerator: unknown key; did you mean accelerator?"),
        ("accelerator: nvidia", "1:14: accelerator: expected auto, rocm, cuda or none, got the text 'nvidia'"),
        ("accelerators: {rocm: nv}", "1:22: accelerators.rocm: expected rocm, devices or none, got the text 'nv'"),
        ("runtime: docker", "1:10: runtime: expected auto, apptainer, singularity or an absolute path, got 'docker'"),
        ("prefix: a/b", "1:9: prefix: expected an absolute path, got 'a/b'"),
        ("prefix: /a:b", "1:9: prefix: a path with : cannot be bound into a container: '/a:b'"),
        ("prefix: '/a,b'", "1:9: prefix: a path with , cannot be bound into a container: '/a,b'"),
        ('prefix: "/\\n"', "1:9: prefix: the character '\\n' is not allowed here: use a single line of printable text"),
        ("image_dirs: /a", "1:13: image_dirs: expected a list of text, got the text '/a'"),
        ("image_dirs: ['/a:b']", "1:14: image_dirs[0]: a directory on a search path cannot hold ':', got '/a:b'"),
        ("binds: [/a]", "1:8: binds: expected keys and values, got a list"),
        ("binds: {net: /a}", "1:14: binds.net: expected a list of bind paths, got the text '/a'"),
        ("binds: {net: [a]}", "1:15: binds.net[0].source: expected an absolute path, got 'a'"),
        (
            "module_syntax: Lua",
            "1:16: module_syntax: expected auto, lua, tcl or both, got the text 'Lua'; did you mean lua?",
        ),
        ("link: move", "1:7: link: expected copy, hardlink or reference, got the text 'move'"),
        ("lock_lease: soon", "1:13: lock_lease: expected a number, got the text 'soon'"),
        ("lock_lease: 0", "1:13: lock_lease: expected a number from 1 to 3600, got 0"),
        ("memory: 0", "1:9: memory: expected at least 67108864, got 0"),
        ("lock_lease: .nan", "1:13: lock_lease: expected a number, got the number .nan"),
        ("umask: '28'", "1:8: umask: expected three or four octal digits such as '027', got '28'"),
        ("umask: 1.5", "1:8: umask: expected three or four octal digits such as '027', got '1.5'"),
        ("umask: yes", "1:8: umask: expected text, got yes, which YAML reads as true; write umask: 'yes'"),
        ("gpu_selection: all", "1:16: gpu_selection: expected slurm, localid or none, got the text 'all'"),
        (
            "cache_directory: tmp",
            "1:18: cache_directory: expected an absolute path without variables, got 'tmp'",
        ),
        (
            "cache_directory: /tmp/$USER",
            "1:18: cache_directory: expected an absolute path without variables, got '/tmp/$USER'",
        ),
        (
            "binds: {net: [{source: /a, links: 3}]}",
            "1:35: binds.net[0].links: expected true or false, got the number 3",
        ),
        (
            "accelerators: {cuda: devices}",
            "1:22: accelerators.cuda: expected nv, nvccli or none, got the text 'devices'",
        ),
        ("arch: x86_64", "1:7: arch: expected auto, amd64 or arm64, got the text 'x86_64'"),
        ("env: {PATH: /x}", "1:7: env.PATH: PATH is made from the key path: write the directories there"),
        (
            "host_env: {SIF: x}",
            "1:12: host_env.SIF: SIF belongs to the module itself or to the module system and cannot be set here",
        ),
    ],
)
def test_mistakes_are_told_in_plain_words(text: str, message: str) -> None:
    assert problem(text) == message


@pytest.mark.parametrize("key", ["description", "catalogue.text", "catalogue.contact"])
def test_a_text_for_all_users_holds_no_login(key: str) -> None:
    lead = key.replace(".", ": {")
    told = problem(f"{lead}: 'see https://me:hunter2@x.org'{'}' * key.count('.')}")
    assert told.endswith(f"{key}: a login cannot be used here, because all users would read it")


@pytest.mark.parametrize("written", ["027", "'027'", "'0027'", "0027"])
def test_a_umask_is_octal_however_it_is_written(written: str) -> None:
    assert int(site(f"umask: {written}").umask or "", 8) == 0o27


@pytest.mark.parametrize(("written", "seconds"), [("1", 1.0), ("2.5", 2.5), ("3600", 3600.0)])
def test_the_lease_is_in_seconds(written: str, seconds: float) -> None:
    assert site(f"lock_lease: {written}").lock_lease == seconds


def test_binds_come_in_groups_in_their_order() -> None:
    built = site("binds: {net: [/opt/cray, '/lib/a:/lib/b:ro'], files: [{source: /pfs, optional: true}]}")
    assert [(name, [bind.source for bind in binds]) for name, binds in built.binds] == [
        ("net", ["/opt/cray", "/lib/a"]),
        ("files", ["/pfs"]),
    ]
    assert built.binds[1][1][0].optional


def test_numbers_in_variables_are_taken_as_they_are_written() -> None:
    assert site("runscript_env: {LEVEL: 3, A: 010}").runscript_env == (("LEVEL", "3"), ("A", "010"))
