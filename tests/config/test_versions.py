"""Ranges of versions, and what a quirk says and does by itself."""

from pathlib import Path

import pytest

from sifmod.config.origin import Origin
from sifmod.config.quirk import Quirk, read_quirk, read_quirks
from sifmod.config.version import is_range, within
from sifmod.errors import ConfigError
from support.config import Configuration, lines, write

HEAD = "description: d\nreason: r\nlink: l\nmatch: {name: App}\n"
IN_ORDER = ("1.0a1", "1.0b", "1.0rc1", "1.0", "1.0.1", "1.2", "1.10", "2", "10", "9" * 5000, "1" + "0" * 5000)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *(
            ("1", True),
            ("v1.2", True),
            ("V1", True),
            (">=1", True),
            ("<= 1.0-rc_1+x", True),
            ("!=1", True),
            ("==1", True),
        ),
        *(("", False), (">", False), ("=1", False), (">>1", False), (">=1 <2", False), ("v", False), ("vv1", False)),
        *(("1.x", False), ("1.X.2", False), ("1.2x", True), ("<.1", False), ("a1", False), ("~1", False)),
    ],
)
def test_what_is_a_range(text: str, expected: bool) -> None:
    assert is_range(text) is expected


def test_versions_are_compared_by_their_parts() -> None:
    for i, one in enumerate(IN_ORDER):
        for j, other in enumerate(IN_ORDER):
            told = [within(one, (f"{sign}{other}",)) for sign in (">", ">=", "==", "", "!=", "<=", "<")]
            assert told == [i > j, i >= j, i == j, i == j, i != j, i <= j, i < j], (one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [("1.0", "1"), ("1.0.0", "1.0"), ("1.0+cu1", "1+rocm"), ("1.0RC1", "1.0rc1"), ("1-2", "1.2"), ("01", "1")],
)
def test_two_spellings_of_one_version(one: str, other: str) -> None:
    assert within(one, (f"=={other}",))
    assert not within(one, (f">{other}",))


def test_a_version_is_in_every_range_and_in_no_unreadable_one() -> None:
    assert within("1.5", ())
    assert within("1.5", (">=1", "<2"))
    assert not within("1.5", (">=1", "<1.5"))
    assert not within("1.5", ("=>1",))


def quirk(tmp_path: Path, text: str) -> Quirk:
    return read_quirk(write(tmp_path / "q.yaml", f"{HEAD}{text}"))[0]


def refused(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read_quirk(write(tmp_path / "q.yaml", text))
    return lines(caught.value)


def test_a_quirk_says_what_it_does(tmp_path: Path) -> None:
    made = quirk(tmp_path, "env: {A: null, B: '1'}\nhost_env: {A: '2', C: '3'}\nrunscript_env: {B: null}\n")
    assert str(made) == "q: d (B=1, A=2, C=3, no A, no B)"
    assert (made.unset("env"), made.unset("host_env"), made.unset("runscript_env")) == (("A",), (), ("A", "B"))
    assert made.origins == (
        Origin("quirks.q", "d", str(tmp_path / "q.yaml")),
        Origin("env.A", "(unset)", f"{tmp_path}/q.yaml:5"),
        Origin("runscript_env.A", "(unset)", f"{tmp_path}/q.yaml:5"),
        Origin("runscript_env.B", "(unset)", f"{tmp_path}/q.yaml:7"),
    )


def test_what_a_quirk_sets_inside_is_its_only_layer(tmp_path: Path) -> None:
    assert list(quirk(tmp_path, "env: {A: '1'}\nhost_env: {}\n").layer.entries) == ["env"]
    assert list(quirk(tmp_path, "runscript_env: {A: null}\n").layer.entries) == ["runscript_env"]
    assert quirk(tmp_path, "host_env: {A: null}\n").unset("env") == ()
    assert quirk(tmp_path, "env: {}\n").layer.entries == {}


@pytest.mark.parametrize(
    ("match", "problem"),
    [
        ("{}", "4:8: match: expected one of name, versions, image and site"),
        ("{versions: 2.7}", "4:19: match.versions[0]: expected text, got the number 2.7; write '2.7'"),
        ("{image: 'sha256:A'}", "4:16: match.image: expected sha256: and 64 lower-case hexadecimal digits, got "
         "'sha256:A'"),
        ("{name: a b}", "4:15: match.name: 'a b' cannot be used: use letters, digits and . _ + -, starting with a "
                        "letter or digit, without '..'"),
        ("{site: ['']}", "4:16: match.site[0]: '' cannot be used: use letters, digits and . _ + -, starting with a "
                         "letter or digit, without '..'"),
    ],
)  # fmt: skip
def test_a_match_that_cannot_be(tmp_path: Path, match: str, problem: str) -> None:
    found = refused(tmp_path, f"description: d\nreason: r\nlink: l\nmatch: {match}\nenv: {{A: '1'}}\n")
    assert found == [f"q.yaml:{problem}"]


@pytest.mark.parametrize("key", ["description", "reason", "link"])
def test_a_quirk_says_what_it_is_why_and_where_that_is_told(tmp_path: Path, key: str) -> None:
    text = f"{HEAD}env: {{A: '1'}}\n"
    letter = key[0]
    assert refused(tmp_path, text.replace(f"{key}: {letter}\n", "")) == [f"q.yaml:1:1: {key}: is missing"]
    (found,) = refused(tmp_path, text.replace(f"{key}: {letter}\n", f"{key}: ''\n"))
    assert found.endswith(f"{key}: is empty")


def test_what_is_wrong_twice_is_told_once_and_in_order(tmp_path: Path) -> None:
    assert refused(tmp_path, f"{HEAD}env: {{A: [1]}}\nenvs: {{}}\nlink: x\n") == [
        "q.yaml:5:10: env.A: expected text, got a list",
        "q.yaml:6:1: envs: unknown key; did you mean env?",
        "q.yaml:7:1: link: duplicate key, first given in line 3",
    ]


def test_quirks_come_by_name_and_a_later_directory_hides_an_earlier_one(tmp_path: Path) -> None:
    for name in "hgfedcba":
        write(tmp_path / "one" / f"{name}.yaml", f"{HEAD}env: {{A: '1'}}\n")
    write(tmp_path / "two" / "c.yaml", f"{HEAD}env: {{A: '2'}}\n")
    directories = (tmp_path / "one", tmp_path / "none", tmp_path / "two")
    quirks, inputs = read_quirks(directories, {})
    assert [each.name for each in quirks] == list("abcdefgh")
    assert [each.path.parent.name for each in quirks] == ["one", "one", "two", *["one"] * 5]
    assert [each.path for each in inputs] == [
        f"{tmp_path}/one/",
        *(f"{tmp_path}/one/{name}.yaml" for name in "abcdefgh"),
        f"{tmp_path}/none/",
        f"{tmp_path}/two/",
        f"{tmp_path}/two/c.yaml",
    ]


DIGEST = "a" * 64
EASYCONFIG = f"name: App\nversion: '1.5'\nimage: {{sources: ['docker://r/a@sha256:{DIGEST}'], filename: App-1.sif}}\n"


@pytest.mark.parametrize(
    ("match", "applies"),
    [
        (f"image: 'sha256:{DIGEST}'", True),
        ("image: App-?.sif", True),
        ("image: app-?.sif", False),
        ("image: App", False),
        (f"image: [b.sif, 'sha256:{DIGEST}']", True),
        ("site: generic", True),
        ("site: other", False),
        ("versions: ['>=1', '<2']", True),
        ("versions: '<1.5'", False),
        ("name: App, site: other", False),
        ("name: Other, site: generic", False),
    ],
)
def test_which_easyconfigs_a_quirk_is_for(tmp_path: Path, match: str, applies: bool) -> None:
    configuration = Configuration(tmp_path)
    text = HEAD.replace("name: App", match)
    write(tmp_path / "etc" / "quirks" / "q.yaml", f"{text}env: {{A: '1'}}\n")
    loaded = configuration.load(write(tmp_path / "App-1.yaml", EASYCONFIG))
    assert bool(loaded.quirks) == applies
    assert ("A" in dict(loaded.easyconfig.env)) == applies
