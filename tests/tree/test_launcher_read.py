"""What the scripts of a generation set, read back: as the plan says that they were rendered from."""

import os
from pathlib import Path

from plans import plan
from sifmod.actions.diff import ScriptSettings, read_scripts
from sifmod.module.plan import Activation, Bind, Wrapper
from sifmod.module.render import render

NASTY = "a 'b' \"c\" $d `e` \\ ; # é"


def written(root: Path, **changes: object) -> ScriptSettings:
    for file in render(plan(**changes), 3):
        place = root / file.path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(file.text)
    found = read_scripts(str(root), ("bin/pip", "runscripts/get-master", "bin/none"))
    assert found
    return found


def test_variables_and_binds_come_back(tmp_path: Path) -> None:
    found = written(
        tmp_path,
        env=(("PLAIN", "x"), ("NASTY", NASTY), ("EMPTY", "")),
        host_env=(("HOST", NASTY), ("lower", "y")),
        default_env=(("DEFAULT", NASTY),),
        path=("/runscripts", "/a $b"),
        binds=(Bind("/a b", "/a b"), Bind("/c", "/d", ("ro",)), Bind("/e", "/e", optional=True)),
    )
    inside, host = found.variables_inside, found.variables
    assert {name: inside[name] for name in ("PLAIN", "NASTY", "EMPTY")} == {"PLAIN": "x", "NASTY": NASTY, "EMPTY": ""}
    assert inside["PATH"] == "/runscripts:/a $b"
    assert {name: host[name] for name in ("HOST", "lower", "DEFAULT")} == {
        "HOST": NASTY,
        "lower": "y",
        "DEFAULT": NASTY,
    }
    assert (host["CONTAINERROOT"], host["RUNSCRIPTS"]) == ("$root", "$root/runscripts")
    assert host["SINGULARITY_ROCM"] == "1"
    assert not {"SIF", "SIFPYTORCH"} & host.keys()
    assert {"/a b": "/a b", "/d": "/c:/d:ro", "/e": "/e (optional)"}.items() <= found.binds.items()


def test_the_same_plan_gives_the_same_in_another_generation_and_place(tmp_path: Path) -> None:
    one, other = (written(tmp_path / name) for name in ("one", "other"))
    assert one == other


def test_what_a_wrapper_starts(tmp_path: Path) -> None:
    wrappers = (Wrapper("python", ("python",)), Wrapper("pip", ("/opt/pip", "-v")))
    found = written(tmp_path, wrappers=wrappers, activation=Activation("true", "source /x/activate"))
    assert found.commands["pip"] == "bash -c 'source /x/activate && exec \"$@\"' bash /opt/pip -v"
    assert found.commands["runscripts/get-master"] == found.commands["none"] == ""


def test_no_launcher_or_one_that_cannot_be_read(tmp_path: Path) -> None:
    assert read_scripts(str(tmp_path), ()) is None
    (tmp_path / "share").mkdir()
    os.mkfifo(tmp_path / "share/launch.sh")
    assert read_scripts(str(tmp_path), ()) is None
