"""A runtime that fails: which of its words are shown, and which advice comes with them. The runtime is a fake."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from sifmod.errors import FetchError
from sifmod.module.plan import Runtime
from support.fetching import Prefix, plan
from support.images import Images

SOURCE = "library://a/b/c:d"


def fake(directory: Path, script: str, kind: str = "apptainer") -> Runtime:
    program = directory / "runtime"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return Runtime(kind, str(program))  # type: ignore[arg-type]


def refused(tmp_path: Path, script: str) -> FetchError:
    prefix = Prefix(tmp_path / "prefix")
    before = prefix.state()
    with pytest.raises(FetchError) as caught:
        prefix.fetch(replace(plan(SOURCE), runtime=fake(tmp_path, script)))
    assert prefix.state() == before
    return caught.value


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        ("No Space left on device", "free some space where"),
        ("disk quota exceeded", "free some space where"),
        ("toomanyrequests: slow down", "the registry limits anonymous pulls"),
        ("Too Many Requests", "the registry limits anonymous pulls"),
        ("status 429", "the registry limits anonymous pulls"),
        ("authentication required", "log in (`apptainer registry login`)"),
        ("unauthorized: no", "log in (`apptainer registry login`)"),
        ("requested access to the resource is denied", "log in (`apptainer registry login`)"),
        ("403 Forbidden", "log in (`apptainer registry login`)"),
        ("manifest unknown", "correct the name or the tag of the source"),
        ("name unknown", "correct the name or the tag of the source"),
        ("404 Not Found", "correct the name or the tag of the source"),
        ("no default remote with library client", "select a library: `apptainer remote add`"),
        ("no image found in image index for architecture", "the image does not exist for this architecture"),
        ("use --fakeroot, or the proot command", "an ordinary user's SingularityCE needs proot"),
        ("x509: signed by unknown", "for a certificate of your site's own authority"),
        ("bad certificate", "for a certificate of your site's own authority"),
        ("dial tcp 127.0.0.1", "check whether this node has a network"),
        ("no such host", "check whether this node has a network"),
        ("i/o timeout", "check whether this node has a network"),
        ("connection refused", "check whether this node has a network"),
        ("quite another thing", ""),
    ],
)
def test_advice_goes_by_what_it_says(tmp_path: Path, said: str, advice: str) -> None:
    error = refused(tmp_path, f"echo 'FATAL:   while pulling: {said}' >&2; exit 255")
    assert f"`apptainer pull {SOURCE}` failed with exit code 255:\n    FATAL:   while pulling: {said}" in error.message
    assert error.hint.startswith(advice)
    assert bool(error.hint) is bool(advice)


def test_only_the_last_words_that_matter_are_shown(tmp_path: Path) -> None:
    noise = "echo 'INFO:    x'; echo 'DEBUG   x'; echo 'VERBOSE x'; echo 'WARNING: kept'"
    error = refused(tmp_path, f"for n in $(seq 30); do echo line $n; done; {noise}; exit 3")
    lines = [line.strip() for line in error.message.split("failed with exit code 3:\n")[1].splitlines()]
    assert lines == [*(f"line {number}" for number in range(12, 31)), "WARNING: kept"]


@pytest.mark.parametrize(
    ("script", "how"), [("kill -9 $$", "was ended by signal 9"), ("exit 0", "failed with exit code 0")]
)
def test_how_it_ended_is_told(tmp_path: Path, script: str, how: str) -> None:
    assert f"`apptainer pull {SOURCE}` {how}:" in refused(tmp_path, script).message


GIVES = """
case $1 in --version|buildcfg) exit ;; esac
printf '%s\\n' "$@" >{told}
(cd "${{{prefix}_CONFIGDIR}}" && for each in *; do echo "$each $(cat "$each")"; done; pwd) >{config} 2>/dev/null
stat -c %a "${{{prefix}_CONFIGDIR}}" "${{{prefix}_CACHEDIR}}" "$TMPDIR" >>{config}
for word in "$@"; do target=$before; before=$word; done
cp {sif} "$target"
"""


def given(tmp_path: Path, images: Images, kind: str = "apptainer", arch: str = "amd64") -> tuple[list[str], list[str]]:
    """The arguments of a pull, and what is in the runtime's configuration directory, with modes of directories."""
    told, config = tmp_path / "told", tmp_path / "config"
    sif = images.tiny_sif if arch == "amd64" else images.foreign(arch)
    runtime = fake(tmp_path, GIVES.format(told=told, config=config, sif=sif, prefix=kind.upper()), kind)
    wanted = plan(SOURCE)
    artifact = Prefix(tmp_path / "prefix").fetch(
        replace(wanted, runtime=runtime, image=replace(wanted.required_image, arch=arch))
    )
    assert artifact.path.read_bytes() == sif.read_bytes()
    return told.read_text().splitlines(), config.read_text().splitlines()


def test_what_a_pull_is_asked_for(tmp_path: Path, images: Images, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    arguments, _ = given(tmp_path, images)
    assert (arguments[:3], arguments[-1]) == (["pull", "--force", "--disable-cache"], SOURCE)
    assert len(arguments) == 5


def test_an_image_for_another_machine_is_asked_for_by_its_name(
    tmp_path: Path, images: Images, monkeypatch: pytest.MonkeyPatch
) -> None:
    for machine, foreign in (("aarch64", []), ("x86_64", ["--arch", "arm64"]), ("riscv64", ["--arch", "arm64"])):
        monkeypatch.setattr("platform.machine", lambda machine=machine: machine)
        (tmp_path / machine).mkdir()
        arguments, _ = given(tmp_path / machine, images, arch="arm64")
        assert arguments[3:-2] == foreign


@pytest.mark.parametrize("kind", ["apptainer", "singularity"])
def test_the_users_logins_are_there(tmp_path: Path, images: Images, own_home: Path, kind: str) -> None:
    own = own_home / f".{kind}"
    docker = own_home / ".docker" / "config.json"
    for path, text in ((docker, "docker"), (own / "docker-config.json", "own"), (own / "remote.yaml", "remote")):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    _, found = given(tmp_path, images, kind)
    assert found[:2] == ["docker-config.json own", "remote.yaml remote"]
    assert found[-3:] == ["700"] * 3
    (own / "docker-config.json").unlink()
    (own / "remote.yaml").unlink()
    _, found = given(tmp_path, images, kind)
    assert found[0] == "docker-config.json docker"
    assert not any(line.startswith("remote.yaml") for line in found)


def test_directories_that_variables_name_come_first(
    tmp_path: Path, images: Images, own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (".apptainer", ".singularity", "named", "docker"):
        (own_home / name).mkdir()
        (own_home / name / ("config.json" if name == "docker" else "docker-config.json")).write_text(name)
    monkeypatch.setenv("DOCKER_CONFIG", str(own_home / "docker"))
    monkeypatch.setenv("SINGULARITY_CONFIGDIR", str(own_home / "named"))
    for left in ("named", ".apptainer", ".singularity", "docker"):
        _, found = given(tmp_path, images)
        assert found[0] == f"docker-config.json {left}"
        if left != "docker":
            (own_home / left / "docker-config.json").unlink()


def test_a_relative_definition_is_built_where_it_is(
    tmp_path: Path, images: Images, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "x.def").write_text("Bootstrap: scratch\n")
    monkeypatch.chdir(tmp_path)
    script = f'printf \'%s\\n\' "$@" "$PWD" >>{tmp_path}/told; cp {images.tiny_sif} "$4"'
    Prefix(tmp_path / "prefix").fetch(replace(plan(build=Path("d/x.def")), runtime=fake(tmp_path, script)))
    told = (tmp_path / "told").read_text().splitlines()
    start = told.index("build")
    assert told[start : start + 3] == ["build", "--force", "--disable-cache"]
    assert told[start + 4 :][:2] == [f"{tmp_path}/d/x.def", f"{tmp_path}/d"]
    assert os.listdir(tmp_path / "d") == ["x.def"]
