"""wrappers: auto: which commands of an image get a wrapper, and which are left to the host."""

import subprocess
from dataclasses import replace
from typing import Any

import pytest

from sifmod.config import limits
from sifmod.errors import ImageError
from sifmod.image.convert.sif.header import read_sif
from sifmod.image.find_wrappers import Found, Search, find_wrappers
from sifmod.image.inspect.host_commands import is_host_command
from sifmod.image.inspect.rootfs import open_rootfs
from sifmod.image.inspect.sif import describe_sif
from sifmod.image.sources.source_kinds import parse
from support.generation import find
from support.images import Images
from support.oci import Entry

CONDA = "/opt/miniconda3/envs/pytorch"


def program(path: str) -> Entry:
    return Entry(path.lstrip("/"), b"#!/bin/sh\n")


def text(path: str, content: str = "") -> Entry:
    return Entry(path.lstrip("/"), content.encode(), mode=0o644)


def found(
    images: Images,
    entries: tuple[Entry, ...],
    *,
    path: tuple[str, ...] = ("/runscripts",),
    activate: str = "",
    named: tuple[str, ...] = (),
    entrypoint: tuple[str, ...] = (),
    **image: Any,
) -> Found:
    """What is found in the tiny image with these entries, environment, labels and entrypoint."""
    sif = images.tiny("auto", entries=entries, **image)
    described = describe_sif(sif)
    described = replace(described, config=described.config._replace(entrypoint=entrypoint))
    search = Search(parse("/thing.sif"), path, activate, frozenset(named))
    with open_rootfs(sif, read_sif(sif)) as rootfs:
        return find_wrappers(rootfs, described, search)


def names(result: Found) -> list[str]:
    return [name for name, _ in result.commands]


def conda(*commands: str) -> tuple[Entry, ...]:
    """An environment of conda with Python and these commands, as LUMI's images have it."""
    return (
        *(program(f"{CONDA}/bin/{name}") for name in ("python", "python3", "pip", *commands)),
        text(f"{CONDA}/lib/python3.12/site-packages/torch-2.7.1.dist-info/METADATA"),
        *(program(f"/opt/miniconda3/bin/{name}") for name in ("conda", "python", "other")),
        text("/opt/miniconda3/bin/activate"),
        text("/opt/miniconda3/conda-meta/history"),
        program("/opt/miniconda3/condabin/conda"),
    )


PATH = ("/runscripts", "/user-software/venv/pytorch/bin", f"{CONDA}/bin", "/opt/miniconda3/condabin")


def test_the_easyconfigs_conda_environment(images: Images) -> None:
    result = found(images, conda("torchrun", "hf", "my_tool", "python3.12"), path=PATH)
    expected = ["python", "python3", "pip", "torchrun", "hf", "my_tool", "python3.12", "start-shell", "list-packages"]
    assert names(result) == expected
    assert result.refused == ()
    assert {where for _, where in result.commands} == {""}  # PATH leads to all of them


def test_an_environment_that_the_easyconfig_does_not_name(images: Images) -> None:
    """It is found, and its commands are started by their paths."""
    result = found(images, conda("torchrun"))
    assert dict(result.commands)["torchrun"] == f"{CONDA}/bin/torchrun"
    assert names(result) == ["python", "python3", "pip", "torchrun", "start-shell", "list-packages"]
    in_path = found(images, conda("torchrun"), env=(f"PATH={CONDA}/bin:/usr/bin:/bin",))
    assert (names(in_path), {where for _, where in in_path.commands}) == (names(result), {""})


def test_an_environment_that_a_command_activates(images: Images) -> None:
    result = found(images, conda("torchrun"), activate="source /opt/miniconda3/bin/activate pytorch")
    assert names(result) == ["python", "python3", "pip", "torchrun", "start-shell", "list-packages"]
    assert {where for _, where in result.commands} == {""}
    base = found(images, conda(), activate=". /opt/miniconda3/bin/activate")
    assert names(base) == ["python", "other", "start-shell", "list-packages"]
    assert base.refused == ("conda",)


def test_a_venv(images: Images) -> None:
    entries = (
        *(program(f"/opt/venv/bin/{name}") for name in ("python", "python3", "vllm", "activate")),
        text("/opt/venv/pyvenv.cfg"),
        program("/usr/bin/python3"),
        program("/usr/bin/unattended-upgrade"),
    )
    for path in (("/runscripts", "/opt/venv/bin"), ("/runscripts",)):
        assert names(found(images, entries, path=path)) == ["python", "python3", "vllm", "start-shell", "list-packages"]


def test_programs_of_the_distribution_are_left_out(images: Images) -> None:
    entries = (
        *conda("xslt", "torchrun"),
        program("/usr/bin/xslt"),
        program("/usr/bin/apt"),
        program("/usr/bin/python3"),
    )
    result = found(images, entries, path=PATH)
    assert not {"xslt", "apt"} & set(names(result))
    assert "python3" in names(result)  # the environment's
    assert dict(result.commands)["python3"] == ""


def test_what_would_hide_the_hosts_own_is_refused(images: Images) -> None:
    hidden = ("ls", "sh", "git", "gcc", "mpirun", "srun", "perl", "clear", "activate", "x86_64-conda-linux-gnu-ld")
    result = found(images, conda(*hidden, "torchrun"), path=PATH, named=("ls",))
    assert names(result) == ["python", "python3", "pip", "torchrun", "start-shell", "list-packages"]
    assert set(result.refused) >= {"git", "gcc", "mpirun", "srun", "perl"}
    assert not {"ls", "x86_64-conda-linux-gnu-ld"} & set(result.refused)  # one is named, the other is no command


def test_what_the_easyconfig_names_is_not_looked_for(images: Images) -> None:
    result = found(images, conda("torchrun"), path=PATH, named=("python", "torchrun", "start-shell"))
    assert names(result) == ["python3", "pip", "list-packages"]


def test_an_image_without_python(images: Images) -> None:
    entries = (program("/opt/align/bin/samtools"), program("/usr/local/bin/bgzip"), program("/usr/bin/less"))
    result = found(images, entries, env=("PATH=/opt/align/bin:/usr/local/bin:/usr/bin:/bin",))
    assert result == Found((("bgzip", ""), ("samtools", ""), ("start-shell", "")), ())


@pytest.mark.parametrize(
    ("entrypoint", "expected"),
    [
        (("samtools",), ("samtools", "")),
        (("/opt/x/samtools", "view"), ("samtools", "/opt/x/samtools")),
        (("/usr/bin/tini", "--", "/usr/bin/samtools"), ("samtools", "")),
        (("env", "A=1", "samtools"), ("samtools", "")),
        (("/bin/sh", "-c", "samtools"), None),
        (("/opt/x/docker-entrypoint.sh",), None),
        (("/nowhere/at-all",), None),
    ],
)
def test_the_entrypoint_is_a_command(
    images: Images, entrypoint: tuple[str, ...], expected: tuple[str, str] | None
) -> None:
    where = "/opt/x" if entrypoint[0].startswith("/opt/x") else "/usr/bin"
    entries = (program(f"{where}/samtools"), program("/opt/x/docker-entrypoint.sh"))
    result = found(images, entries, entrypoint=entrypoint)
    assert result == Found((*([expected] if expected else []), ("start-shell", "")), ())


@pytest.mark.parametrize("label", ["org.opencontainers.image.title", "software"])
def test_a_label_names_a_command(images: Images, label: str) -> None:
    for value, name in (("Samtools", "samtools"), ("quay.example/tools/samtools", "samtools"), ("Some Tools", None)):
        result = found(images, (program("/usr/bin/samtools"),), labels={label: value})
        assert names(result) == [*([name] if name else []), "start-shell"]


def test_nothing_in_the_image_can_steer_a_script(images: Images) -> None:
    odd = ("a b", "$(touch x)", "-rf", "a=b", "new\nline", "ü", ".hidden", "\udcff", "../up", "x" * 101)
    entries = tuple(Entry(f"opt/miniconda3/envs/pytorch/bin/{name}", b"#!/bin/sh\n") for name in odd if "/" not in name)
    labels = {"software": "../../bin/$(touch x)", "name": "\n"}
    result = found(images, (*conda("good"), *entries), path=PATH, labels=labels)
    assert names(result) == ["python", "python3", "pip", "good", "start-shell", "list-packages"]
    place = "/opt/a b $(touch x)/bin"
    result = found(images, (program(f"{place}/tool"),), env=(f"PATH={place}:/bin",))
    assert names(result) == ["start-shell"]


def test_too_many_are_not_given(images: Images, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "_current", limits.Limits(wrappers=5))
    with pytest.raises(ImageError, match="6 commands for wrappers, more than 5 "):
        found(images, conda("a", "b", "c"), path=PATH)


def test_the_hosts_commands_are_names_of_files() -> None:
    names = "sh ls cat git srun module vim [ case declare pushd CC ftn nvcc nvidia-smi rocminfo ibstat ucx_info lctl"
    rights = "mksquashfs aws free squeue pkexec newuidmap git-remote-https docker-credential-x git-credential-x "
    rights += "gpg-agent pinentry-curses ssh-askpass sudoedit runuser systemd-run bwrap nvidia-container-runtime"
    assert all(map(is_host_command, f"{names} {rights}".split()))
    assert not any(
        map(is_host_command, ["python", "python3", "pip", "torchrun", "jupyter", "samtools", "R", "docker-compose"])
    )


def test_every_word_of_a_shell_is_left_to_it() -> None:
    """All that bash takes for itself before it looks for a program."""
    words = subprocess.run((find("bash"), "-c", "compgen -k; compgen -b"), check=True, capture_output=True, text=True)
    assert {word for word in words.stdout.split() if not is_host_command(word)} <= {"{", "}", "]]"}


def test_names_that_no_wrapper_can_have_are_said(images: Images) -> None:
    odd = ("-x", "two words", "nice;rm", "[")
    result = found(images, conda("torchrun", *odd), path=PATH)
    assert result.unusable == tuple(sorted(odd))
    assert not set(odd) & {*names(result), *result.refused}
