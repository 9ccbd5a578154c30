"""What a later run compares: files, directories, variables and facts."""

import hashlib
import os
from pathlib import Path

import pytest

from sifmod.config.input import HostFacts, Input, current_facts, find_program, read_input


def test_a_file_counts_by_its_content(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_text("1")
    seen = read_input(str(file), {})
    assert seen == Input(str(file), hashlib.sha256(b"1").hexdigest())
    os.utime(file, (1, 1))
    assert HostFacts({}).unchanged([seen])
    file.write_text("2")
    assert not HostFacts({}).unchanged([seen])
    file.unlink()
    assert read_input(str(file), {}) == Input(str(file), None)


def test_an_absent_file_counts_until_it_appears(tmp_path: Path) -> None:
    absent = read_input(str(tmp_path / "a"), {})
    assert HostFacts({}).unchanged([absent])
    (tmp_path / "a").touch()
    assert not HostFacts({}).unchanged([absent])


def test_a_directory_counts_by_the_names_in_it(tmp_path: Path) -> None:
    seen = read_input(f"{tmp_path}/", {})
    (tmp_path / "a").touch()
    assert not HostFacts({}).unchanged([seen])
    seen = read_input(f"{tmp_path}/", {})
    (tmp_path / "a").write_text("changed")
    assert HostFacts({}).unchanged([seen])
    assert read_input(f"{tmp_path}/absent/", {}).sha256 is None


def test_a_variable_counts_by_its_value() -> None:
    seen = read_input("$A", {"A": "1"})
    assert HostFacts({"A": "1", "B": "2"}).unchanged([seen])
    assert not HostFacts({"A": "2"}).unchanged([seen])
    assert not HostFacts({}).unchanged([seen])
    assert read_input("$A", {}) == Input("$A", None)
    assert read_input("$A", {"A": ""}) != Input("$A", None)


def test_of_some_paths_only_the_existence_counts(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    seen = read_input(f"?{tmp_path}/a", {})
    assert seen.sha256 == "present"
    (tmp_path / "a").write_text("2")
    assert HostFacts({}).unchanged([seen])
    (tmp_path / "a").unlink()
    assert not HostFacts({}).unchanged([seen])


def test_programs_are_found_on_path_as_a_shell_finds_them(tmp_path: Path) -> None:
    for directory, mode in (("a", 0o644), ("b", 0o755), ("c", 0o755)):
        (tmp_path / directory).mkdir()
        (tmp_path / directory / "tool").write_text("#!/bin/sh\n")
        (tmp_path / directory / "tool").chmod(mode)
    (tmp_path / "d/tool").mkdir(parents=True)
    path = f"::relative:{tmp_path}/d:{tmp_path}/a:{tmp_path}/b:{tmp_path}/c"
    assert find_program("tool", {"PATH": path}) == f"{tmp_path}/b/tool"
    assert find_program("tool", {"PATH": ""}) == ""
    assert find_program("tool", {}) == ""


@pytest.mark.parametrize("name", ["SIFMOD_SITE", "HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "EBU_USER_PREFIX"])
def test_variables_that_decide_something_are_facts(name: str) -> None:
    assert (f"variable {name}", "/x") in current_facts({name: "/x"})
    assert not [key for key, _ in current_facts({"OTHER": "/x", "SIFMOD_PREFIX": "/x"}) if key.startswith("variable ")]


def test_facts_are_sorted_pairs_of_text() -> None:
    facts = current_facts(dict(os.environ))
    assert list(facts) == sorted(facts)
    assert ("machine", os.uname().machine) in facts
    assert dict(facts)["device cuda"] == ("present" if Path("/dev/nvidiactl").exists() else "")
