"""Which values an easyconfig and a site file take, and which they refuse: both sides of each bound."""

import pytest

from sifmod.config.build import Build
from sifmod.config.easyconfig import Easyconfig
from sifmod.config.site import SiteFile
from sifmod.config.yaml.node import Mark, tree
from sifmod.config.yaml.parse import parse_yaml
from sifmod.config.yaml.validate import build, check_layer

BASIS = "name: App\nversion: '1'\naccelerator: none\n"
IMAGE = "image: {filename: a.sif, arch: amd64, sources: [a.sif]}\n"


def easyconfig(text: str, image: str = IMAGE) -> Easyconfig:
    built = build(Easyconfig, parse_yaml(f"{BASIS}{image}{text}".encode(), "f.yaml")[0])
    assert isinstance(built, Easyconfig), built
    return built


def refused(text: str, image: str = IMAGE) -> str:
    """The only problem, of an easyconfig."""
    built = build(Easyconfig, parse_yaml(f"{BASIS}{image}{text}".encode(), "f.yaml")[0])
    assert isinstance(built, tuple)
    (found,) = built
    return f"{found.key}: {found.message}" if found.key else found.message


def site(text: str) -> SiteFile:
    built = build(SiteFile, parse_yaml(text.encode(), "s.yaml")[0])
    assert isinstance(built, SiteFile), built
    return built


def refused_of_site(text: str) -> str:
    (found,) = check_layer(SiteFile, parse_yaml(text.encode(), "s.yaml")[0])
    return f"{found.key}: {found.message}"


@pytest.mark.parametrize(
    ("key", "most"), [("name", 100), ("version", 100), ("versionsuffix", 100), ("moduleclass", 100)]
)
def test_names_are_of_a_hundred_letters_at_most(key: str, most: int) -> None:
    keys = {"name": "A", "version": "1", "versionsuffix": "", "moduleclass": "m"}
    for length in (most, most + 1):
        keys[key] = "x" * length
        text = "".join(f"{name}: '{value}'\n" for name, value in keys.items())
        built = build(Easyconfig, parse_yaml(f"{text}accelerator: none\n{IMAGE}".encode(), "f.yaml")[0])
        if length == most:
            assert isinstance(built, Easyconfig)
        else:
            assert [str(problem).partition(" ")[2] for problem in built] == [f"{key}: is longer than 100 characters"]


def test_a_files_name_is_of_two_hundred_letters_at_most() -> None:
    longest = "a" * 196 + ".sif"
    image = "image: {filename: NAME, arch: amd64, sources: [a.sif]}\n"
    assert easyconfig("", image.replace("NAME", longest)).required_image.filename == longest
    assert refused("", image.replace("NAME", f"a{longest}")) == "image.filename: is longer than 200 characters"


@pytest.mark.parametrize("key", ["activate", "docurls", "sanity_check.commands", "sanity_check.paths", "image.build"])
def test_where_text_is_needed_the_empty_one_is_refused(key: str) -> None:
    texts = {
        "activate": "activate: ''\n",
        "sanity_check.commands": "sanity_check: {commands: ['']}\n",
        "sanity_check.paths": "sanity_check: {paths: ['']}\n",
    }
    if key in texts:
        assert refused(texts[key]).endswith(": is empty")
    elif key == "image.build":
        assert refused("", "image: {filename: a.sif, arch: amd64, build: ''}\n") == "image.build.definition: is empty"
    else:
        assert easyconfig("docurls: ['']\n").docurls == ("",)


@pytest.mark.parametrize("letter", ["\x1f", "\x7f", "\x80", "\x9f", "\u2028", "\u2029"])
def test_the_first_and_the_last_control_characters_are_refused(letter: str) -> None:
    for key in ("homepage", "description"):
        built = build(Easyconfig, tree({"name": "A", "version": "1", "accelerator": "none", key: letter}, HERE))
        assert not isinstance(built, Easyconfig)
        assert any(problem.key == key for problem in built)


@pytest.mark.parametrize("letter", [" ", "~", "\xa0", "\u2027", "\u202a", "é", "漢", "\U0001f600"])
def test_what_is_beside_the_control_characters_is_text(letter: str) -> None:
    assert easyconfig(f'description: "a{letter}b"\nhomepage: "a{letter}b"\n').homepage == f"a{letter}b"


HERE = Mark("f.yaml", 1, 1)


@pytest.mark.parametrize(
    "name",
    [
        *("HOME", "PWD", "IFS", "OPTIND", "UID", "EUID", "GID", "PROMPT_COMMAND", "e", "key", "__A"),
        *("APPTAINER_X", "SINGULARITY_X", "SING_USER_DEFINED_X"),
    ],
)
def test_each_variable_of_the_runtime_is_refused_inside_and_taken_by_runscripts(name: str) -> None:
    assert refused(f"env: {{{name}: x}}\n") == (
        f"env.{name}: {name} belongs to the runtime or its shell and cannot be set from outside the container"
    )
    assert easyconfig(f"runscript_env: {{{name}: x}}\n").runscript_env == ((name, "x"),)


@pytest.mark.parametrize(
    "name", ["HOME2", "PWDX", "_e", "keys", "_A", "APPTAINERX", "SINGULARITYX", "SING_USER", "PATHS"]
)
def test_variables_with_similar_names_are_taken(name: str) -> None:
    assert dict(easyconfig(f"env: {{{name}: x}}\n").env) == {name: "x"}


@pytest.mark.parametrize(
    "name",
    [
        *("PATH", "MODULEPATH", "LOADEDMODULES", "_LMFILES_", "SIF", "RUNSCRIPTS", "CONTAINERROOT", "WITH_CONDA"),
        *("SINGULARITY_BIND", "SINGULARITY_BINDPATH", "APPTAINER_BIND", "APPTAINER_BINDPATH"),
        *("_SIFMOD_X", "SIFMOD_X", "LMOD_X", "__LMOD_X", "_ModuleTable001_", "MODULES_X", "__MODULES_X"),
    ],
)
def test_each_variable_of_the_module_is_refused_on_the_host(name: str) -> None:
    assert refused(f"host_env: {{{name}: x}}\n") == (
        f"host_env.{name}: {name} belongs to the module itself or to the module system and cannot be set here"
    )


@pytest.mark.parametrize("name", ["SIFT", "PATHS", "SINGULARITY_BINDS", "MODULESX", "LMODX", "APPTAINER_CACHEDIR"])
def test_variables_with_similar_names_are_taken_on_the_host(name: str) -> None:
    assert easyconfig(f"host_env: {{{name}: x}}\n").host_env == ((name, "x"),)


@pytest.mark.parametrize("prefix", ["SINGULARITYENV_", "APPTAINERENV_"])
def test_each_spelling_of_a_variable_for_inside_is_sent_to_env(prefix: str) -> None:
    assert refused(f"host_env: {{{prefix}X_Y: '1'}}\n") == (
        f"host_env.{prefix}X_Y: write X_Y under env, which sets it in the container"
    )


@pytest.mark.parametrize("value", ["~", "~/x", "~user", "/a:~", "/a:~/b"])
def test_a_tilde_that_a_shell_might_replace_is_refused(value: str) -> None:
    assert refused(f"env: {{A: '{value}'}}\n") == (
        f"env.A: '{value}': write the full path, because a shell may not replace the ~"
    )


@pytest.mark.parametrize("value", ["a~", "/a~b", "a: ~", ":", "/a/~"])
def test_another_tilde_is_taken(value: str) -> None:
    assert easyconfig(f"host_env: {{A: '{value}'}}\n").host_env == (("A", value),)


@pytest.mark.parametrize(
    ("spelled", "items"),
    [
        ("[python, pip]", (("python", ""), ("pip", ""))),
        ("[{ipython: python -m IPython}]", (("ipython", "python -m IPython"),)),
        ("[{a: \"sh -c 'x y'\"}, auto]", (("a", "sh -c 'x y'"), ("auto", ""))),
        ("auto", (("auto", ""),)),
    ],
)
def test_wrappers_in_their_spellings(spelled: str, items: tuple[tuple[str, str], ...]) -> None:
    made = easyconfig(f"wrappers: {spelled}\n")
    assert made.wrapper_items == items
    assert made.wrappers == tuple(name for name, _ in items if name != "auto")
    assert made.wrapper_commands == tuple(item for item in items if item[1])
    assert made.wrappers_auto == (items[-1] == ("auto", ""))


@pytest.mark.parametrize(
    ("spelled", "message"),
    [
        ("[{a: [b]}]", "wrappers[0]: expected 'a': COMMAND, with the command as text"),
        ("[{a: 1}]", "wrappers[0]: expected 'a': COMMAND, with the command as text"),
        ("[{a: \"it's\"}]", "wrappers[0]: unclosed quotation mark, or a backslash at the end, in \"it's\""),
        ("[{a: ''}]", "wrappers[0]: expected a command, perhaps with its first arguments, got ''"),
        ("[{a: ' '}]", "wrappers[0]: expected a command, perhaps with its first arguments, got ' '"),
        ("[{a: '\"\" b'}]", "wrappers[0]: expected a command, perhaps with its first arguments, got '\"\" b'"),
        ("[{a: -m b}]", "wrappers[0]: expected a command, perhaps with its first arguments, got '-m b'"),
        ('[{a: "b\\nc"}]', r"wrappers[0]: the character '\n' is not allowed here: use a single line of printable text"),
        ("[{singularity: b}]", "wrappers[0]: a wrapper cannot be named singularity: it would hide the runtime that "
                               "it starts"),
        ("[apptainer]", "wrappers[0]: a wrapper cannot be named apptainer: it would hide the runtime that it starts"),
        ("some", "wrappers: expected a list of commands, or auto, got 'some'"),
    ],
)  # fmt: skip
def test_wrappers_that_cannot_be_made(spelled: str, message: str) -> None:
    assert refused(f"wrappers: {spelled}\n") == message


@pytest.mark.parametrize("spelled", ["[{a: b, c: d}]", "[{}]", "[[a]]", "[1]", "[true]"])
def test_wrappers_that_are_no_names(spelled: str) -> None:
    assert refused(f"wrappers: {spelled}\n").startswith("wrappers[0]: expected ")


def test_a_command_line_may_hold_anything_but_an_option_first() -> None:
    made = easyconfig("wrappers: [{a: \"b -c 'd e' | f\"}]\n")
    assert made.wrapper_commands == (("a", "b -c 'd e' | f"),)


@pytest.mark.parametrize("target", ["/", "//", "/.", "/a/..", "/../"])
def test_a_bind_that_hides_the_image_is_refused(target: str) -> None:
    assert refused(f"binds: ['/a:{target}']\n") == (
        f"binds[0].target: a bind to '{target}' would hide the whole image: bind single directories, or give a target "
        "other than /"
    )


def test_a_bind_of_the_root_needs_a_target_of_its_own() -> None:
    assert refused("binds: [/]\n").startswith("binds[0].target: a bind to '/' would hide the whole image")
    (bind,) = easyconfig("binds: ['/:/host']\n").binds
    assert (bind.source, bind.target) == ("/", "/host")


@pytest.mark.parametrize("options", ["ro", "rw", "id=12", "image-src=/a/b", "image-src=", "ro,id=1,image-src=x"])
def test_options_of_a_bind(options: str) -> None:
    (bind,) = easyconfig(f"binds: ['/a:/b:{options}']\n").binds
    assert bind.options == tuple(options.split(","))


@pytest.mark.parametrize("option", ["rox", "id=", "id=a", "id=1x", "exec", 'image-src="', "xrw", "image-src=a:b"])
def test_options_that_no_bind_has(option: str) -> None:
    assert refused(f"binds: ['/a:/b:ro,{option}']\n") == (
        f"binds[0].options: unknown bind option {option!r}: expected ro, rw, id=NUMBER or image-src=PATH"
    )


def test_a_bind_as_a_map_has_its_source_as_target_unless_it_says_otherwise() -> None:
    spelled = "[{source: /a}, {source: /a, target: /b, options: ro, optional: true, links: true}, '/c']"
    binds = easyconfig(f"binds: {spelled}\n").binds
    assert [(bind.source, bind.target, bind.options, bind.optional, bind.links) for bind in binds] == [
        ("/a", "/a", (), False, False),
        ("/a", "/b", ("ro",), True, True),
        ("/c", "/c", (), False, False),
    ]


@pytest.mark.parametrize(
    ("image", "message"),
    [
        ("sources: [a], build: b", "image: give sources or build, not both"),
        ("sources: []", "image: expected sources (a list), or build"),
        (
            "sources: [a], conversion: {compression: gzip, tools: {t: '1'}, tree: 'DIGEST'}",
            "image: conversion describes how the SIF with sha256 was made: give sha256 too",
        ),
    ],
)
def test_an_image_has_one_origin(image: str, message: str) -> None:
    text = f"image: {{filename: a.sif, arch: amd64, {image}}}\n".replace("DIGEST", "0" * 64)
    assert refused("", text) == message


def test_images_that_are_right() -> None:
    digest = "0" * 64
    head = "image: {filename: a.sif, arch: arm64, "
    assert easyconfig("", f"{head}build: /a.def}}\n").required_image.build == Build(definition="/a.def")
    assert easyconfig("", f"{head}sources: [a], sha256: '{digest}'}}\n").required_image.sha256 == digest
    conversion = f"conversion: {{compression: 'zstd:3', tools: {{mksquashfs: '4.6'}}, tree: '{digest}'}}"
    made = easyconfig("", f"{head}sources: [a], sha256: '{digest}', {conversion}}}\n").required_image.conversion
    assert made is not None
    assert (made.compression, made.tools, made.tree) == ("zstd:3", (("mksquashfs", "4.6"),), digest)


def test_a_version_that_is_lua_to_lmod_is_refused() -> None:
    assert refused("versionsuffix: -x.lua\n") == ("version and versionsuffix give 1-x.lua: .lua marks a Lua modulefile")
    assert easyconfig("versionsuffix: .lua5\n").module.version == "1.lua5"


def test_a_name_that_hides_every_version_of_another_one_in_lmod_is_refused() -> None:
    for name, problems in (("Deb.lua", ["the name is Deb.lua: .lua marks a Lua modulefile"]), ("Deb.lua5", [])):
        built = build(Easyconfig, parse_yaml(f"{BASIS.replace('App', name)}{IMAGE}".encode(), "f.yaml")[0])
        assert [found.message for found in (built if isinstance(built, tuple) else ())] == problems


@pytest.mark.parametrize(
    ("written", "size"),
    [
        ("65536", 65536), ("65536B", 65536), ("'65536'", 65536), ("100k", 100_000), ("100kB", 100_000),
        ("100kiB", 102_400),
        ("4M", 4_000_000), ("4MB", 4_000_000), ("4MiB", 4 << 20), ("4 MiB", 4 << 20), ("4Mi", 4 << 20), ("1G", 10**9),
        ("4GiB", 1 << 32), ("4294967296", 1 << 32),
    ],
)  # fmt: skip
def test_a_stripe_in_its_spellings(written: str, size: int) -> None:
    striping = site(f"striping: {{size: {written}}}\n").striping
    assert striping is not None
    assert striping.size == size


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("65535", "expected a number from 65536 to 4.29497e+09, got 65535"),
        ("5GiB", "expected a number from 65536 to 4.29497e+09, got 5GiB"),
        ("4MBx", "expected a size such as 512MB or 4GiB, got '4MBx'"),
        ("4X", "expected a size such as 512MB or 4GiB, got '4X'"),
        ("-1", "expected a size such as 512MB or 4GiB, got '-1'"),
        ("4.5M", "expected a size such as 512MB or 4GiB, got '4.5M'"),
        ("[1]", "expected a number, got a list"),
        ("yes", "expected a number, got yes, which YAML reads as true"),
    ],
)
def test_what_is_no_stripe(written: str, message: str) -> None:
    assert refused_of_site(f"striping: {{size: {written}}}\n") == f"striping.size: {message}"


def test_memory_in_terabytes() -> None:
    assert site("memory: 2T\n").memory == 2 * 10**12
    assert site("memory: 1TiB\n").memory == 1 << 40
    assert site("memory: 64MiB\n").memory == 64 << 20
    assert site("memory: 67108864\n").memory == 64 << 20
    assert refused_of_site("memory: 67108863\n") == "memory: expected at least 67108864, got 67108863"


@pytest.mark.parametrize(
    ("key", "low", "high"),
    [("gpus_per_node", 1, 64), ("connections", 1, 32), ("processors", 1, 256), ("lock_lease", 1, 3600)],
)
def test_numbers_have_a_range(key: str, low: int, high: int) -> None:
    for number in (low, high):
        assert getattr(site(f"{key}: {number}\n"), key) == number
    for number in (low - 1, high + 1):
        assert refused_of_site(f"{key}: {number}\n") == (f"{key}: expected a number from {low} to {high}, got {number}")


@pytest.mark.parametrize(
    ("count", "right"), [("-1", True), ("0", True), ("2000", True), ("-2", False), ("2001", False)]
)
def test_over_how_many_targets_a_stripe_goes(count: str, right: bool) -> None:
    if right:
        striping = site(f"striping: {{count: {count}}}\n").striping
        assert striping is not None
        assert (striping.count, striping.size) == (int(count), 4 << 20)
    else:
        assert refused_of_site(f"striping: {{count: {count}}}\n") == (
            f"striping.count: expected a number from -1 to 2000, got {count}"
        )


@pytest.mark.parametrize("written", ["4.0", "0x4", "1e1", "four", "4x", "2024-01-01"])
def test_a_count_is_a_whole_decimal_number(written: str) -> None:
    assert refused_of_site(f"connections: {written}\n").startswith("connections: expected a number, got ")


@pytest.mark.parametrize("umask", ["000", "002", "022", "027", "077", "0077"])
def test_umasks_that_leave_the_owner_his_rights(umask: str) -> None:
    assert site(f"umask: '{umask}'\n").umask == umask


@pytest.mark.parametrize("umask", ["100", "200", "400", "0700", "777"])
def test_umasks_that_take_them_are_refused(umask: str) -> None:
    assert refused_of_site(f"umask: '{umask}'\n") == (
        f"umask: '{umask}' would remove the owner's permissions from files that sifmod writes"
    )


@pytest.mark.parametrize("umask", ["", "27", "00027", "028", "o27", "-27", "٠٢٢", "²²²", " 27", "0o2"])
def test_what_is_no_umask(umask: str) -> None:
    assert refused_of_site(f"umask: '{umask}'\n") == (
        f"umask: expected three or four octal digits such as '027', got {umask!r}"
    )


@pytest.mark.parametrize(
    ("key", "right", "wrong", "expected"),
    [
        (
            "runtime",
            ("auto", "apptainer", "singularity", "/opt/x"),
            ("''", "Auto", "opt/x"),
            "expected auto, apptainer, singularity or an absolute path",
        ),
        (
            "cache_directory",
            ("''", "/tmp", "/"),
            ("tmp", "/$USER", "$TMPDIR", "~"),
            "expected an absolute path without variables",
        ),
        (
            "compression",
            ("auto", "zstd", "gzip", "lz4", "zstd:1", "zstd:19", "gzip:9"),
            ("''", "zstd:", "zstd:100", "lz4:1", "autox", "xz", "lz4x"),
            "expected auto, zstd:LEVEL, gzip:LEVEL or lz4",
        ),
    ],
)
def test_texts_of_a_site(key: str, right: tuple[str, ...], wrong: tuple[str, ...], expected: str) -> None:
    for text in right:
        assert getattr(site(f"{key}: {text}\n"), key) == text.strip("'")
    for text in wrong:
        spelled = text if text.startswith("'") else f"'{text}'"
        assert refused_of_site(f"{key}: {spelled}\n") == f"{key}: {expected}, got {spelled}"


@pytest.mark.parametrize(
    ("written", "policy"), [("off", "off"), ("'off'", "off"), ("warn", "warn"), ("require", "require")]
)
def test_a_policy_that_is_off_needs_no_quotes(written: str, policy: str) -> None:
    assert site(f"signatures: {{policy: {written}}}\n").signatures.policy == policy


def test_a_policy_that_is_on_is_none() -> None:
    assert refused_of_site("signatures: {policy: on}\n").startswith(
        "signatures.policy: expected off, warn or require, got on, which YAML reads as true"
    )


@pytest.mark.parametrize("place", ["docker.io", "a:1", "a:65535/b/c", "[::1]", "[::1]:5000/x", "A.b-c", "host/x_y.z-1"])
def test_places_of_registries(place: str) -> None:
    built = site(f"mirrors: {{'{place}': ['{place}']}}\ninsecure_registries: ['{place}']\n")
    assert built.mirrors == ((place, (place,)),)
    assert built.insecure_registries == (place,)


@pytest.mark.parametrize(
    "place", ["", "a:0", "a:65536", "a:123456", "a:", "a/", "/a", "a b", "http://a", "a:b", ".a", "a/é"]
)
def test_what_is_no_place_of_a_registry(place: str) -> None:
    assert refused_of_site(f"insecure_registries: ['{place}']\n") == (
        "insecure_registries[0]: expected a registry and perhaps a path, such as docker.io or mirror.site:5000/hub, "
        f"got {place!r}"
    )


def test_a_place_with_credentials_is_refused_without_repeating_them() -> None:
    assert refused_of_site("insecure_registries: ['me:secret@a']\n") == (
        "insecure_registries[0]: credentials do not belong here: log in, for example with `apptainer registry login`"
    )


def test_the_servers_of_tokens_are_named_in_lower_case_without_a_path() -> None:
    assert site("token_servers: {Registry.Site: [Auth.Site:5000]}\n").token_servers == (
        ("registry.site", ("auth.site:5000",)),
    )
    assert refused_of_site("token_servers: {a: [b/c]}\n") == (
        "token_servers.a[0]: expected a server, such as registry.site.org or registry.site.org:5000, got 'b/c'"
    )
    assert refused_of_site("token_servers: {a/b: [c]}\n").startswith("token_servers.a/b: expected a server")


def test_a_dumped_easyconfig_has_maps_again() -> None:
    """What the models give back is what a file may hold."""
    made = easyconfig("env: {B: '1', A: '2'}\nwrappers: [python, {ip: python -m x}]\n").model_dump(by_alias=True)
    assert made["env"] == {"B": "1", "A": "2"}
    assert made["wrappers"] == ["python", {"ip": "python -m x"}]
