"""Our metadata beside apptainer's own conversion of the same image: run, exec, shell, inspect, instances."""

import json
import os
import random
import re
import string
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from sifmod.errors import ImageError
from sifmod.image.convert.inode import Directory, File, Symlink
from sifmod.image.convert.metadata.added_files import Entry as Addition
from sifmod.image.convert.metadata.added_files import insert_metadata, make_labels
from sifmod.image.convert.metadata.start_scripts import ACTIONS, image_environment, runscript, shell_word
from support.command import Result, run
from support.hand_made import EPOCH, Tree, apptainers_sif, our_metadata, our_sif
from support.images import BUSYBOX
from support.oci import Entry
from support.runtime import RUNTIME

PATH = "PATH=/opt/tool/bin:/usr/bin:/bin"
SHOW = ["/bin/sh", "-c", 'printf "<%s>" "$@"; echo', "show"]
CONFIGS: dict[str, dict[str, object]] = {
    "both": {"Env": [PATH, "A=1"], "Entrypoint": SHOW, "Cmd": ["a b", "c'd", '"e"', "$A", "`id`", "\\n", ""]},
    "command": {"Env": [PATH, "A=1"], "Cmd": ["echo", "default", "$A", "*"], "WorkingDir": "/opt", "User": "1000"},
    "entrypoint": {"Env": [PATH, "A=1"], "Entrypoint": ["echo", "it's", "$(id)"]},
    "labels": {
        "Env": [
            PATH,
            "HOME=/nowhere",
            "USER=bob",
            "LD_LIBRARY_PATH=/opt/lib",
            *(["PS1=> "] if RUNTIME.kind == "apptainer" else []),  # which SingularityCE's conversion leaves out
            "BARE",
            "EMPTY=",
            "1x=2",
            "a-b=c",
        ],
        "Labels": {"version": "1", "maintainer": "Zoë <z@example.org>", "lines": "one\ntwo"},
        "Volumes": {"/data": {}},
        "ExposedPorts": {"80/tcp": {}},
    },
    "no-path": {"Cmd": ["/bin/echo", "no path"]},
}
ARGUMENTS: tuple[tuple[str, ...], ...] = (
    (),
    ("x",),
    ("echo", "two words", "it's"),
    ("echo", "$A", "`echo run`", "$(echo run)", "a\\b", "~", "*"),
    ("echo", 'escaped \\" quote', "line\nbreak", ""),
)


@dataclass(frozen=True)
class Pair:
    """One image as we make it and as apptainer does."""

    ours: Path
    theirs: Path

    def both(self, verb: str, options: tuple[str, ...] = (), arguments: tuple[str, ...] = ()) -> tuple[Result, Result]:
        ours, theirs = (run((RUNTIME.path, verb, *options, sif, *arguments)) for sif in (self.ours, self.theirs))
        return ours, theirs


@pytest.fixture(scope="module", params=list(CONFIGS))
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    # the same file name, which the runtime puts into variables
    directory = tmp_path_factory.mktemp("pair")
    (directory / "ours").mkdir()
    (directory / "theirs").mkdir()
    config = CONFIGS[request.param]
    ours = our_sif(directory / "ours" / "image.sif", config)
    return Pair(ours, apptainers_sif(directory / "theirs" / "image.sif", config))


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=str)
@pytest.mark.parametrize("options", [(), ("--no-eval",)], ids=["eval", "no-eval"])
def test_run_does_what_apptainers_conversion_does(
    pair: Pair, options: tuple[str, ...], arguments: tuple[str, ...]
) -> None:
    ours, theirs = pair.both("run", options, arguments)
    listed = "SINGULARITY_" in theirs.stdout  # without entrypoint and command theirs lists the variables
    if listed:
        assert (ours.code, ours.stdout) == (1, "")
        assert "this image has no entrypoint and no command" in ours.stderr
    else:
        assert (ours.code, ours.stdout) == (theirs.code, theirs.stdout)


@pytest.mark.parametrize("options", [(), ("--cleanenv",), ("--containall", "--env", "A=from the caller")], ids=str)
def test_the_environment_is_that_of_apptainers_conversion(
    pair: Pair, options: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"{RUNTIME.prefix}ENV_PREPEND_PATH", "/first")
    monkeypatch.setenv(f"{RUNTIME.prefix}ENV_APPEND_PATH", "/last")
    monkeypatch.setenv("BARE", "the host's")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/host/lib")
    ours, theirs = pair.both("exec", options, ("env", "-0"))
    place = r"(?m)(SINGULARITY_CONTAINER=)/tmp/rootfs-[0-9]+"  # SingularityCE without setuid: another one each time
    found, expected = (re.sub(place, r"\1", side.ok().stdout) for side in (ours, theirs))
    expected = expected.replace(str(pair.theirs), str(pair.ours))
    assert sorted(found.split("\0")) == sorted(expected.split("\0"))
    assert "PATH=/first:" in expected
    assert "/usr/local/sbin" in expected


@pytest.mark.parametrize("flag", ["", "-l", "-d", "-r", "-s", "-e", "-t", "-H", "--list-apps", "--all", "--json"])
def test_inspect_shows_what_it_shows_of_apptainers_conversion(pair: Pair, flag: str) -> None:
    ours, theirs = pair.both("inspect", (flag,) if flag else ())
    assert (ours.code, theirs.code) == (0, 0)
    assert "WARNING" not in ours.stderr.replace("WARNING: open /proc/sys/fs/binfmt_misc", "")
    if flag == "--all":
        ours_all, theirs_all = (json.loads(side.stdout)["data"]["attributes"] for side in (ours, theirs))
        assert ours_all.keys() == theirs_all.keys()
        assert ours_all["environment"].keys() == theirs_all["environment"].keys()
        added = {f"org.label-schema.usage.{RUNTIME.kind}.version"}
        assert ours_all["labels"].keys() == theirs_all["labels"].keys() - added
    elif flag in ("-t", "-H", "--list-apps"):
        assert ours.stdout == theirs.stdout == ""
    else:
        assert len(ours.stdout.splitlines()) > 1


def test_inspect_says_where_the_image_came_from(pair: Pair) -> None:
    shown = run((RUNTIME.path, "inspect", "-d", pair.ours)).ok().stdout
    assert re.fullmatch(r"bootstrap: docker\nfrom: example\.org/app@sha256:[0-9a-f]{64}\n", shown)
    labels = json.loads(run((RUNTIME.path, "inspect", "--json", "-l", pair.ours)).ok().stdout)
    assert labels["data"]["attributes"]["labels"]["org.label-schema.build-date"] == "Thursday_2_January_2025_3:4:5_UTC"


def test_a_shell_is_that_of_apptainers_conversion(pair: Pair) -> None:
    words = ("-c", 'echo "$PATH" "$PS1" "$SHELL" "$HOME" "$PWD" "$LD_LIBRARY_PATH"')
    ours, theirs = pair.both("exec", (), ("/bin/sh", *words))
    assert ours.ok().stdout == theirs.ok().stdout
    inner, outer = (
        run((RUNTIME.path, "shell", sif), stdin='echo "$PATH" "$SHELL"\n').ok() for sif in (pair.ours, pair.theirs)
    )
    assert inner.stdout == outer.stdout != ""


def test_test_succeeds_as_with_apptainers_conversion(pair: Pair) -> None:
    ours, theirs = pair.both("test")
    assert (ours.code, theirs.code) == (0, 0)


def test_an_instance_starts_and_stops(pair: Pair) -> None:
    name = f"sifmod-{time.time_ns()}"
    run((RUNTIME.path, "instance", "start", pair.ours, name)).ok()
    try:
        assert run((RUNTIME.path, "-q", "exec", f"instance://{name}", "echo", "in")).ok().stdout == "in\n"
        assert name in run((RUNTIME.path, "instance", "list")).ok().stdout
    finally:
        run((RUNTIME.path, "instance", "stop", name)).ok()


def test_the_files_apptainer_adds_are_there(pair: Pair) -> None:
    listing = ("sh", "-c", "find . -path ./proc -prune -o -path ./sys -prune -o -path ./dev -prune -o -print | sort")
    options = ("--containall", "--no-mount", "home,tmp,hostfs", "--pwd", "/")
    ours, theirs = (set(side.ok().stdout.splitlines()) for side in pair.both("exec", options, listing))
    comments = {f"./.singularity.d/env/{name}.sh" for name in ("01-base", "94-appsbase")}
    assert theirs - ours <= comments
    assert ours - theirs == {"./runscripts", "./user-software"}


def nasty_values(seed: int) -> list[str]:
    """Values made of what shells stumble over."""
    chance = random.Random(seed)
    parts = [*"'\"\\$`!#*?[]{}()<>|&;~%^=: \t\n\r\v\f\x01\x1b\x7f", "\r\n", "\\\n", "$(id)", "${X}", "é", "𝄞", "\u2028"]
    parts += ["\\u000A", "\ud800", "x", "/", *string.ascii_letters[:6]]
    return ["".join(chance.choices(parts, k=chance.randint(0, 12))) for _ in range(400)]


def test_values_arrive_byte_for_byte(tmp_path: Path) -> None:
    values = nasty_values(1)
    config = {"Env": [PATH, *(f"V{number}={value}" for number, value in enumerate(values))]}
    sif = our_sif(tmp_path / "x.sif", config)
    found = dict(
        line.partition("=")[::2] for line in run((RUNTIME.path, "-q", "exec", sif, "env", "-0")).ok().stdout.split("\0")
    )
    for number, value in enumerate(values):
        assert found[f"V{number}"] == value.replace("\ud800", "\ufffd"), value


@pytest.mark.parametrize("options", [(), ("--no-eval",)], ids=["eval", "no-eval"])
def test_words_of_entrypoint_and_command_arrive_byte_for_byte(tmp_path: Path, options: tuple[str, ...]) -> None:
    first, second = nasty_values(2)[:200], nasty_values(3)[:200]
    config = {"Env": [PATH], "Entrypoint": ["/bin/printf", "%s\\0", "-n", *first], "Cmd": second}
    sif = our_sif(tmp_path / "x.sif", config)
    output = run((RUNTIME.path, "run", *options, sif)).ok().stdout
    assert output == "".join(f"{word}\0" for word in ("-n", *first, *second)).replace("\ud800", "\ufffd")
    output = run((RUNTIME.path, "run", *options, sif, "an argument")).ok().stdout
    assert output == "".join(f"{word}\0" for word in ("-n", *first, "an argument")).replace("\ud800", "\ufffd")


@pytest.mark.parametrize("shell", ["dash", "bash", "busybox"])
def test_other_shells_read_the_same_words(shell: str) -> None:
    """Runtimes before Singularity 3.6 read the scripts with the image's own shell."""
    values = [value for value in nasty_values(4) if "\ud800" not in value]
    command = (shell, "sh") if shell == "busybox" else (shell,)
    script = "".join(f"printf '%s\\0' {shell_word(value)}\n" for value in values)
    assert run((*command, "-c", script)).ok().stdout == "".join(f"{value}\0" for value in values)


@pytest.mark.parametrize("shell", ["given", "bash", "sh"])
@pytest.mark.parametrize("action", [name for name, _ in ACTIONS])
def test_actions_hand_their_arguments_on(action: str, shell: str, tmp_path: Path) -> None:
    """Runtimes before Singularity 3.6 start these; here they run outside an image, with its paths replaced."""
    arguments = ["-c", "two words", "", "$A", "it's"]
    program = tmp_path / "program"
    program.write_text('#!/bin/sh\nprintf "<%s>" "$0" "$A" "$@"\n')
    program.chmod(0o755)
    names = ("runscript", "startscript", "test", "given", *(("bash",) if shell == "bash" else ()), "sh")
    for name in names:
        (tmp_path / name).symlink_to(program)
    (tmp_path / "env").mkdir()
    (tmp_path / "env" / "10.sh").write_text("export A=1\n")
    text = dict(ACTIONS)[action].replace("/.singularity.d", str(tmp_path)).replace("kill -CONT 1", ":")
    first, body = text.split("\n", 1)
    (tmp_path / "action").write_text(first + "\n" + body.replace("/bin/", f"{tmp_path}/"))
    (tmp_path / "action").chmod(0o755)
    variables = {"PATH": os.environ["PATH"]} | ({"SINGULARITY_SHELL": f"{tmp_path}/given"} if shell == "given" else {})
    started = {"exec": "given", "run": "runscript", "start": "startscript", "test": "test", "shell": shell}[action]
    handed = ([f"{tmp_path}/given"] if action == "exec" else []) + arguments
    expected = [str(tmp_path / started), "1", *(["--norc"] if started == "bash" else []), *arguments]
    assert run((tmp_path / "action", *handed), env=variables).ok().stdout == "".join(f"<{word}>" for word in expected)


def test_arguments_that_are_no_shell_words_start_nothing(tmp_path: Path) -> None:
    """Apptainer's own script would then run the first argument as a program."""
    sif = our_sif(tmp_path / "x.sif", {"Env": [PATH], "Entrypoint": ["echo", "entry"]})
    result = run((RUNTIME.path, "run", sif, "echo", 'one " quote'))
    assert (result.code, result.stdout) == (2, "")
    assert "use run --no-eval" in result.stderr


def test_a_command_that_begins_with_a_dash_is_a_word(tmp_path: Path) -> None:
    sif = our_sif(tmp_path / "x.sif", {"Env": [PATH], "Cmd": ["-c"]})
    assert '"-c": executable file not found' in run((RUNTIME.path, "run", sif)).stderr


def test_run_and_inspect_need_no_shell_in_the_image(tmp_path: Path) -> None:
    entries = (Entry("app"), Entry("app/echo", BUSYBOX.read_bytes()), Entry("app/env", BUSYBOX.read_bytes()))
    config = {"Env": ["PATH=/app", "A=it's $A"], "Entrypoint": ["/app/echo", "no shell"], "Cmd": ["here"]}
    sif = our_sif(tmp_path / "x.sif", config, entries)
    assert run((RUNTIME.path, "run", sif)).ok().stdout == "no shell here\n"
    assert run((RUNTIME.path, "run", sif, "$A")).ok().stdout == "no shell it's $A\n"
    assert "A=it's $A" in run((RUNTIME.path, "-q", "exec", sif, "env")).ok().stdout.splitlines()
    assert "no shell" in run((RUNTIME.path, "inspect", "-r", sif)).ok().stdout


def test_variables_that_cannot_be_set_are_named() -> None:
    script, warnings = image_environment(["UID=5", "APPTAINER_NAME=x", "a.b=1", "N=a\0b", "OK=1", "__script__=1", "=x"])
    assert script == "#!/bin/sh\nexport OK=1\n"
    assert len(warnings) == 6
    assert "'UID' is not set: the runtime sets it itself" in warnings[0]
    assert "'a.b' is not set: a shell" in warnings[2]
    assert "'N' is not set: its value contains a NUL" in warnings[3]


def test_reserved_variables_of_an_image_harm_no_other(tmp_path: Path) -> None:
    names = "UID EUID GID APPTAINER_NAME APPTAINER_CONTAINER APPTAINER_INSTANCE SINGULARITY_NAME SINGULARITY_APPNAME"
    names += " __exported_env__ __script__ __apptainer_cmd__ HOME PWD OPTIND IFS PPID SHELLOPTS BASHOPTS RANDOM _"
    config = {"Env": [PATH, *(f"{name}=/ab" for name in names.split()), "AFTER=all of them"]}
    sif = our_sif(tmp_path / "x.sif", config)
    result = run((RUNTIME.path, "-q", "exec", sif, "sh", "-c", 'echo "$AFTER"; echo "$HOME"')).ok()
    assert result.stdout.splitlines()[0] == "all of them"
    assert result.stdout.splitlines()[1] != "/ab"
    assert "readonly" not in result.stderr


def test_the_last_of_several_values_counts() -> None:
    script, _ = image_environment(["A=1", "B=2", "A=3"])
    assert run(("sh", "-c", f'{script}\necho "$A$B"')).ok().stdout == "32\n"


def test_an_entrypoint_with_a_nul_is_refused() -> None:
    with pytest.raises(ImageError, match="contains a NUL"):
        runscript(["a\0b"], [])


def test_labels_depend_on_the_image_alone() -> None:
    made = make_labels((("b", "1"), ("a", "2")), "arm64", None, ("docker", "x\ny"))
    assert list(made) == sorted(made)
    assert "org.label-schema.build-date" not in made
    assert made["org.label-schema.build-arch"] == "arm64"
    assert made["org.label-schema.usage.singularity.deffile.from"] == "x?y"
    own = make_labels((("org.label-schema.build-date", "2019"),), "amd64", EPOCH, ("docker", "x"))
    assert own["org.label-schema.build-date"] == "2019"
    assert (
        make_labels((), "amd64", 0, ("docker", "x"))["org.label-schema.build-date"]
        == "Thursday_1_January_1970_0:0:0_UTC"
    )


def test_the_objects_hold_the_images_own_documents(tmp_path: Path) -> None:
    sif = our_sif(tmp_path / "x.sif", {"Env": [PATH], "User": "1000", "Healthcheck": {"Test": ["NONE"]}})
    listing = run(("siftool", "list", sif)).ok().stdout
    assert listing.count("JSON.Generic") == 4
    metadata = our_metadata({"Env": [PATH], "User": "1000", "Healthcheck": {"Test": ["NONE"]}})
    for number, entry in enumerate(metadata.objects, 1):
        assert run(("siftool", "dump", str(number), sif)).ok().stdout.encode() == entry.content
    by_name = {entry.name: entry.content for entry in metadata.objects}
    assert json.loads(by_name["oci-config.json"])["User"] == "1000"
    assert by_name["oci-manifest.json"] == b'{"schemaVersion": 2}'
    assert json.loads(by_name["oci-image-config.json"])["config"] == json.loads(by_name["oci-config.json"])


def test_what_the_image_has_stays() -> None:
    tree = Tree()
    tree.put(
        (
            Entry("tmp", link="scratch/t"),
            Entry("scratch/t", None),
            Entry("etc/hosts", b"127.0.0.1 me\n"),
            Entry("etc/resolv.conf", link="../run/systemd/resolve.conf"),
            Entry("environment", b"mine"),
            Entry("home", b"a file"),
            Entry("var", link="/private/../private/var"),
            Entry("private/var", None),
            Entry(".singularity.d/env/20-mine.sh", b"export MINE=1\n"),
            Entry(".singularity.d/env/10-docker2singularity.sh", b"export OLD=1\n"),
            Entry(".singularity.d/Singularity", b"bootstrap: older\n"),
            Entry(".singularity.d/libs", b"in the way"),
        )
    )
    warnings = insert_metadata(tree.root, our_metadata({}).entries, tree.add, EPOCH)
    assert warnings == ("/home was not created: a file or broken link of the image is in the way",)
    assert tree.read("etc/hosts") == b"127.0.0.1 me\n"
    assert tree.read("environment") == b"mine"
    assert isinstance(tree.root.entries[b"tmp"], Symlink)
    assert isinstance(tree.directory("etc").entries[b"resolv.conf"], Symlink)
    assert list(tree.directory("private/var").entries) == [b"tmp"]
    assert tree.read(".singularity.d/env/20-mine.sh") == b"export MINE=1\n"
    assert b"OLD" not in tree.read(".singularity.d/env/10-docker2singularity.sh")
    assert tree.read(".singularity.d/bootstrap_history/Apptainer0") == b"bootstrap: older\n"
    assert isinstance(tree.directory(".singularity.d").entries[b"libs"], Directory)


@pytest.mark.parametrize(
    "link", ["/.singularity.d", "nowhere", "../../../../etc/nowhere", "loop", "etc/passwd", "etc/passwd/x"]
)
def test_a_metadata_directory_that_is_a_link_leads_nowhere_else(link: str) -> None:
    tree = Tree()
    tree.put((Entry(".singularity.d", link=link), Entry("loop", link="./loop"), Entry("etc/passwd", b"")))
    assert insert_metadata(tree.root, our_metadata({}).entries, tree.add, EPOCH) == ()
    made = tree.root.entries[b".singularity.d"]
    assert isinstance(made, Directory)
    assert b"runscript" in made.entries


def test_links_that_multiply_end() -> None:
    tree = Tree()
    tree.put(tuple(Entry(f"l{number}", link="/".join([f"../l{number + 1}"] * 8)) for number in range(60)))
    tree.put((Entry("etc", link="l0"), Entry("var", link="/".join(["."] * 30000))))
    warnings = insert_metadata(tree.root, our_metadata({}).entries, tree.add, EPOCH)
    assert any(warning.startswith("/etc/hosts was not created") for warning in warnings)
    assert isinstance(tree.root.entries[b"tmp"], Directory)


def test_new_entries_are_roots_and_the_image_creation_times() -> None:
    tree = Tree()
    assert (
        insert_metadata(tree.root, (Addition("a/b", 0o644, b"x"), Addition("l", 0o777, link="a")), tree.add, 77) == ()
    )
    made = tree.directory("a")
    file, link = made.entries[b"b"], tree.root.entries[b"l"]
    assert isinstance(file, File)
    assert isinstance(link, Symlink)
    assert [(node.uid, node.gid, node.mtime, node.mode) for node in (made, file, link)] == [
        (0, 0, 77, 0o755),
        (0, 0, 77, 0o644),
        (0, 0, 77, 0o777),
    ]
    assert tree.root.mtime == EPOCH
