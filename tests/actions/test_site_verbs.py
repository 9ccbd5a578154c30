"""`sifmod site`, and what `check` and `install` say about a site's binds."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from sifmod.actions.author.site import draft_site
from sifmod.actions.author.survey import FABRIC, Partition, Survey, read_partitions, survey
from sifmod.cli.main import run
from sifmod.config.bind import lint_binds
from sifmod.config.easyconfig import EasyconfigFile
from sifmod.config.kinds import Syntax
from sifmod.config.site import SiteFile
from sifmod.config.yaml.node import Number
from sifmod.config.yaml.parse import parse_yaml
from sifmod.config.yaml.validate import check_layer
from support.config import write
from support.generation import find
from support.identity import call_as
from support.images import Images
from support.user import OrdinaryUser


def test_detect_names_the_site_that_the_paths_tell(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Most paths win, whatever site the settings name."""
    for name, places in {"one": ["/etc"], "two": ["/etc", "/usr"], "none": ["/etc", "/usr", "/no/such"]}.items():
        write(tmp_path / f"etc-sifmod.d/sites/{name}.yaml", f"detect: {{paths: {places}}}".replace("'", ""))
    write(tmp_path / "etc-sifmod.d/a.yaml", "site: generic\n")
    assert run(["site", "detect"]) == 0
    assert capfd.readouterr() == ("two\n", "== recognised by /etc, /usr\n")
    assert run(["site", "detect", "--json"]) == 0
    found = {"site": "two", "how": "recognised by /etc, /usr", "warnings": []}
    assert json.loads(capfd.readouterr().out) == found


def test_detect_runs_no_program(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    strace = (find("strace"), "-f", "-qq", "-e", "trace=execve", "-o", trace)
    done = subprocess.run((*strace, sys.executable, "-m", "sifmod", "site", "detect"), check=True, capture_output=True)
    assert done.stdout == b"generic\n"
    started = {line.partition('execve("')[2].partition('"')[0] for line in trace.read_text().splitlines()}
    assert started - {""} == {sys.executable}


def test_show_prints_keys_with_origins_and_what_is_here(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "libx.so.1").touch()
    site = write(tmp_path / "mine.yaml", f"accelerator: rocm\nbinds:\n  host-libs: ['{tmp_path}/libx.so*']\n")
    assert run(["site", "show", str(site)]) == 0
    shown = capfd.readouterr()
    assert shown.err == ""
    assert re.search(rf"^accelerator += +rocm +\({re.escape(str(site))}:1\)$", shown.out, re.MULTILINE)
    assert re.search(rf"^binds, resolved here += +{re.escape(str(tmp_path))}/libx.so.1$", shown.out, re.MULTILINE)
    assert run(["site", "show", str(site), "--json"]) == 0
    data = json.loads(capfd.readouterr().out)
    assert data["warnings"] == []
    assert {"key": "accelerator", "value": "rocm", "origin": f"{site}:1"} in data["origins"]


def test_lines_are_of_a_screens_width_and_hold_yaml(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """An item of a list is a line; a value that is longer than others has its origin below it."""
    long = "mask_cpu:" + ",".join(["0xfe"] * 30)
    site = write(tmp_path / "mine.yaml", f"accelerator: rocm\ncpu_bind: {long}\nprotected: [torch, 'numpy*']\n")
    for verb in (["site", "show"], ["config", "show", "--site"]):
        assert run([*verb, str(site)]) == 0
        shown = capfd.readouterr().out
        assert not re.search(r"\b(None|True|False)\b|\('", shown)
        assert re.search(r"^warn_without_version +=  false +\(default\)$", shown, re.MULTILINE)
        assert re.search(r"^extensions\[0\] +=  \* +\(default\)$", shown, re.MULTILINE)
        assert re.search(r"^protected\[1\] +=  numpy\* ", shown, re.MULTILINE)
        assert "protected[2]" not in shown
        assert re.search(rf"^cpu_bind +=  {long}\n +\({re.escape(str(site))}:2\)$", shown, re.MULTILINE)
        room = 120 + len(str(site))
        assert [line for line in shown.splitlines() if len(line) > room and long not in line] == []
    assert run(["site", "show", "lumi-g"]) == 0
    assert re.search(r"^gpus_per_node +=  8 +\(site lumi-g\)$", capfd.readouterr().out, re.MULTILINE)


def test_every_shipped_site_is_shown(capfd: pytest.CaptureFixture[str]) -> None:
    from sifmod.config.find import shipped

    for path in sorted((shipped() / "sites").glob("*.yaml")):
        assert run(["site", "show", path.stem]) == 0
        assert re.search(rf"^name += +{path.stem} ", capfd.readouterr().out, re.MULTILINE)


def lint(text: str) -> list[str]:
    node, problems = parse_yaml(text.encode(), "s.yaml")
    assert not problems
    assert not check_layer(SiteFile, node)
    return [str(problem) for problem in lint_binds(node)]


def test_a_colon_for_a_comma() -> None:
    (found,) = lint("binds: {a: ['/usr:/srv', '/usr:/no/such', '/usr:/var:ro', {source: /usr, target: /tmp}]}")
    assert found == (
        "s.yaml:1:13: binds.a[0]: /srv is also a directory on this machine: for two bind paths, write /usr and /srv "
        "as two items; otherwise {source: /usr, target: /srv}"
    )


def test_two_paths_in_one_text_are_refused() -> None:
    (found,) = check_layer(SiteFile, parse_yaml(b"binds: {a: ['/usr,/etc']}", "s.yaml")[0])
    assert found.message == (
        "a path with , cannot be bound into a container: '/usr,/etc'; several bind paths are several items of the list"
    )


def test_a_missing_source() -> None:
    not_needed = ", ".join(f"{{source: '{path}', optional: true}}" for path in ("/no/way", "/no/w*"))
    assert lint(f"binds: {{a: [/no/such, '/no/s*', {not_needed}, '/op?']}}") == [
        "s.yaml:1:13: binds.a[0]: /no/such does not exist on this machine and is not optional: no module with it can "
        "be loaded",
        "s.yaml:1:23: binds.a[1]: nothing on this machine matches /no/s*, and it is not optional: no module with it "
        "can be loaded",
    ]


def test_a_source_in_a_closed_directory_is_missing(shared_tmp: Path, ordinary_user: OrdinaryUser) -> None:
    closed = shared_tmp / "closed"
    closed.mkdir(0 if os.geteuid() else 0o700)
    text = f"binds: {{a: ['{closed}/a', '/usr:{closed}/b', {{source: '{closed}/c', optional: true}}]}}"
    (found,) = call_as(ordinary_user.user, lambda: lint(text))
    assert f"binds.a[0]: {closed}/a does not exist on this machine and is not optional" in found


def test_one_target_twice() -> None:
    assert lint("binds: {a: [/opt, '/etc:/x'], b: [/opt/, {source: /var, target: /x}, /srv]}") == [
        "s.yaml:1:35: binds.b[0]: its target /opt/ is also the target of binds.a[0]; the first one is used",
        "s.yaml:1:42: binds.b[1]: its target /x is also the target of binds.a[1]; the first one is used",
    ]


@pytest.mark.parametrize("root", ["/", "//", "/.", "/x/../", "/op[t]/.."])
def test_the_root_is_no_target(root: str) -> None:
    for item in (f"'/opt:{root}'", f"'{root}'", f"{{source: /opt, target: '{root}'}}", f"{{source: '{root}'}}"):
        for text, model in ((f"binds: {{a: [{item}]}}", SiteFile), (f"binds: [{item}]", EasyconfigFile)):
            (found,) = check_layer(model, parse_yaml(text.encode(), "s.yaml")[0])
            assert "would hide the whole image" in found.message
    assert not check_layer(SiteFile, parse_yaml(f"binds: {{a: ['{root}:/host']}}".encode(), "s.yaml")[0])


def test_a_target_that_hides_the_image() -> None:
    found = lint("binds: {a: [/usr, '/opt:/etc/', '/opt:/usr/lib64', '/opt:/usr/local', '/us[r]', '/opt/../bin']}")
    assert [line.partition(": ")[2].partition(":")[0] for line in found if "hides the image's own" in line] == [
        *("binds.a[0]", "binds.a[1]", "binds.a[2]", "binds.a[4]", "binds.a[5]"),
    ]
    (all_of_it,) = lint("binds: {a: ['/*']}")
    assert "hides the image's own /bin, /etc, /lib, /lib64, /sbin and 1 more: the image" in all_of_it


def test_matches_that_cannot_be_bound_are_named(tmp_path: Path) -> None:
    for name in ("good", "a,b", "c:d"):
        (tmp_path / name).touch()
    (found,) = lint(f"binds: {{a: ['{tmp_path}/*']}}")
    assert found.endswith(
        f"skipped, because a bind path cannot contain such a name: '{tmp_path}/a,b', '{tmp_path}/c:d'"
    )


def test_a_sites_binds_alone_tell_a_site(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    site = write(tmp_path / "a.yaml", "name: a\ndescription: d\naccelerator: cuda\nbinds:\n  fabric: [/opt]\n")
    assert run(["check", str(site)]) == 0
    assert capfd.readouterr().out == f"{site}: ok: a site\n"
    easyconfig = write(
        tmp_path / "b.yaml", "name: a\nversion: '1'\nimage: {sources: [a.sif]}\nbinds: {fabric: [/opt]}\n"
    )
    assert run(["check", str(easyconfig)]) == 5
    assert "binds: expected a list of bind paths" in capfd.readouterr().out


def test_show_tells_matches_from_what_is_written(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """With their targets, and also where another bind has the same source."""
    for name in ("one", "two"):
        (tmp_path / "in" / name).mkdir(parents=True)
    binds = f"['{tmp_path}/in/two:/other', '{tmp_path}/in/*:/there', '{tmp_path}/in/t*', '{tmp_path}/in']"
    assert run(["site", "show", str(write(tmp_path / "mine.yaml", f"binds: {{a: {binds}}}\n")), "--json"]) == 0
    rows = json.loads(capfd.readouterr().out)["origins"]
    assert [row["value"] for row in rows if row["key"] == "binds, resolved here"] == [
        *(f"{tmp_path}/in/one:/there/one", f"{tmp_path}/in/two:/there/two", f"{tmp_path}/in/two"),
    ]


def test_detect_refuses_an_unknown_variable(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIFMOD_FOO", "1")
    assert run(["site", "detect"]) == 2
    assert "SIFMOD_FOO: unknown variable" in capfd.readouterr().err


def test_detection_by_a_pattern(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "etc-sifmod.d/sites/keys.yaml", f"detect: {{paths: ['{tmp_path}/ib/*/ports/*/pkeys/1']}}\n")
    write(tmp_path / "ib/mlx5_bond_0/ports/1/pkeys/0", "0xffff\n")
    assert run(["site", "detect"]) == 0
    assert capfd.readouterr().out == "generic\n"
    write(tmp_path / "ib/ibp65s0/ports/1/pkeys/1", "0x0000\n")
    assert run(["site", "detect"]) == 0
    assert capfd.readouterr() == ("keys\n", f"== recognised by {tmp_path}/ib/*/ports/*/pkeys/1\n")


def test_check_takes_sites_and_quirks(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    site = write(tmp_path / "mine.yaml", "detect: {paths: [/etc]}\nbinds: {a: [/no/such]}\n")
    quirk = write(tmp_path / "quirk.yaml", "description: d\nreason: r\nlink: l\nmatch: {name: A}\nenv: {B: null}\n")
    wrong = write(tmp_path / "sites/wrong.yaml", "acelerator: rocm\n")
    assert run(["check", str(site), str(quirk)]) == 0
    assert capfd.readouterr().out.splitlines() == [
        f"{site}:2:13: binds.a[0]: /no/such does not exist on this machine and is not optional: no module with it "
        "can be loaded (warning)",
        f"{site}: ok: a site",
        f"{quirk}: ok: a quirk",
    ]
    assert run(["check", str(wrong)]) == 5
    assert "unknown key; did you mean accelerator?" in capfd.readouterr().out
    assert run(["check", "--json", str(site)]) == 0
    (result,) = json.loads(capfd.readouterr().out)
    assert (len(result["warnings"]), result["problems"]) == (1, [])


def test_check_takes_directories_and_tells_a_fault_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """All below it, not the presets; what is wrong with a preset is said once, with how many files it is about."""
    text = "name: A\nversion: '{0}'\npreset: p\nimage: {{sources: [x.sif]}}\n"
    for number in (1, 2):
        write(tmp_path / f"ec/A/A-{number}.yaml", text.format(number))
    write(tmp_path / "ec/presets/p.yaml", "wrappers: [sh]\n")
    write(tmp_path / "ec/sites/s.yaml", "accelerator: rocm\n")
    for hidden in (".git/x.yaml", ".hooks.yaml"):
        write(tmp_path / "ec" / hidden, "a: [\n")
    words = ["check", "--robot-paths", str(tmp_path / "ec")]
    assert run([*words, str(tmp_path / "ec")]) == 0
    captured = capfd.readouterr()
    assert [line.partition(": ok: ")[2] for line in captured.out.splitlines()] == ["A/1", "A/2", "a site"]
    assert captured.err == "== 3 of 3 files ok\n"
    write(tmp_path / "ec/presets/p.yaml", "wrapers: [sh]\n")
    quirk = write(tmp_path / "etc-sifmod.d/quirks/odd.yaml", "a: [\n")
    bad = write(tmp_path / "ec/A/A-3.yaml", "name: A\n")
    assert run([*words, str(tmp_path / "ec"), str(tmp_path / "none")]) == 5
    captured = capfd.readouterr()
    preset = f"{tmp_path}/ec/presets/p.yaml:1:1: wrapers: unknown key; did you mean wrappers? (2 files)"
    assert captured.out.splitlines()[-1] == preset
    assert f"{bad}:1:1: " in captured.out
    assert captured.err == "== 1 of 5 files ok\n"
    write(tmp_path / "ec/presets/p.yaml", "wrappers: [sh]\n")
    assert run([*words, str(tmp_path / "ec/A")]) == 5
    (told,) = [line for line in capfd.readouterr().out.splitlines() if str(quirk) in line]
    assert told.endswith(" (2 files)")
    assert run(["check", str(tmp_path / "ec/presets")]) == 4
    assert "hint: a .yaml file is needed that is not hidden; presets are checked by" in capfd.readouterr().out


def test_check_of_some_variants(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    text = (
        "name: A\nversion: '1'\nimage: {sources: [x.sif]}\nvariants: {a: {versionsuffix: -a}, b: {versionsuffix: -b}}\n"
    )
    file = str(write(tmp_path / "A-1.yaml", text))
    for variants, modules in ((("b",), ["A/1-b"]), (("b", "a"), ["A/1-b", "A/1-a"]), (("all",), ["A/1-a", "A/1-b"])):
        assert run(["check", file, *(f"--variant={name}" for name in variants)]) == 0
        assert [line.split()[2] for line in capfd.readouterr().out.splitlines()] == modules
    assert run(["check", file, "--variant", "c"]) == 5
    assert "has no variant 'c'" in capfd.readouterr().out


def test_install_and_show_warn(
    tmp_path: Path, images: Images, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    own = write(tmp_path / "etc-sifmod.d" / "own.yaml", "binds: {a: [/no/such]}\n")
    warning = (
        f"== warning: {own}:1:13: binds.a[0]: /no/such does not exist on this machine and is not optional: no module "
        "with it can be loaded\n"
    )
    assert run(["site", "show"]) == 0
    assert capfd.readouterr().err == warning
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "prefix"))
    text = f"name: Tiny\nversion: '1.0'\nimage: {{sources: ['{images.tiny_sif}']}}\n"
    assert run(["install", str(write(tmp_path / "Tiny-1.0.yaml", text))]) == 0
    assert warning in capfd.readouterr().err


def test_the_binds_of_an_easyconfig_are_looked_at_too(
    tmp_path: Path, images: Images, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "prefix"))
    file = write(
        tmp_path / "Tiny-1.0.yaml",
        f"name: Tiny\nversion: '1.0'\nimage: {{sources: ['{images.tiny_sif}']}}\n"
        f"binds: ['{tmp_path}:/srv', '/no/such:/no/such:ro', '{tmp_path}/no*']\n",
    )
    said = (
        f"{file}:4:9: binds[0]: /srv is also a directory on this machine",
        "binds[1]: /no/such does not exist on this machine and is not optional",
        f"binds[2]: nothing on this machine matches {tmp_path}/no*, and it is not optional",
    )
    assert run(["check", str(file)]) == 0
    out = capfd.readouterr().out
    assert out.endswith(f"{file}: ok: Tiny/1.0\n")
    assert run(["install", "--skip-sanity-check", str(file)]) == 0
    err = capfd.readouterr().err
    for text in said:
        assert text in out
        assert text in err
    assert run(["check", "--json", str(file)]) == 0
    assert len(json.loads(capfd.readouterr().out)[0]["warnings"]) == 3


def test_new_writes_a_file_that_can_be_chosen(
    tmp_path: Path, own_home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["site", "new", "mine"]) == 0
    path = own_home / ".config/sifmod/sites/mine.yaml"
    assert capfd.readouterr().out == f"{path}\n"
    text = path.read_text()
    assert run(["check", str(path)]) == 0
    assert run(["site", "show", "mine"]) == 0
    capfd.readouterr()
    assert run(["site", "new", "mine"]) == 2
    assert f"{path} exists already and was not changed" in capfd.readouterr().err
    assert path.read_text() == text
    assert run(["site", "new", "mine", "-o", "-"]) == 0
    assert capfd.readouterr().out == text
    assert run(["site", "new", "other", "-o", str(tmp_path / "other.yaml")]) == 0
    assert "name: other\n" in (tmp_path / "other.yaml").read_text()


@pytest.mark.parametrize("name", ["../x", "", "a b", "a/b"])
def test_a_name_that_cannot_be_one(name: str, own_home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["site", "new", name]) == 2
    assert "error: " in capfd.readouterr().err.lower()
    assert not (own_home / ".config").exists()


def test_what_is_found_is_in_the_draft() -> None:
    found = Survey(
        ("/var/spool/slurmd",), ("/opt/cray",), ("/usr/lib64/libcxi.so*",), ("/pfs", "/yes"), ("hsn0", "hsn1")
    )
    text = draft_site("yes", ("rocm", "/dev/kfd is there"), found)
    for key in ("sharing", "group"):
        text = text.replace(f"# {key}: ", f"{key}: ")
    node, problems = parse_yaml(text.encode(), "s.yaml")
    assert (problems, check_layer(SiteFile, node)) == ((), ())
    assert (node.entries["sharing"].text, node.entries["group"].text) == ("site", "software")
    binds = {
        name: [item.entries["source"].text for item in group.items]
        for name, group in node.entries["binds"].entries.items()
    }
    assert binds == {
        "slurm": ["/var/spool/slurmd"],
        "fabric": ["/opt/cray"],
        "host-libs": ["/usr/lib64/libcxi.so*"],
        "filesystems": ["/pfs", "/yes"],
    }
    assert node.entries["runscript_env"].entries["NCCL_SOCKET_IFNAME"].text == "hsn0,hsn1"
    assert (node.entries["name"].text, node.entries["accelerator"].text) == ("yes", "rocm")


@pytest.mark.parametrize(("networks", "plugin"), [(("ib0", "ibp65s0"), "IB"), (("hsn0",), "AWS Libfabric")])
def test_the_draft_names_the_plugin_of_the_network(networks: tuple[str, ...], plugin: str) -> None:
    text = draft_site("yes", ("cuda", "/dev/nvidiactl is there"), Survey((), (), (), (), networks))
    assert f"\n  # NCCL_NET: {plugin}\n" in text
    assert "/etc/libibverbs.d" not in FABRIC  # the image's own is for the image's libraries


def test_file_systems_of_the_whole_machine(tmp_path: Path) -> None:
    mounts = write(
        tmp_path / "mounts",
        """
        10.0.0.1@o2ib:/lustrep1 /pfs/lustrep1 lustre rw 0 0
        server:/apps /appl nfs4 rw 0 0
        server:/home /home/users nfs4 rw 0 0
        /dev/sda1 / ext4 rw 0 0
        proc /proc proc rw 0 0
        odd
        """,
    )
    assert survey(str(mounts)).filesystems == ("/appl", "/pfs/lustrep1")
    assert survey(os.devnull).filesystems == ()
    assert survey("/no/such").filesystems == ()


SINFO = """
small*|(null)|128
accel|gpu:a100:4(S:0-3)|64
accel|gpu:a100:8,shard:4|64
mig|gpu:1g.5gb:7(S:0)|32
mixed|(null)|128
mixed|gpu:4|64
odd name|gpu:2|4
"""


def test_partitions_as_sinfo_prints_them() -> None:
    assert read_partitions(SINFO) == (
        Partition("small", (0,), (), (128,), default=True),
        Partition("accel", (4, 8), ("a100",), (64,), default=False),
        Partition("mig", (7,), ("1g.5gb",), (32,), default=False),
        Partition("mixed", (0, 4), (), (64, 128), default=False),
    )
    assert read_partitions("") == ()
    assert read_partitions(f"huge|gpu:{'9' * 5000}|{'9' * 5000}\n")[0].cpus == ()


@pytest.mark.parametrize(
    ("sinfo", "accelerator", "said"),
    [
        ("a|gpu:a100:4|64", "accelerator: cuda", "Slurm calls its GPUs a100:"),
        ("a|gpu:mi250:8|64", "accelerator: rocm", "Slurm calls its GPUs mi250:"),
        ("a|gpu:gh200:4|64", "accelerator: cuda", "gh200"),
        ("a|gpu:a100:4|64\nb|gpu:mi300a:4|96", "# accelerator: cuda", "GPUs of an unknown kind"),
        ("a|gpu:4|64", "# accelerator: cuda", "GPUs of an unknown kind"),
        ("a|(null)|64", "accelerator: none", "nothing is here: auto"),
    ],
)
def test_the_accelerator_of_a_login_node_is_that_of_the_partitions(sinfo: str, accelerator: str, said: str) -> None:
    text = draft_site("x", ("none", "nothing is here"), Survey((), (), (), (), (), partitions=read_partitions(sinfo)))
    assert f"\n{accelerator}\n" in text
    assert said in text
    here = draft_site("x", ("rocm", "/dev/kfd exists"), Survey((), (), (), (), (), partitions=read_partitions(sinfo)))
    assert "\naccelerator: rocm\n" in here


def test_what_a_draft_says_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runtime, module tools, scratch directories and partitions; a partition takes the fewest GPUs of its nodes."""
    for place in ("lus/me", "pfs/users/me", "pfs/other", "home/me/work/me", "home/me-work/me"):
        (tmp_path / place).mkdir(parents=True)
    (tmp_path / "link").symlink_to("lus")
    write(tmp_path / "mounts", f"s:/a {tmp_path}/pfs lustre rw 0 0\n")
    places = {"SCRATCH": f"{tmp_path}/lus/me/", "WORK": f"{tmp_path}/link/me", "LOCAL_SCRATCH": f"{tmp_path}/none/me"}
    places |= {"WORKDIR": f"{tmp_path}/home/me-work/me", "SCRATCHDIR": f"{tmp_path}/home/me/work/me"}  # beside, inside
    environ = {"USER": "me", "HOME": f"{tmp_path}/home/me", "LMOD_CMD": "x", **places}
    monkeypatch.setenv("PATH", str(tmp_path))
    found = survey(f"{tmp_path}/mounts", environ)
    assert found.scratch == (f"{tmp_path}/pfs/users/$USER", f"{tmp_path}/lus/$USER", f"{tmp_path}/home/me-work/$USER")
    assert (found.partitions, found.no_partitions) == ((), "there is no sinfo on PATH")
    assert found.tools[0] == "lua"
    found = replace(found, partitions=read_partitions(SINFO), tools=("tcl",))
    text = draft_site("x", ("none", "none"), found, ("/usr/bin/apptainer", "/usr/bin/apptainer is on PATH"))
    node, problems = parse_yaml(text.encode(), "s.yaml")
    assert (problems, check_layer(SiteFile, node)) == ((), ())
    said = node.entries
    assert (said["runtime"].text, said["module_syntax"].text) == ("apptainer", "tcl")
    assert [item.text for item in said["scratch"].items] == list(found.scratch)
    partitions = said["slurm"].at("partitions").entries
    assert said["slurm"].at("partition").text == "small"
    gpus = {name: one.at("gpus_per_node").value for name, one in partitions.items()}
    assert gpus == {"small": Number("0"), "accel": Number("4"), "mig": Number("7"), "mixed": Number("4")}
    assert "  # nodes with 4 and 8 GPUs; 64 processors; a100\n" in text


@pytest.mark.parametrize("tools", [(), ("lua", "tcl")])
def test_what_could_not_be_found_out_is_a_comment(tools: tuple[Syntax, ...], tmp_path: Path) -> None:
    found = Survey((), (), (), (), (), no_partitions="sinfo failed:\nno\nserver", tools=tools)
    text = draft_site("x", ("none", "nothing"), found, ("", "no apptainer or singularity on PATH"))
    node, problems = parse_yaml(text.encode(), "s.yaml")
    assert (problems, check_layer(SiteFile, node)) == ((), ())
    keys = {"name", "description", "accelerator", "binds", "detect"}
    assert node.entries.keys() == keys | ({"module_syntax"} if tools else set())
    assert "# Partitions are unknown: sinfo failed: no server\n# slurm: {" in text
    assert "# runtime: apptainer  # no apptainer or singularity on PATH\n" in text
    for line in (
        "# slurm: ",
        "# scratch: ",
        "# sharing: ",
        "# group: ",
        "# user_prefix: ",
        "# prefix: ",
        "# runtime: ",
    ):
        assert line in text
        text = text.replace(line, line.removeprefix("# "))
    assert run(["check", str(write(tmp_path / "sites/s.yaml", text))]) == 0  # each can be taken as it is
