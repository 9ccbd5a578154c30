"""The site in force: precedence, detection, variables, and where each value came from."""

import grp
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sifmod.config.detect import EXPANDED
from sifmod.config.find import shipped
from sifmod.config.input import HostFacts, current_facts
from sifmod.config.load_site import load_site
from sifmod.config.option import KEYS, VARIABLES
from sifmod.errors import ConfigError, OptionError, SifmodError
from support.command import SIFMOD
from support.config import Configuration, lines, write
from support.identity import call_as
from support.user import OrdinaryUser


@pytest.fixture
def configuration(tmp_path: Path) -> Configuration:
    return Configuration(tmp_path)


def user_file(configuration: Configuration, text: str) -> Path:
    return write(configuration.root / "home/.config/sifmod/config.yaml", text)


def machine_file(configuration: Configuration, name: str, text: str) -> Path:
    return write(configuration.root / "etc" / name, text)


def program(path: Path) -> Path:
    write(path, "#!/bin/sh\n").chmod(0o755)
    return path


def test_every_level_wins_over_those_below(configuration: Configuration) -> None:
    """docs/design.md, section 10: command line > SIFMOD_* > user file > /etc/sifmod.d > the site > defaults."""
    assert configuration.site().site.link == "copy"
    write(configuration.root / "etc/sites/mine.yaml", "link: hardlink")
    assert configuration.site(site="mine").site.link == "hardlink"
    machine_file(configuration, "10-a.yaml", "link: reference\nsite: mine")
    assert configuration.site().site.link == "reference"
    machine_file(configuration, "20-b.yaml", "link: hardlink")
    assert configuration.site().site.link == "hardlink"
    user_file(configuration, "link: reference")
    assert configuration.site().site.link == "reference"
    configuration.variables["SIFMOD_LINK"] = "hardlink"
    assert configuration.site().site.link == "hardlink"
    assert configuration.site(link="copy").site.link == "copy"


def test_where_each_value_comes_from_is_told(configuration: Configuration) -> None:
    machine = machine_file(configuration, "a.yaml", "umask: '027'\nbinds: {net: [/opt/net]}\n")
    user = user_file(configuration, "\ngroup: people\n")
    configuration.variables["SIFMOD_LINK"] = "hardlink"
    loaded = configuration.site(prefix="/p", site="generic")
    told = {key: (value, origin) for key, value, origin in loaded.origins}
    assert told["site"] == ("generic", "named by --site")
    assert told["prefix"] == ("/p", "--prefix")
    assert told["link"] == ("hardlink", "SIFMOD_LINK")
    assert told["group"] == ("people", f"{user}:1")
    assert told["umask"] == ("027", f"{machine}:1")
    assert told["binds.net[0]"] == ("/opt/net", f"{machine}:2")
    assert told["accelerator"] == ("none", f"{shipped()}/sites/generic.yaml:3")
    assert told["lock_lease"] == ("30", "default")
    assert told["accelerators.cuda"] == ("nv", "default")
    assert told["robot_paths"] == (str(shipped()), "shipped")
    assert told["runtime"] == ("(none)", "no apptainer or singularity on PATH")
    assert told["arch"][1].startswith("this is a ")


def test_binds_of_all_groups_are_merged_by_group(configuration: Configuration) -> None:
    machine_file(configuration, "a.yaml", "binds: {net: [/n], files: [/f], old: [/o]}\nenv: {A: 1, B: 2}")
    user_file(configuration, "binds: {files+: [/g], old: null, own: ['/x:/y:ro']}\nenv: {B: 3}")
    site = configuration.site().site
    assert [(bind.source, bind.target, bind.options) for bind in site.binds] == [
        ("/n", "/n", ()),
        ("/f", "/f", ()),
        ("/g", "/g", ()),
        ("/x", "/y", ("ro",)),
    ]
    assert site.env == (("A", "1"), ("B", "3"))


def test_robot_paths_of_all_levels_are_searched_nearest_first(configuration: Configuration) -> None:
    machine_file(configuration, "a.yaml", "robot_paths: [/machine, /shared]")
    user_file(configuration, "robot_paths: [/user, /shared]")
    configuration.variables["SIFMOD_ROBOT_PATHS"] = "/one::/two"
    paths = configuration.site(robot_paths="/line").site.robot_paths
    assert [str(path) for path in paths] == [
        *("/line", "/one", "/two", "/user", "/shared", "/machine"),
        str(shipped()),
    ]


def test_variables_in_paths_are_replaced_and_those_not_set_are_refused(configuration: Configuration) -> None:
    user = user_file(
        configuration,
        """
        prefix: ${PROJECT}/sifmod
        image_dirs: [~/images, '${PROJECT}/images']
        binds: {files: ['${PROJECT}/data:/data']}
        """,
    )
    with pytest.raises(ConfigError) as caught:
        configuration.site()
    assert lines(caught.value) == [
        "config.yaml:1:9: prefix: the variable PROJECT is empty or not set: ${PROJECT}/sifmod",
        "config.yaml:2:24: image_dirs: the variable PROJECT is empty or not set: ${PROJECT}/images",
        "config.yaml:3:17: binds: the variable PROJECT is empty or not set: ${PROJECT}/data:/data",
    ]
    configuration.variables["PROJECT"] = "/project/p1"
    loaded = configuration.site()
    assert loaded.site.prefix == Path("/project/p1/sifmod")
    assert loaded.site.image_dirs == (f"{configuration.root}/home/images", "/project/p1/images")
    assert loaded.site.binds[0].source == "/project/p1/data"
    assert {entry.path for entry in loaded.inputs} >= {"$PROJECT", "$HOME", str(user)}
    assert HostFacts(configuration.environ).unchanged(loaded.inputs)
    configuration.variables["PROJECT"] = "/project/p2"
    assert not HostFacts(configuration.environ).unchanged(loaded.inputs)


UNSET = {
    "site": "${UNSET}/site.yaml",
    "prefix": "${UNSET}/x",
    "user_prefix": "${UNSET}/x",
    "trees": "['/here', '${UNSET}/x']",
    "stores": "['/here', '${UNSET}/x']",
    "image_dirs": "['/here', '${UNSET}/x']",
    "robot_paths": "['/here', '${UNSET}/x']",
    "runtime": "${UNSET}/bin/apptainer",
    "binds": "{group: [{source: '${UNSET}/x', target: /x}]}",
    "signatures": "{keys: ['${UNSET}/key.asc']}",
}


@pytest.mark.parametrize("level", ["user", "machine", "+"])
@pytest.mark.parametrize("key", sorted(set(EXPANDED) - {"detect"}))
def test_a_variable_that_is_not_set_is_refused_in_every_key(configuration: Configuration, key: str, level: str) -> None:
    """`${UNSET}/x` would be looked for, or written to, as it stands. `+`: where the key appends."""
    plus = "+" if level == "+" and key in ("image_dirs", "robot_paths", "trees", "stores") else ""
    text = f"{key}{plus}: {UNSET[key]}"
    if level == "machine":
        machine_file(configuration, "a.yaml", text)
    else:
        user_file(configuration, text)
    with pytest.raises(SifmodError, match="UNSET"):
        configuration.site()


def test_a_variable_that_nothing_in_force_needs_may_be_unset(configuration: Configuration) -> None:
    user_file(configuration, "prefix: ${PROJECT}/sifmod")
    assert configuration.site(prefix="/p").site.prefix == Path("/p")


def test_a_variable_may_not_make_a_path_relative(configuration: Configuration) -> None:
    user_file(configuration, "prefix: ${PROJECT}/sifmod")
    configuration.variables["PROJECT"] = "here"
    with pytest.raises(ConfigError, match=r"config.yaml:1:9: prefix: expected an absolute path, got 'here/sifmod'"):
        configuration.site()


def test_the_prefix_without_any_setting(configuration: Configuration) -> None:
    site = configuration.site().site
    assert (site.prefix, site.prefix_is_default) == (configuration.root / "home/.local/share/sifmod", True)
    configuration.variables["XDG_DATA_HOME"] = "/data"
    assert configuration.site().site.prefix == Path("/data/sifmod")
    configuration.variables["XDG_DATA_HOME"] = "relative"
    assert configuration.site().site.prefix == configuration.root / "home/.local/share/sifmod"
    configuration.variables["EBU_USER_PREFIX"] = "~/EasyBuild"
    assert configuration.site().site.prefix == configuration.root / "home/EasyBuild/sifmod"
    configuration.variables["EBU_USER_PREFIX"] = ""
    assert configuration.site().site.prefix == configuration.root / "home/.local/share/sifmod"
    configuration.variables["EBU_USER_PREFIX"] = "EasyBuild"
    with pytest.raises(OptionError, match="EBU_USER_PREFIX: expected an absolute path, got 'EasyBuild'"):
        configuration.site()
    site = configuration.site(prefix="/p").site
    assert (site.prefix, site.prefix_is_default) == (Path("/p"), False)


def test_a_relative_prefix_on_the_command_line_is_one_of_this_directory(
    configuration: Configuration, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(configuration.root)
    assert configuration.site(prefix="a/../b c").site.prefix == configuration.root / "b c"
    paths = configuration.site(robot_paths="x:/y").site.robot_paths
    assert paths[:2] == (configuration.root / "x", Path("/y"))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("accelerator", "gpu", "--accelerator: expected auto, rocm, cuda or none, got the text 'gpu'"),
        ("module_syntax", "x", "--module-syntax: expected auto, lua, tcl or both, got the text 'x'"),
        ("arch", "amd", "--arch: expected auto, amd64 or arm64, got the text 'amd'; did you mean amd64?"),
        ("lock_lease", "soon", "--lock-lease: expected a number, got the text 'soon'"),
        ("lock_lease", "nan", "--lock-lease: expected a number, got the text 'nan'"),
        ("lock_lease", "1e9", "--lock-lease: expected a number, got the text '1e9'"),
        ("lock_lease", "4000", "--lock-lease: expected a number from 1 to 3600, got 4000"),
        ("prefix", "/a:b", "--prefix: a path with : cannot be bound into a container: '/a:b'"),
        ("prefix", "/a\nb", "--prefix: the character '\\n' is not allowed here: use a single line of printable text"),
        ("site", "lumi", "--site: there is no site 'lumi'; did you mean lumi-g?"),
    ],
)  # fmt: skip
def test_options_that_cannot_be_used(configuration: Configuration, key: str, value: str, message: str) -> None:
    with pytest.raises(OptionError) as caught:
        configuration.site(**{key: value})
    assert caught.value.message == message
    assert caught.value.exit_code == 2


def test_variables_that_cannot_be_used_are_all_told(configuration: Configuration) -> None:
    configuration.variables |= {"SIFMOD_LINK": "move", "SIFMOD_PREFIX": "relative", "SIFMOD_GROUP": ""}
    with pytest.raises(OptionError) as caught:
        configuration.site()
    assert caught.value.message.splitlines() == [
        "SIFMOD_LINK: expected copy, hardlink or reference, got the text 'move'",
        "SIFMOD_PREFIX: expected an absolute path, got 'relative'",
    ] or caught.value.message.splitlines() == [
        "SIFMOD_PREFIX: expected an absolute path, got 'relative'",
        "SIFMOD_LINK: expected copy, hardlink or reference, got the text 'move'",
    ]


def test_an_unknown_variable_is_refused_with_the_one_that_was_meant(configuration: Configuration) -> None:
    configuration.variables["SIFMOD_PREFXI"] = "/x"
    with pytest.raises(OptionError) as caught:
        configuration.site()
    assert caught.value.message == "SIFMOD_PREFXI: unknown variable; did you mean SIFMOD_PREFIX?"
    assert all(variable in caught.value.hint for variable in VARIABLES)


def test_every_option_has_its_variable(configuration: Configuration) -> None:
    values = {
        "site": "generic-rocm",
        "prefix": "/p",
        "image_dirs": "/i:/j",
        "robot_paths": "/r",
        "accelerator": "cuda",
        "runtime": "/bin/sh",  # any program
        "module_syntax": "both",
        "link": "reference",
        "lock_lease": "12.5",
        "umask": "002",
        "group": "people",
        "trees": "/u:/v",
        "stores": "/s:/t",
        "arch": "arm64",
        "compression": "gzip:6",
        "connections": "7",
        "processors": "3",
        "memory": "2GiB",
    }
    assert set(values) == set(KEYS)
    by_variable = load_site({}, {**configuration.environ, **{f"SIFMOD_{k.upper()}": v for k, v in values.items()}}).site
    assert by_variable == configuration.site(**values).site
    assert (by_variable.name, by_variable.accelerator, by_variable.arch) == ("generic-rocm", "cuda", "arm64")
    assert (by_variable.umask, by_variable.lock_lease, by_variable.group) == (2, 12.5, "people")
    assert by_variable.image_dirs == ("/i", "/j")
    assert by_variable.trees == (Path("/u"), Path("/v"))
    assert by_variable.stores == (Path("/s"), Path("/t"))
    assert (by_variable.compression, by_variable.connections) == ("gzip:6", 7)
    assert (by_variable.processors, by_variable.memory) == (3, 2 << 30)
    assert by_variable.module_syntax == ("lua", "tcl")
    assert (by_variable.runtime_kind, by_variable.runtime_path) == ("singularity", "/bin/sh")


def test_every_problem_of_every_settings_file_is_told(configuration: Configuration) -> None:
    machine_file(configuration, "a.yaml", "link: move\nlink: copy\nprefxi: /x")
    machine_file(configuration, "b.yaml", "- a")
    machine_file(configuration, "c.txt", "not read")
    user_file(configuration, "umask: 9")
    with pytest.raises(ConfigError) as caught:
        configuration.site()
    assert lines(caught.value) == [
        "a.yaml:1:7: link: expected copy, hardlink or reference, got the text 'move'",
        "a.yaml:2:1: link: duplicate key, first given in line 1",
        "a.yaml:3:1: prefxi: unknown key; did you mean prefix?",
        "b.yaml:1:1: expected keys and values such as `name: PyTorch`, got a list",
        "config.yaml:1:8: umask: expected three or four octal digits such as '027', got '9'",
    ]


def test_a_settings_file_that_cannot_be_read_is_told(configuration: Configuration) -> None:
    (configuration.root / "etc").mkdir()
    (configuration.root / "etc/a.yaml").symlink_to("nowhere")
    with pytest.raises(ConfigError, match=r"a\.yaml:1:1: cannot be read: no such file or directory"):
        configuration.site()


def test_a_site_is_named_by_path_or_by_name(configuration: Configuration) -> None:
    own = write(configuration.root / "own.yaml", "name: own\naccelerator: rocm")
    assert configuration.site(site=str(own)).site.name == "own"
    nameless = write(configuration.root / "nameless.yaml", "accelerator: rocm")
    assert configuration.site(site=str(nameless)).site.name == "nameless"
    write(configuration.root / "home/.config/sifmod/sites/lumi-g.yaml", "name: lumi-g\naccelerator: none")
    assert configuration.site(site="lumi-g").site.accelerator == "none"
    with pytest.raises(OptionError, match=r"--site: there is no site '/nowhere\.yaml'"):
        configuration.site(site="/nowhere.yaml")


def test_the_machine_is_recognised_by_paths_that_exist(configuration: Configuration) -> None:
    assert configuration.site().site.name == "generic"
    mark = configuration.root / "cluster-mark"
    other = configuration.root / "other-mark"
    write(configuration.root / "etc/sites/cluster.yaml", f"name: cluster\ndetect: {{paths: [{mark}]}}")
    write(configuration.root / "etc/sites/cluster-gpu.yaml", f"name: cluster-gpu\ndetect: {{paths: [{mark}, {other}]}}")
    absent = configuration.site()
    assert absent.site.name == "generic"
    assert HostFacts(configuration.environ).unchanged(absent.inputs)
    mark.mkdir()
    assert not HostFacts(configuration.environ).unchanged(absent.inputs)
    found = configuration.site()
    assert found.site.name == "cluster"
    assert ("site", "cluster", f"recognised by {mark}") in found.origins
    other.touch()
    assert configuration.site().site.name == "cluster-gpu"


def test_a_new_settings_or_site_file_is_noticed(configuration: Configuration) -> None:
    loaded = configuration.site()
    assert HostFacts(configuration.environ).unchanged(loaded.inputs)
    user_file(configuration, "link: hardlink")
    assert not HostFacts(configuration.environ).unchanged(loaded.inputs)
    loaded = configuration.site()
    machine_file(configuration, "a.yaml", "link: copy")
    assert not HostFacts(configuration.environ).unchanged(loaded.inputs)
    loaded = configuration.site()
    machine_file(configuration, "a.yaml", "link: reference")
    assert not HostFacts(configuration.environ).unchanged(loaded.inputs)


@pytest.mark.parametrize(
    ("programs", "wanted", "kind", "found"),
    [
        ([], "auto", "apptainer", ""),
        ([], "singularity", "singularity", ""),
        (["singularity"], "auto", "singularity", "bin/singularity"),
        (["apptainer", "singularity"], "auto", "apptainer", "bin/apptainer"),
        (["apptainer", "singularity"], "singularity", "singularity", "bin/singularity"),
    ],
)
def test_the_runtime_is_looked_up_on_path(
    configuration: Configuration, programs: list[str], wanted: str, kind: str, found: str
) -> None:
    for name in programs:
        program(configuration.root / "bin" / name)
    configuration.variables["PATH"] = f"relative:{configuration.root}/bin"
    site = configuration.site(runtime=wanted).site
    assert (site.runtime_kind, site.runtime_path) == (kind, f"{configuration.root}/{found}" if found else "")


def test_a_singularity_that_is_apptainer_counts_as_apptainer(configuration: Configuration) -> None:
    program(configuration.root / "opt/bin/apptainer")
    (configuration.root / "bin").mkdir()
    link = configuration.root / "bin/singularity"
    link.symlink_to(configuration.root / "opt/bin/apptainer")
    configuration.variables["PATH"] = str(configuration.root / "bin")
    site = configuration.site().site
    assert (site.runtime_kind, site.runtime_path) == ("apptainer", str(link))
    assert configuration.site(runtime=str(link)).site.runtime_kind == "apptainer"


@pytest.mark.parametrize(
    ("variables", "syntax"),
    [
        ({"LMOD_CMD": "/lmod", "MODULESHOME": "/lmod", "MODULES_CMD": "/x"}, ("lua",)),
        ({"LMOD_VERSION": "8.6"}, ("lua",)),
        ({"MODULES_CMD": "/modulecmd.tcl"}, ("tcl",)),
        ({"MODULESHOME": "/usr/share/Modules"}, ("tcl",)),
    ],
)
def test_the_syntax_is_that_of_the_module_tool_in_use(
    configuration: Configuration, variables: dict[str, str], syntax: tuple[str, ...]
) -> None:
    configuration.variables |= variables
    assert configuration.site().site.module_syntax == syntax


def test_facts_are_the_same_when_asked_again_and_tell_what_changed(configuration: Configuration) -> None:
    loaded = configuration.site()
    assert loaded.facts == current_facts(configuration.environ)
    configuration.variables["SIFMOD_LINK"] = "copy"
    assert loaded.facts != current_facts(configuration.environ)
    assert ("variable SIFMOD_LINK", "copy") in current_facts(configuration.environ)


def test_shipped_sites_say_what_they_are(configuration: Configuration) -> None:
    for path in (shipped() / "sites").iterdir():
        site = configuration.site(site=path.stem).site
        assert site.name == path.stem
        assert site.description
    accelerators = {name: configuration.site(site=name).site.accelerator for name in ("generic-cuda", "generic-rocm")}
    assert accelerators == {"generic-cuda": "cuda", "generic-rocm": "rocm"}
    lumi = configuration.site(site="lumi-g").site
    assert [bind.source for bind in lumi.binds] == [
        *("/var/spool/slurmd", "/opt/cray", "/usr/lib64/libcxi.so.1"),
        *("/pfs", "/scratch", "/projappl", "/project", "/flash", "/appl"),
    ]
    assert (lumi.accelerator, lumi.arch, lumi.runtime_kind) == ("rocm", "amd64", "singularity")
    assert lumi.image_dirs == ("/appl/local/containers/easybuild-sif-images",)


VALUES = st.text(st.characters(exclude_characters="\0"), max_size=20)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=st.dictionaries(st.sampled_from(list(KEYS)), VALUES), text=st.text(max_size=40))
def test_no_option_and_no_file_gives_anything_but_a_site_or_a_message(
    configuration: Configuration, values: dict[str, str], text: str
) -> None:
    os.makedirs(configuration.root / "home/.config/sifmod", exist_ok=True)
    path = configuration.root / "home/.config/sifmod/config.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    try:
        configuration.site(**values)
    except (ConfigError, OptionError) as error:
        assert error.message


def test_sharing_decides_the_umask(configuration: Configuration) -> None:
    for text, umask in (
        ("sharing: site", 0o022),
        ("sharing: site\ngroup: people", 0o002),
        ("sharing: group\ngroup: people", 0o007),
        ("group: people\numask: '027'", 0o027),
    ):
        user_file(configuration, text)
        assert configuration.site().site.umask == umask
    for text, message in (
        ("sharing: group", "sharing: group needs the group's name"),
        ("sharing: site\numask: '022'", "sharing: site decides the modes, but umask: 022 is given too"),
    ):
        user_file(configuration, text)
        with pytest.raises(OptionError) as caught:
            configuration.site()
        assert caught.value.message == message


def test_who_names_another_prefix_is_not_held_to_the_machines_sharing(configuration: Configuration) -> None:
    """The prefix that gives way is a store to look into, unless `stores` says which."""
    machine = machine_file(configuration, "a.yaml", "sharing: site\ngroup: people\nprefix: /appl/sifmod")
    shared = configuration.site().site
    assert (shared.sharing, shared.group, shared.stores) == ("site", "people", ())
    assert configuration.site(prefix="/appl/sifmod").site == shared
    user_file(configuration, "prefix: /home/uma/sifmod")
    loaded = configuration.site()
    own = loaded.site
    assert (own.sharing, own.group, own.umask, own.stores) == (None, None, None, (Path("/appl/sifmod"),))
    told = {origin.key: (origin.value, origin.origin) for origin in loaded.origins}
    assert told["stores"] == ("/appl/sifmod", f"the prefix of {machine}:3")
    user_file(configuration, "prefix: /home/uma/sifmod\nsharing: group\ngroup: friends\nstores: []")
    own = configuration.site().site
    assert (own.sharing, own.group, own.umask, own.stores) == ("group", "friends", 0o007, ())
    machine_file(configuration, "a.yaml", "sharing: site\nprefix: '${NOWHERE}/sifmod'\n")
    user_file(configuration, "prefix: /home/uma/sifmod")
    assert configuration.site().site.stores == ()
    machine_file(configuration, "a.yaml", "group: people\nprefix: /appl/sifmod")  # as without `sharing` ever since
    assert configuration.site().site.group == "people"


def test_a_user_prefix_is_for_users_who_do_not_publish(shared_tmp: Path, ordinary_user: OrdinaryUser) -> None:
    """A member of the group, or without a group the owner, has the machine's prefix, with its sharing; others two."""
    configuration = Configuration(shared_tmp, {"USER": "uma"})
    (shared_tmp / "appl").mkdir(mode=0o755)
    own, site = Path("/scratch/uma/sifmod"), shared_tmp / "appl/sifmod"
    group = grp.getgrgid(ordinary_user.user.gid).gr_name
    base = f"prefix: {site}\nuser_prefix: /scratch/${{USER}}/sifmod\nsharing: site\n"

    def seen(*, user: bool, **given: str) -> tuple[object, ...]:
        def load() -> tuple[object, ...]:
            found = configuration.site(**given).site
            return found.prefix, found.sharing, found.group, found.trees, found.stores

        return call_as(ordinary_user.user, load) if user else load()

    others = (own, None, None, (site,), (site,))
    for text, publishes in ((f"group: {group}", True), ("group: root", False), ("group: no-such-group", False)):
        machine_file(configuration, "a.yaml", f"{base}{text}")
        publisher = (site, "site", text.removeprefix("group: "), (), ())
        assert seen(user=True) == (publisher if publishes else others)
    machine_file(configuration, "a.yaml", base)
    if os.geteuid() == 0:
        assert seen(user=True) == others
        assert seen(user=False)[0] == site
    ordinary_user.own(shared_tmp / "appl")
    assert seen(user=True)[0] == site
    machine_file(configuration, "a.yaml", f"{base}group: no-such-group")
    assert seen(user=True, prefix="/mine") == (Path("/mine"), None, None, (site,), (site,))
    user_file(configuration, "trees: [/b, /mine]\nstores: []")
    assert seen(user=True, prefix="/mine")[3:] == ((Path("/b"),), ())
    machine_file(configuration, "a.yaml", "user_prefix: /everyone/${USER}")
    assert seen(user=True)[0] == Path("/everyone/uma")
    machine_file(configuration, "a.yaml", "prefix: '${NOWHERE}/x'\nuser_prefix: /everyone/${USER}")
    with pytest.raises(ConfigError, match="the variable NOWHERE is empty or not set"):
        configuration.site()


@pytest.mark.parametrize("closed", ["etc", "etc/sites", "etc/quirks"])
def test_settings_that_cannot_be_listed_are_not_left_out(
    closed: str, shared_tmp: Path, ordinary_user: OrdinaryUser
) -> None:
    """A directory that this user may enter, but not list: what it holds would silently not count."""
    for name in ("sites", "quirks"):
        (shared_tmp / "etc" / name).mkdir(parents=True)
    write(shared_tmp / "etc/a.yaml", "trees: [/srv]\n")
    write(shared_tmp / "App-1.yaml", "name: App\nversion: '1'\nimage: {sources: [/no/such.sif]}\n")
    (shared_tmp / closed).chmod(0o711 if os.geteuid() == 0 else 0o111)
    words = (*SIFMOD, "check", shared_tmp / "App-1.yaml")
    ended = ordinary_user.run(words, {"SIFMOD_CONFIG_DIR": f"{shared_tmp}/etc"})
    (shared_tmp / closed).chmod(0o755)
    assert ended.code == 25
    assert f"error: {shared_tmp}/{closed}: Permission denied" in ended.stderr
