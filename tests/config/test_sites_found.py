"""Which site a machine is: named, recognised, or that of an install."""

from pathlib import Path

import pytest

from sifmod.config.detect import detected_site, kept_site, named_site, site_directories, site_names
from sifmod.config.find import shipped
from sifmod.config.input import Input, current_facts, read_input
from sifmod.config.load_site import Kept, load_site
from sifmod.config.option_layers import easyconfig_layer, option_layers
from sifmod.errors import ConfigError, OptionError
from support.config import Configuration, lines, write

GENERIC = "accelerator: none\n"


@pytest.fixture
def configuration(tmp_path: Path) -> Configuration:
    return Configuration(tmp_path)


@pytest.fixture
def sites(tmp_path: Path) -> Path:
    """A directory of sites that holds a fallback."""
    write(tmp_path / "sites" / "generic.yaml", GENERIC)
    return tmp_path / "sites"


def recognised(sites: Path, *others: Path) -> tuple[str, str]:
    found = detected_site((sites, *others), {})
    return found.node.entries["name"].text, found.how


def test_sites_of_the_user_come_before_those_of_the_machine_and_the_shipped_ones() -> None:
    environ = {"XDG_CONFIG_HOME": "/u", "SIFMOD_CONFIG_DIR": "/m"}
    assert site_directories(environ) == (Path("/u/sifmod/sites"), Path("/m/sites"), shipped() / "sites")


def test_the_site_with_the_most_paths_is_it(sites: Path, tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    (tmp_path / "b").mkdir()
    assert recognised(sites) == ("generic", "no other site was recognised")
    write(sites / "none.yaml", "detect: {paths: []}\n")
    write(sites / "half.yaml", f"detect: {{paths: ['{tmp_path}/a', '{tmp_path}/c', '{tmp_path}/b']}}\n")
    assert recognised(sites) == ("generic", "no other site was recognised")
    write(sites / "one.yaml", f"name: first\ndetect: {{paths: ['{tmp_path}/a']}}\n")
    write(sites / "zone.yaml", f"detect: {{paths: ['{tmp_path}/b']}}\n")
    assert recognised(sites) == ("first", f"recognised by {tmp_path}/a")
    write(sites / "two.yaml", f"detect: {{paths: ['{tmp_path}/?', '{tmp_path}/b']}}\n")
    assert recognised(sites) == ("two", f"recognised by {tmp_path}/?, {tmp_path}/b")
    write(sites / "two.yaml", f"detect: {{paths: ['{tmp_path}/c?', '{tmp_path}/b']}}\n")
    assert recognised(sites) == ("first", f"recognised by {tmp_path}/a")


def test_of_equal_sites_the_first_directory_has_it(sites: Path, tmp_path: Path) -> None:
    for directory, name in ((tmp_path / "u", "z"), (sites, "a")):
        write(directory / f"{name}.yaml", f"detect: {{paths: ['{tmp_path}']}}\n")
    assert recognised(tmp_path / "u", sites)[0] == "z"
    assert recognised(sites, tmp_path / "u")[0] == "a"


def test_a_users_own_fallback_comes_first(sites: Path, tmp_path: Path) -> None:
    write(tmp_path / "u" / "generic.yaml", "name: mine\n")
    write(tmp_path / "u" / "other.yaml", "name: other\n")
    assert recognised(tmp_path / "u", sites)[0] == "mine"


def test_without_a_fallback_sifmod_is_not_whole(tmp_path: Path) -> None:
    write(tmp_path / "a.yaml", "link: copy\n")
    with pytest.raises(OptionError) as caught:
        detected_site((tmp_path,), {})
    assert caught.value.message == f"there is no site 'generic' in {shipped() / 'sites'}"
    assert caught.value.hint == "is the installation of sifmod complete?"


def test_everything_that_was_looked_at_is_kept(sites: Path, tmp_path: Path) -> None:
    write(sites / "a.yaml", f"detect: {{paths: ['{tmp_path}/a', '{tmp_path}/*b']}}\n")
    write(sites / "bad.yaml", "detect: 3\n")
    found = detected_site((tmp_path / "none", sites), {})
    paths = (
        *(f"{tmp_path}/none/", f"{sites}/", f"{sites}/a.yaml", f"?{tmp_path}/a", f"*{tmp_path}/*b"),
        *(f"{sites}/bad.yaml", f"{sites}/generic.yaml"),
    )
    assert found.inputs == tuple(read_input(path, {}) for path in paths)
    assert [str(problem) for problem in found.left_out] == [
        f"{sites}/bad.yaml:1:9: detect: expected keys and values, got the number 3"
    ]


def test_what_cannot_be_read_is_told_even_where_another_site_is_recognised(sites: Path, tmp_path: Path) -> None:
    write(sites / "a.yaml", f"detect: {{paths: ['{tmp_path}']}}\n")
    write(sites / "bad.yaml", "- x\n")
    found = detected_site((sites,), {})
    assert found.node.entries["name"].text == "a"
    assert len(found.left_out) == 1


def test_a_site_by_its_name_or_its_file(sites: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "u" / "generic.yaml", "link: hardlink\n")
    found = named_site("generic", "--site", (tmp_path / "u", sites), {})
    assert (found.node.entries["link"].text, found.how, found.left_out) == ("hardlink", "named by --site", ())
    assert [read.path for read in found.inputs] == [str(tmp_path / "u" / "generic.yaml")]
    monkeypatch.chdir(sites)
    assert named_site("generic.yaml", "x", (), {}).node.entries["name"].text == "generic"
    assert named_site("./generic.yaml", "x", (), {}).node.entries["name"].text == "generic"


def test_a_name_that_no_site_has(sites: Path) -> None:
    write(sites / "alps.yaml", GENERIC)
    with pytest.raises(OptionError) as caught:
        named_site("alp", "SIFMOD_SITE", (sites,), {})
    assert caught.value.message == "SIFMOD_SITE: there is no site 'alp'; did you mean alps?"
    assert caught.value.hint == "known sites are alps, generic"


def test_the_names_of_sites_are_those_of_their_files_and_what_these_say(sites: Path, tmp_path: Path) -> None:
    for name in "hgfedcba":
        write(sites / f"{name}.yaml", f"name: {name}{name}\n" if name < "d" else GENERIC)
    write(tmp_path / "u" / "bad.yaml", "- x\n")
    expected = sorted(["bad", "generic", "aa", "bb", "cc", *"abcdefgh"])
    assert site_names((tmp_path / "u", sites), {}) == tuple(expected)


def test_the_site_of_an_install_is_found_by_what_its_file_says(sites: Path, tmp_path: Path) -> None:
    write(sites / "a-bad.yaml", "- x\n")
    write(sites / "file.yaml", "name: called\n")
    write(tmp_path / "u" / "another.yaml", "name: other\n")
    found = kept_site("called", (tmp_path / "u", sites), {})
    assert (found.node.entries["name"].text, found.how) == ("called", "the site of the install")
    assert [read.path for read in found.inputs] == [f"{sites}/file.yaml"]
    write(sites / "other.yaml", "name: someone\n")
    found = kept_site("other", (tmp_path / "u", sites), {})
    assert (found.node.entries["name"].text, found.how) == ("someone", "the site of the install")
    by_path = kept_site(f"{sites}/file.yaml", (), {})
    assert (by_path.node.entries["name"].text, by_path.how) == ("called", "the site of the install")


def test_the_site_of_an_install_that_is_gone(sites: Path) -> None:
    with pytest.raises(OptionError) as caught:
        kept_site("gone", (sites,), {})
    assert caught.value.message == "the site of the install: there is no site 'gone'"
    assert caught.value.hint == "--site NAME chooses another; known sites are generic"


def test_problems_of_a_site_are_told_in_the_order_of_the_file(configuration: Configuration) -> None:
    path = write(configuration.root / "s.yaml", "prefxi: /x\nlink: copy\nlink: hardlink\n")
    with pytest.raises(ConfigError) as caught:
        configuration.site(site=str(path))
    assert lines(caught.value) == [
        "s.yaml:1:1: prefxi: unknown key; did you mean prefix?",
        "s.yaml:3:1: link: duplicate key, first given in line 2",
    ]


def test_an_install_keeps_the_facts_of_its_machine(configuration: Configuration) -> None:
    """But for variables, which are those of now, and for a runtime that was not there."""
    before = {"machine": "aarch64", "module syntax": "tcl", "variable HOME": "/gone", "device cuda": "present"}
    runtimes = {"program apptainer": "/o/apptainer\t/o/apptainer", "program singularity": ""}
    loaded = load_site({}, configuration.environ, Kept("generic", {**before, **runtimes}))
    facts = dict(loaded.facts)
    assert facts["variable HOME"] == configuration.environ["HOME"]
    assert list(loaded.facts) == sorted(loaded.facts)
    assert (loaded.site.arch, loaded.site.module_syntax, loaded.site.runtime_path) == (
        "arm64",
        ("tcl",),
        "/o/apptainer",
    )
    now = dict(current_facts(configuration.environ))
    none = load_site({}, configuration.environ, Kept("generic", {**before, "program apptainer": ""}))
    assert dict(none.facts)["program apptainer"] == now["program apptainer"]


def test_a_site_by_its_path_is_a_fact_of_an_install(configuration: Configuration) -> None:
    path = write(configuration.root / "own.yaml", "name: own\n")
    facts = {"machine": "x86_64"}
    loaded = load_site({}, configuration.environ, Kept(str(path), facts))
    assert loaded.site.name == "own"
    assert dict(loaded.facts)["variable SIFMOD_SITE"] == str(path)
    named = load_site({"site": "generic"}, configuration.environ, Kept(str(path), facts))
    assert (named.site.name, "variable SIFMOD_SITE" in dict(named.facts)) == ("generic", False)
    by_name = load_site({}, configuration.environ, Kept("generic", facts))
    assert "variable SIFMOD_SITE" not in dict(by_name.facts)


def test_a_null_names_no_site(configuration: Configuration) -> None:
    write(configuration.root / "etc" / "sites" / "mine.yaml", "name: mine\n")
    write(configuration.root / "etc" / "a.yaml", "site: mine\n")
    assert configuration.site().site.name == "mine"
    write(configuration.root / "etc" / "b.yaml", "site: null\n")
    assert configuration.site().site.name == "mine"


def test_settings_files_are_read_in_the_order_of_their_names(configuration: Configuration) -> None:
    for letter in "hgfedcba":
        write(configuration.root / "etc" / f"{letter}.yaml", f"binds: {{{letter}: [/{letter}]}}\ngroup: {letter}\n")
    loaded = configuration.site(site="generic")
    assert [bind.source for bind in loaded.site.binds] == [f"/{letter}" for letter in "abcdefgh"]
    assert loaded.site.group == "h"
    absent = Input(f"{configuration.root}/home/.config/sifmod/config.yaml", None)
    assert absent in loaded.inputs
    assert [read.path for read in loaded.inputs if read.path.startswith(f"{configuration.root}/etc/")] == [
        f"{configuration.root}/etc/",
        *(f"{configuration.root}/etc/{letter}.yaml" for letter in "abcdefgh"),
    ]


def test_search_paths_add_up_whichever_way_they_are_written(configuration: Configuration) -> None:
    write(configuration.root / "etc" / "a.yaml", "robot_paths: [/a]\n")
    write(configuration.root / "etc" / "b.yaml", "robot_paths+: [/b, /a]\n")
    loaded = configuration.site(site="generic")
    assert [str(path) for path in loaded.site.robot_paths] == ["/b", "/a", str(shipped())]
    told = [(origin.value, Path(origin.origin).name) for origin in loaded.origins if origin.key == "robot_paths"]
    assert told == [("/b", "b.yaml:1"), ("/a", "b.yaml:1"), ("/a", "a.yaml:1"), (str(shipped()), "shipped")]


def test_what_decides_about_the_site_is_no_value_of_it(configuration: Configuration) -> None:
    write(configuration.root / "etc" / "a.yaml", "site: generic\ndetect: {paths: ['${GONE}/x']}\n")
    loaded = configuration.site()
    assert [origin.origin for origin in loaded.origins if origin.key == "site"] == [
        f"named by {configuration.root}/etc/a.yaml:1"
    ]
    assert not [origin for origin in loaded.origins if origin.key.startswith("detect")]


def test_variables_that_are_not_set_are_all_told_by_their_options(configuration: Configuration) -> None:
    configuration.variables |= {"SIFMOD_PREFIX": "${ONE}/x", "SIFMOD_IMAGE_DIRS": "${TWO}/x:/y"}
    write(configuration.root / "etc" / "a.yaml", "runtime: ${THREE}/x\n")
    with pytest.raises(OptionError) as caught:
        configuration.site(site="generic")
    assert caught.value.message == (
        "SIFMOD_IMAGE_DIRS: the variable TWO is empty or not set: ${TWO}/x\n"
        "SIFMOD_PREFIX: the variable ONE is empty or not set: ${ONE}/x"
    )


def test_without_quirks_nothing_is_read(configuration: Configuration) -> None:
    quirks = configuration.root / "etc" / "quirks"
    write(quirks / "bad.yaml", "- x\n")
    loaded = configuration.site(site="generic")
    assert loaded.quirk_directories == (
        shipped() / "quirks",
        quirks,
        configuration.root / "home" / ".config" / "sifmod" / "quirks",
    )
    with pytest.raises(ConfigError):
        loaded.quirks  # noqa: B018
    assert loaded.without_quirks().quirks == ()
    write(configuration.root / "etc" / "sites" / "bad.yaml", "- x\n")
    unsure = configuration.site()
    with pytest.raises(ConfigError):
        unsure.quirks  # noqa: B018
    assert (unsure.without_quirks().quirks, unsure.without_quirks().quirk_inputs) == ((), ())


def test_a_number_of_an_option_is_one() -> None:
    names = {"lock_lease": "2.5", "connections": "3", "processors": "4", "memory": "99999999"}
    variables, line = option_layers(names, {f"SIFMOD_{name.upper()}": text for name, text in names.items()})
    for layer in (variables, line):
        assert [str(layer.entries[name].value) for name in names] == [
            f"Number(text='{text}', kind='number')" for text in names.values()
        ]
    assert option_layers({"group": "12", "umask": "027"}, {})[1].entries["group"].value == "12"


@pytest.mark.parametrize("text", ["3x", "x3", "-3", "3e1", "3.5.1"])
def test_what_is_no_number_is_refused_as_text(text: str) -> None:
    with pytest.raises(OptionError) as caught:
        option_layers({"connections": text}, {})
    assert caught.value.message == f"--connections: expected a number, got the text '{text}'"


def test_lists_of_options_are_split_and_paths_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    variables, line = option_layers(
        {"image_dirs": "a::/b/../c:", "robot_paths": "d", "prefix": "e", "group": "f"},
        {"SIFMOD_IMAGE_DIRS": "/x:~/y::${Z}", "HOME": "/h", "Z": "/z"},
    )
    assert [node.text for node in line.entries["image_dirs"].items] == [f"{tmp_path}/a", "/c"]
    assert [node.text for node in line.entries["robot_paths"].items] == [f"{tmp_path}/d"]
    assert (line.entries["prefix"].text, line.entries["group"].text) == (f"{tmp_path}/e", "f")
    assert [node.text for node in variables.entries["image_dirs"].items] == ["/x", "/h/y", "/z"]
    assert str(variables.entries["image_dirs"].mark) == "SIFMOD_IMAGE_DIRS"
    assert str(line.entries["image_dirs"].mark) == "--image-dirs"


def test_the_first_unknown_variable_by_its_name_is_told() -> None:
    with pytest.raises(OptionError) as caught:
        option_layers({}, {"SIFMOD_ZZZ": "", "SIFMODE": "x", "SIFMOD_LINKS": "1", "OTHER": "x"})
    assert caught.value.message == "SIFMOD_LINKS: unknown variable; did you mean SIFMOD_LINK?"
    assert caught.value.hint.startswith("known are SIFMOD_ACCELERATOR, SIFMOD_ANY_CONTAINER, SIFMOD_ARCH, ")


def test_what_the_command_line_says_about_an_easyconfig() -> None:
    layer = easyconfig_layer({"name": "A", "image.sources": ("x", "y"), "conda.prefix": "/c"})
    assert layer.entries["name"].text == "A"
    assert [node.text for node in layer.entries["image"].entries["sources"].items] == ["x", "y"]
    assert layer.entries["image"].entries["build"].value is None
    assert layer.entries["conda"].entries["prefix"].text == "/c"
    assert "image" not in easyconfig_layer({"version": "2"}).entries
    with pytest.raises(OptionError) as caught:
        easyconfig_layer({"name": "a b", "verb": "start"})
    assert caught.value.message == (
        "name: 'a b' cannot be used: use letters, digits and . _ + -, starting with a letter or digit, without "
        "'..'\nverb: expected exec or run, got the text 'start'"
    )
