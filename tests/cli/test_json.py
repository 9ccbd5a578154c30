"""`--json`: every verb's answer, and every verb's failure, as `sifmod schema --output` describes them."""

import json
import os
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from sifmod.cli.commands import COMMANDS
from sifmod.cli.main import run
from sifmod.cli.outputs import output_schema, outputs
from sifmod.config.name import ModuleName
from sifmod.tree.layout import Layout
from support.answer import answer, held
from support.config import write
from support.disk_state import disk_state
from support.images import Images
from support.tree import install

TINY = "name: Tiny\nversion: '1.0'\nimage: {{sources: ['{}']}}\nwrappers: [sh]\n"
SHPC = (
    f"docker: quay.io/x/samtools\nurl: u\nmaintainer: m\ndescription: d\nlatest: {{'1.10': 'sha256:{'d' * 64}'}}\n"
    f"tags: {{'1.10': 'sha256:{'d' * 64}'}}\naliases: {{samtools: /bin/samtools}}\n"
)


@pytest.fixture
def here(tmp_path: Path, images: Images, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with an easyconfig and its image, from which nothing is installed yet."""
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "prefix"))
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "Tiny-1.0.yaml", TINY.format(images.tiny_sif))
    return tmp_path


def test_verbs_that_change_a_tree(here: Path, images: Images, capfd: pytest.CaptureFixture[str]) -> None:
    """One module from its dry run to its end; paths are absolute though the words are not."""

    def told(*words: str, code: int = 0) -> Any:
        return answer(capfd, words, code)

    file = "Tiny-1.0.yaml"
    (row,) = told("install", "-q", "--dry-run", file)
    assert (row["module"], row["mark"], (here / "prefix").exists()) == ("Tiny/1.0", " ", False)
    (row,) = told("install", "-q", "--fetch", file)
    (made,) = told("install", "-q", "--skip-sanity-check", file)
    assert (made["module"], made["generation"], made["changed"]) == ("Tiny/1.0", 1, True)
    assert (made["image"]["path"], made["image"]["sha256"]) == (row["path"], row["sha256"])
    for record in (*made["files"], *made["modulefiles"], *made["links"]):
        assert os.path.lexists(record["path"])
    assert str(here / file) in [one["path"] for one in made["provenance"]["inputs"]]
    write(here / file, TINY.format(images.tiny_sif) + "env: {A: '1'}\n")
    (row,) = told("install", "--module-only", "--installed", "--dry-run")
    assert (row["module"], "A" in row["diff"], row["notes"]) == ("Tiny/1.0", True, [])
    told("install", "-q", "--skip-sanity-check", file)
    (row,) = told("list")
    shown = told("show", "Tiny")
    assert (row["generation"], row["installation"], shown["generation"]) == (2, shown, 2)
    assert told("rollback", "Tiny")["generation"] == 1
    assert told("verify") == [{"module": "Tiny/1.0", "findings": []}]
    kept, *images_ = told("gc", "--ignore-jobs")
    assert (kept["kind"], kept["module"], kept["generation"], kept["removed"]) == ("generation", "Tiny/1.0", 2, False)
    assert kept["keep"]
    assert [(one["kind"], one["size"]) for one in images_] == [("image", images.tiny_sif.stat().st_size)]
    assert told("gc", "--ignore-jobs", "--now", "--rollbacks")[0]["keep"].startswith("it is held")
    told("rollback", "--release", "Tiny")
    gone = told("gc", "--ignore-jobs", "--now", "--rollbacks", "--yes")[0]
    assert (gone["keep"], gone["removed"], Path(gone["path"]).exists()) == (None, True, False)
    changes = told("log")
    assert [(one["what"], one["generation"], one["before"]) for one in changes if one["module"]] == [
        *(("installed", 1, None), ("installed", 2, 1), ("rolled back", 1, 2), ("held", None, 2)),
        *(("released", None, 2), ("removed", None, 2)),
    ]
    live: dict[str, object] = {"default": True, "hidden": False, "deprecated": None, "retired": None, "labels": {}}
    assert told("default", "Tiny") == [{"module": "Tiny/1.0", "changed": True, "life": live, "views": []}]
    (row,) = told("deprecate", "Tiny", "--since", "2026-01-02", "--until", "2999-03-31")
    assert row["life"]["deprecated"] == {"since": "2026-01-02", "until": "2999-03-31", "message": ""}
    assert told("hide", "--undo", "Tiny")[0]["changed"] is False
    assert told("list")[0]["life"] == row["life"]
    told("deprecate", "--undo", "Tiny")
    assert [(one["what"], one["generation"]) for one in told("log")][-2:] == [
        ("deprecated", 1),
        ("no longer deprecated", 1),
    ]
    done = told("uninstall", "Tiny", "--purge", "--ignore-jobs")
    (row,) = done["uninstalled"]
    nothing: dict[str, object] = {"user_software": None, "user_layers": None, "views": [], "kernels": [], "held": []}
    assert row == {"module": "Tiny/1.0", "generation": 1, "default": True, **nothing}
    assert [(one["kind"], one["removed"]) for one in done["purged"]] == [("generation", True), ("image", True)]
    assert told("list") == []


def test_verbs_that_write_or_read_files(here: Path, images: Images, capfd: pytest.CaptureFixture[str]) -> None:
    def told(*words: str, code: int = 0) -> Any:
        return answer(capfd, words, code)

    fetched = told("fetch", "-q", f"oci:{images.tiny_layout()}")
    assert (fetched["size"], fetched["promise"]["sha256"]) == (Path(fetched["path"]).stat().st_size, fetched["sha256"])
    assert told("fetch", "-q", str(images.tiny_sif))["promise"] is None
    shown = told("show", fetched["path"])
    assert (shown["size"], shown["manifest"]) == (fetched["size"], fetched["made_from"]["manifest"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", shown["created"])
    assert told("new", "-q", str(images.tiny_sif), "--name", "Mine", "-o", "mine.yaml")["path"] == f"{here}/mine.yaml"
    write(here / "container.yaml", SHPC)
    write(here / "bad.lua", "x = (\n")
    failed, made = told("import", "bad.lua", "container.yaml", code=5)
    assert (failed["file"], failed["line"], failed["exit_code"]) == ("bad.lua", 2, 5)
    assert Path(made["path"]).read_text().startswith("# Made from container.yaml")
    assert told("site", "new", "hill", "-o", "hill.yaml")["path"] == str(here / "hill.yaml")
    assert told("site", "new", "hill")["hides"] is None
    assert told("site", "detect")["site"] == "generic"
    assert {"key": "site", "value": "hill"}.items() <= told("site", "show", "hill.yaml")["origins"][0].items()
    assert {"umask": None}.items() <= {row["key"]: row["value"] for row in told("config", "show")}.items()
    assert told("doctor", code=run(["doctor"]))[0]["subject"] == "runtime"
    assert told("show", "Tiny-1.0.yaml")["keys"]["name"] == "Tiny"
    assert "name" in [row["key"] for row in told("show", "--origins", "Tiny-1.0.yaml")]
    found = {row["path"]: row["variants"] for row in told("search", "--robot-paths", str(here), "Tiny")}
    assert found[f"{here}/Tiny-1.0.yaml"][0]["module"] == "Tiny/1.0"
    write(here / "bad.yaml", "name: Bad\nversion: 1\nwrapers: [sh]\nimage: {sources: [/x.sif]}\n")
    good, bad, none = told("check", "Tiny-1.0.yaml", "bad.yaml", "none.yaml", code=5)
    assert (good["path"], good["modules"][0]["module"], good["problems"]) == (f"{here}/Tiny-1.0.yaml", "Tiny/1.0", [])
    assert [(one["line"], one["column"], one["key"]) for one in bad["problems"]] == [
        (2, 10, "version"),
        (3, 1, "wrapers"),
    ]
    assert (bad["file"], bad["line"], bad["column"], none["exit_code"], none["line"]) == ("bad.yaml", 2, 10, 4, None)


def test_modules_that_are_not_as_they_were(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    layout = Layout(here / "prefix")
    one = install(layout, "a")
    other = install(layout, "b", ModuleName("Other", "2.0"))
    Path(one.required_image.path).unlink()
    layout.module_file(other.module, "lua").write_text("mine")
    row = answer(capfd, ("list", "Tiny"))[0]
    assert row["problems"][0]["message"] == f"the image {one.required_image.path} is missing"
    findings = {row["module"]: row["findings"] for row in answer(capfd, ("verify",), 1)}
    assert [finding["kind"] for finding in findings["Tiny/1.0"]] == ["missing"]
    before = disk_state(here / "prefix/software/Other", here / "prefix/modules/Other")
    failed, done = answer(capfd, ("uninstall", "Other", "Tiny"), 18)["uninstalled"]
    assert (failed["module"], failed["exit_code"], done["generation"]) == ("Other/2.0", 18, 1)
    assert disk_state(here / "prefix/software/Other", here / "prefix/modules/Other") == before


FAILS = {
    "install": (("none.yaml",), 4),
    "fetch": (("/no/such.sif",), 10),
    "push": (("/no/such.sif", "oras://127.0.0.1/a:1"), 10),
    "export": (("/no/such.sif", "--to", "sqsh"), 10),
    "new": (("/no/such.sif",), 10),
    "import": (("none.eb",), 4),
    "add": (("nothing", "numpy"), 24),
    "layer add": (("nothing", "numpy"), 24),
    "layer remove": (("nothing", "numpy"), 24),
    "layer list": (("--prefix", "Tiny-1.0.yaml"), 2),
    "layer sync": (("nothing", "Tiny-1.0.yaml"), 2),
    "jobscript": (("nothing",), 24),
    "jupyter": (("nothing",), 24),
    "stack plan": (("none.yaml",), 5),
    "stack apply": (("none.yaml",), 5),
    "stack init": (("Tiny-1.0.yaml",), 2),
    "stack outdated": (("none.yaml",), 5),
    "stack lock": (("none.yaml",), 5),
    "stack bundle": (("none.yaml", "-o", "none.tar"), 5),
    "lock": (("none.yaml",), 4),
    "outdated": (("nothing",), 24),
    "upgrade": (("nothing",), 24),
    "list": (("--prefix", "Tiny-1.0.yaml"), 2),
    "show": (("nothing",), 4),
    "search": (("--site", "nowhere", "x"), 2),
    "stack catalogue": (("none.yaml", "-o", "Tiny-1.0.yaml"), 4),
    "verify": (("nothing",), 24),
    "sbom": (("nothing",), 24),
    "diff": (("nothing",), 24),
    "test": (("nothing",), 24),
    "uninstall": (("nothing",), 24),
    "rollback": (("nothing",), 24),
    "default": (("nothing",), 24),
    "hide": (("nothing",), 24),
    "deprecate": (("nothing", "--until", "soon"), 2),
    "retire": (("nothing",), 24),
    "log": (("--prefix", "Tiny-1.0.yaml"), 2),
    "gc": (("--days", "-1"), 2),
    "check": (("--site", "nowhere", "Tiny-1.0.yaml"), 2),
    "config show": (("--site", "nowhere"), 2),
    "site show": (("nowhere",), 2),
    "site detect": (("words",), 2),
    "site new": (("hill", "-o", "Tiny-1.0.yaml"), 2),
    "doctor": (("--accelerator", "tpu"), 2),
    "self module": (("Tiny-1.0.yaml",), 18),
}


@pytest.mark.parametrize("verb", list(outputs()))
def test_a_failure_is_one_object_and_changes_nothing(verb: str, here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words, code = FAILS[verb]
    before = disk_state(here)
    assert run([*verb.split(), *words]) == code
    message = capfd.readouterr().err
    for typed, expected in (([*words, "--json"], code), (["--json", "--no-such-option"], 2)):
        assert run([*verb.split(), *typed]) == expected
        out, err = capfd.readouterr()
        data = held(verb, out)
        if verb != "install" or expected == 2:
            assert data["exit_code"] == expected
            assert data["error"].partition("\n")[0] in err
        assert (err == message) is (expected == code and "--no-such-option" not in typed)
    assert disk_state(here) == before


def test_the_place_is_that_of_the_first_problem(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = write(here / "etc-sifmod.d/own.yaml", "lnk: copy\numsk: '022'\n")
    found = answer(capfd, ("config", "show"), 5)
    place = {"file": str(file), "line": 1, "column": 1}
    assert place.items() <= found.items()
    assert [(one["line"], one["key"]) for one in found["problems"]] == [(1, "lnk"), (2, "umsk")]
    assert found["problems"][0]["message"] == "unknown key; did you mean link?"


def test_words_that_are_no_command(capfd: pytest.CaptureFixture[str]) -> None:
    for words, hint in (
        (["instal", "--json"], "did you mean `sifmod install`?"),
        (["init", "--json"], "`sifmod init --help` explains it"),
    ):
        assert run(words) == 2
        found = json.loads(capfd.readouterr().out)
        assert (found["exit_code"], found["hint"]) == (2, hint)
    assert run(["list", "--prefix", "/none", "--", "--json"]) == 0
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize(
    ("error", "code", "file"),
    [
        (KeyboardInterrupt(), 130, None),
        (OSError(13, "Permission denied", "/x"), 25, "/x"),
        (ValueError("odd"), 70, None),
    ],
)
def test_an_interruption_a_refusal_and_a_bug(
    error: BaseException,
    code: int,
    file: str | None,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def listdir(_path: object) -> list[str]:
        raise error

    monkeypatch.setattr(os, "listdir", listdir)
    found = answer(capfd, ("list", "--prefix", "/no/prefix"), code)
    assert (found["exit_code"], found["file"]) == (code, file)


def test_what_was_answered_is_not_answered_again(
    here: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Standard output holds one document, whatever happens after it was printed."""
    import sifmod.cli.installed
    from sifmod.cli.output import print_json as written

    assert here.exists()

    def interrupted(data: object) -> None:
        written(data)
        raise KeyboardInterrupt

    monkeypatch.setattr(sifmod.cli.installed, "print_json", interrupted)
    assert answer(capfd, ("list",), 130) == []


def test_the_schema_of_a_verb_and_of_all(capfd: pytest.CaptureFixture[str]) -> None:
    import jsonschema  # which compiles 38 grammars

    assert run(["schema", "--output", "site show"]) == 0
    one = json.loads(capfd.readouterr().out)
    assert one == schemas()["site show"]
    jsonschema.Draft202012Validator.check_schema(one)
    assert run(["schema", "--output"]) == 0
    assert json.loads(capfd.readouterr().out) == schemas()
    assert run(["schema", "--output", "init"]) == 2
    assert "expected one of doctor, search, install, " in capfd.readouterr().err
    assert {verb.split()[0] for verb in outputs()} == set(COMMANDS) - {"schema", "init", "help"}


@cache
def schemas() -> dict[str, dict[str, Any]]:
    return {verb: output_schema(verb) for verb in outputs()}


def kinds(schema: dict[str, Any]) -> set[str]:
    if "anyOf" in schema:
        return set().union(*map(kinds, schema["anyOf"]))
    if schema.get("type") == "array":
        return {f"list of {'|'.join(sorted(kinds(schema['items'])))}"}
    return {str(schema.get("$ref") or schema.get("type"))}


def test_a_name_has_one_type_in_every_verb() -> None:
    types: dict[str, set[str]] = {}
    for schema in schemas().values():
        for definition in schema["$defs"].values():
            for field, kind in definition["properties"].items():
                types.setdefault(field, set()).add("|".join(sorted(kinds(kind) - {"null"})))
    assert {field: found for field, found in types.items() if len(found) > 1} == {}
