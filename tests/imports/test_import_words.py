"""What imports share: command lines taken apart, variables of a container, and what reading a file may cost."""

from pathlib import Path

import pytest

from sifmod.imports.container import (
    NOT_A_BIND,
    OPTIONAL,
    Found,
    binds_of,
    is_for_a_shell,
    optional,
    without_arguments,
    wrapper,
)
from sifmod.imports.result import (
    MAX_BYTES,
    MAX_DEPTH,
    MAX_LETTERS,
    MAX_STEPS,
    MAX_TEXT,
    Budget,
    CannotImportError,
    Value,
    read_text,
)


@pytest.mark.parametrize("letter", "$`;&|<>()*?\n")
def test_what_only_a_shell_understands(letter: str) -> None:
    assert is_for_a_shell(f"a {letter} b")
    assert not is_for_a_shell(f"a '{letter}' b")
    assert is_for_a_shell(f"a '{letter} b")


def test_a_backslash_at_the_end_is_for_a_shell() -> None:
    assert is_for_a_shell("a \\")
    assert not is_for_a_shell("a \\b")
    assert not is_for_a_shell("a b -c=d,e 'f'")


@pytest.mark.parametrize("ending", ["", ' "$@"', " $@", ' "$*"', " $*", '"$@" ', "  "])
def test_the_users_own_words_go(ending: str) -> None:
    assert without_arguments(f" a b{ending}") == "a b"
    assert without_arguments(f"$* a{ending} b") == f"$* a{ending} b"


@pytest.mark.parametrize(
    ("command", "item"),
    [
        ("a", "a"),
        ("'a'", "a"),
        ("b", {"a": "b"}),
        ("a  b\tc", {"a": "a b c"}),
        ("a  'b  c'", {"a": "a  'b  c'"}),
        ("-a", None),
        ("", None),
        ("''", None),
        ("'a", None),
    ],
)
def test_the_item_of_wrappers(command: str, item: Value | None) -> None:
    if item is None:
        with pytest.raises(ValueError, match=r"No closing quotation|it does not start with a command"):
            wrapper("a", command)
    else:
        assert wrapper("a", command) == item


@pytest.mark.parametrize(
    "bind", ["/a", "/a:/b", "/a:/b:ro", "/a:/b:rw", "/a b:/c d", "/", "/:/a"]
)  # fmt: skip
def test_a_bind_path(bind: str) -> None:
    wanted = ((), (bind,)) if bind == "/" else ((bind,), ())
    assert binds_of(bind) == wanted


@pytest.mark.parametrize(
    "bind",
    [
        *("a", "/a:b", "/a:/", "/a://", "/a:/b:x", "/a:/b:ro:rw", "$HOME:/a"),
        *("/a$B", "/a:/b`c`", '/a"', "/a\\b", "/a\ue000"),
    ],
)
def test_what_is_no_bind_path(bind: str) -> None:
    assert binds_of(f"/x, {bind} ,,/y:/z") == (("/x", "/y:/z"), (bind,))


NOTED = "w: the option {} is not imported"
BAD = f"w: the bind path {{!r}} {NOT_A_BIND}"


@pytest.mark.parametrize(
    ("words", "found", "count"),
    [
        ("", Found(), 0),
        ("a --nv", Found(), 0),
        ("--nv --nvccli -B", Found(gpus={"cuda"}), 3),
        ("--rocm --nv a", Found(gpus={"rocm", "cuda"}), 2),
        ("-B /a --bind /b:/c,/a --bind=/d a", Found(binds=["/a", "/b:/c", "/d"]), 5),
        ("--bind b,/c a", Found(binds=["/c"], notes=[BAD.format("b")]), 2),
        (f"-B {'b' * 90}", Found(notes=[BAD.format("b" * 80)]), 2),
        ("--env A=b --env=C=d=e a", Found(env={"A": "b", "C": "d=e"}), 3),
        ("--env A a", Found(notes=[NOTED.format("--env")]), 2),
        ("--env A=b,C=d a", Found(notes=[NOTED.format("--env")]), 2),
        ("--env A=$B a", Found(notes=[NOTED.format("--env")]), 2),
        ("--env A=`B` a", Found(notes=[NOTED.format("--env")]), 2),
        ("--env A=\ue000 a", Found(notes=[NOTED.format("--env")]), 2),
        ("--pid a", Found(notes=[NOTED.format("--pid")]), 1),
        (f"--{'x' * 50}=1 a", Found(notes=[NOTED.format(f"--{'x' * 38}")]), 1),
    ],
)
def test_options_of_a_runtime(words: str, found: Found, count: int) -> None:
    made = Found()
    assert (made.options(words.split(), "w: "), made) == (count, found)
    made = Found(binds=["/before"], env={"X": "y"})
    assert made.options(words.split(), "w: ") == count
    assert (made.binds, made.env) == (["/before", *found.binds], {"X": "y", **found.env})
    assert made.notes == found.notes


VALUED = "-H --home --pwd --cwd -W --workdir -o --overlay -S --scratch --mount --env-file --hostname --network --app"


@pytest.mark.parametrize("option", VALUED.split())
def test_an_option_with_a_value(option: str) -> None:
    made = Found()
    assert (made.options([option, "value", "a"], "w: "), made) == (2, Found(notes=[NOTED.format(option)]))


def keys(**variables: str) -> tuple[dict[str, Value], list[str]]:
    """The keys of a module that sets these, and the notes."""
    found = Found()
    for name, value in variables.items():
        found.set(name, value)
    return found.keys(), found.notes


OWN = ("SIF", "SIFTOOL", "RUNSCRIPTS", "RUNSCRIPTSX", "EBROOTX", "EBVERSIONX", "EBDEVELX", "CONTAINERROOT")
CONTROLLED = "WITH_CONDA: a value with a line break or another control character is not imported"
AS_IT_WAS = (
    "activate: WITH_CONDA, unchanged; if it activates conda or a venv, prefer `conda` or `venv`, which start no shell"
)


@pytest.mark.parametrize(
    ("variables", "made", "notes"),
    [
        ({}, {}, []),
        ({"A": "b", "C": ""}, {"host_env": {"A": "b", "C": ""}}, []),
        ({"SINGULARITYENV_A": "b", "APPTAINERENV_C": ""}, {"env": {"A": "b", "C": ""}}, []),
        ({"A B": "c"}, {}, ["variable 'A B' is not imported: its name is invalid or too long"]),
        ({"1A": "c"}, {}, ["variable '1A' is not imported: its name is invalid or too long"]),
        ({"-" * 70: ""}, {}, [f"variable '{'-' * 60}' is not imported: its name is invalid or too long"]),
        ({"A" * 256: ""}, {}, [f"variable '{'A' * 60}' is not imported: its name is invalid or too long"]),
        (
            {"SINGULARITYENV_A": "$B", "APPTAINERENV_C": "`d`"},
            {},
            [
                "variable A: '$B' is evaluated inside, and is not imported",
                "variable C: '`d`' is evaluated inside, and is not imported",
            ],
        ),
        ({"A": "$B"}, {"host_env": {"A": "$B"}}, []),
        (dict.fromkeys(OWN, "x"), {}, []),
        ({"SIFTER_x": "y", "CONTAINERROOTX": "z"}, {"host_env": {"SIFTER_x": "y", "CONTAINERROOTX": "z"}}, []),
        # binds: sifmod's own are left out
        (
            {
                "SINGULARITY_BIND": "/a,/b:/c:ro,/a,x,/r:/runscripts",
                "APPTAINER_BINDPATH": "/a:/a",
                "SINGULARITY_BINDX": "/d",
            },
            {
                "host_env": {"SINGULARITY_BINDX": "/d"},
                "binds": (
                    {"source": "/a", "optional": True},
                    {"source": "/b", "target": "/c", "options": "ro", "optional": True},
                    {"source": "/a", "optional": True},
                ),
            },
            [f"the bind path 'x' {NOT_A_BIND}", OPTIONAL],
        ),
        ({"SINGULARITY_BIND": "/x/user-software:/user-software"}, {"user_software": True}, []),
        # directories in front of PATH
        (
            {"SINGULARITYENV_PREPEND_PATH": "/a:b::/c:/a:/runscripts:/$D:/`e`", "APPTAINERENV_PATH": "/f"},
            {"path+": ("/a", "/c", "/f")},
            [
                f"PATH inside: skipped {one!r}, which is not absolute, or needs a shell"
                for one in ("b", "", "/$D", "/`e`")
            ],
        ),
        # activation
        ({"WITH_CONDA": " source /o/c/bin/activate a_b-1.0 "}, {"conda": {"prefix": "/o/c", "env": "a_b-1.0"}}, []),
        ({"SINGULARITYENV_WITH_CONDA": ". /c/bin/activate e"}, {"conda": {"prefix": "/c", "env": "e"}}, []),
        ({"APPTAINERENV_WITH_CONDA": "source /c/bin/activate"}, {"activate": "source /c/bin/activate"}, [AS_IT_WAS]),
        ({"WITH_CONDA": "conda activate x"}, {"activate": "conda activate x"}, [AS_IT_WAS]),
        ({"WITH_CONDA": "a\nb"}, {}, [CONTROLLED]),
        ({"WITH_CONDA": " true "}, {}, []),
        ({"WITH_CONDA": ":"}, {}, []),
        ({"WITH_CONDA": " "}, {}, []),
    ],
)  # fmt: skip
def test_variables_become_keys(variables: dict[str, str], made: dict[str, Value], notes: list[str]) -> None:
    assert keys(**variables) == (made, notes)


@pytest.mark.parametrize(
    ("name", "value", "gpus"),
    [
        ("SINGULARITY_NV", "1", {"cuda"}),
        ("APPTAINER_NVCCLI", "true", {"cuda"}),
        ("SINGULARITY_ROCM", "yes", {"rocm"}),
        *(("SINGULARITY_NV", off, set()) for off in ("", "0", "false", "False", "no")),
    ],
)
def test_flags_of_the_runtime(name: str, value: str, gpus: set[str]) -> None:
    found = Found(gpus={"before"})
    found.set(name, value)
    assert (found.gpus, found.keys(), found.notes) == (gpus | {"before"}, {}, [])


def conda(env: str, executable: str, prefix: str, path: str) -> tuple[object, ...]:
    made, _ = keys(
        SINGULARITYENV_CONDA_DEFAULT_ENV=env,
        SINGULARITYENV_CONDA_EXE=executable,
        SINGULARITYENV_CONDA_PREFIX=prefix,
        SINGULARITYENV_PREPEND_PATH=path,
        SINGULARITYENV_A="b",
    )
    return made.get("conda"), made.get("path+"), made["env"]


def test_the_variables_of_an_activation() -> None:
    """Where they say just what one does they become `conda`, its directories go from PATH; else they stay."""
    path = "/o/c/envs/e/bin:/mine:/o/c/condabin"
    for made in (
        conda("e", "/o/c/bin/conda", "/o/c/envs/e", path),
        conda("base", "/o/c/bin/conda", "/o/c", "/o/c/bin:/mine:/o/c/condabin"),
    ):
        assert made[1:] == (("/mine",), {"A": "b"})
    assert conda("e", "/o/c/bin/conda", "/o/c/envs/e", path)[0] == {"prefix": "/o/c", "env": "e"}
    assert conda("base", "/o/c/bin/conda", "/o/c", path)[0] == {"prefix": "/o/c", "env": "base"}
    for wrong in (
        ("", "/o/c/bin/conda", "/o/c/envs/"),
        ("e", "/o/c/bin/mamba", "/o/c/bin/mamba/envs/e"),
        ("e", "/o/c/bin/conda", "/o/c"),
        ("base", "/o/c/bin/conda", "/o/c/envs/base"),
    ):
        found = conda(*wrong, path)
        assert found[:2] == (None, tuple(path.split(":")))
        assert found[2] == dict(zip(("CONDA_DEFAULT_ENV", "CONDA_EXE", "CONDA_PREFIX"), wrong, strict=True)) | {
            "A": "b"
        }


def test_an_activation_by_variables_wins_over_the_command() -> None:
    made, notes = keys(
        SINGULARITYENV_CONDA_DEFAULT_ENV="e",
        SINGULARITYENV_CONDA_EXE="/c/bin/conda",
        SINGULARITYENV_CONDA_PREFIX="/c/envs/e",
        WITH_CONDA="other",
    )
    assert (made, notes) == ({"conda": {"prefix": "/c", "env": "e"}}, [])


def test_a_bind_as_an_item() -> None:
    assert optional("/a") == {"source": "/a", "optional": True}
    assert optional("/a:/a:ro") == {"source": "/a", "options": "ro", "optional": True}
    assert optional("/a:/b") == {"source": "/a", "target": "/b", "optional": True}


def test_a_budget_is_spent_to_the_last() -> None:
    budget = Budget()
    for _ in range(MAX_STEPS):
        budget.step()
    with pytest.raises(CannotImportError, match="takes more than 200000 steps to evaluate"):
        budget.step()
    for _ in range(MAX_LETTERS // MAX_TEXT):
        budget.letters(MAX_TEXT)
    with pytest.raises(CannotImportError, match="too long"):
        budget.letters(1)
    with pytest.raises(CannotImportError, match="too long"):
        Budget().letters(MAX_TEXT + 1)


def test_levels_are_given_back() -> None:
    budget = Budget()

    def deeper(levels: int) -> None:
        if levels:
            with budget.level():
                deeper(levels - 1)

    for _ in range(3):
        deeper(MAX_DEPTH)
        with pytest.raises(ZeroDivisionError), budget.level():
            _ = 1 / 0
    with pytest.raises(CannotImportError, match="nested more than 80 deep"):
        deeper(MAX_DEPTH + 1)


def test_a_file_is_read_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"\xef\xbb\xbf" + b"a" * (MAX_BYTES - 3))
    assert read_text(path) == "a" * (MAX_BYTES - 3)
    path.write_bytes(b"a" * (MAX_BYTES + 1))
    reasons = {path: "is larger than 1 MiB", tmp_path: "is not a regular file"}
    reasons |= {
        tmp_path / "none": "cannot be read: no such file or directory",
        tmp_path / "\0": "cannot be read: embedded null byte",
    }
    (tmp_path / "binary").write_bytes(b"\xff")
    reasons[tmp_path / "binary"] = "is not UTF-8 text"
    for place, reason in reasons.items():
        with pytest.raises(CannotImportError) as caught:
            read_text(place)
        assert caught.value.message == reason
