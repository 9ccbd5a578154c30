"""`sifmod search`: its lines at any width, its JSON, and what it says where nothing is found."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from sifmod.cli.main import run
from sifmod.cli.search import Row, fitted
from sifmod.config.find import shipped
from support.answer import held
from support.collection import FILES
from support.command import SIFMOD
from support.config import write
from support.lumi import AS_VARIANT
from support.terminal import shown

SOURCE = "docker://nvcr.io/nvidia/pytorch:24.01-py3"
NOTHING = "error: no module matches 'pytoch'"
NGC = "PyTorch/2.2.0-cuda-12.3-python-3.10-ngc-24.01"
WHAT = "PyTorch, a machine learning framework, in a container."
LUMI = (
    "On LUMI in /appl/local/containers/easybuild-sif-images, which the site lumi-g looks in; there is no public source."
)
ROWS = [
    Row(AS_VARIANT, WHAT, "rocm", f"not public: {LUMI}", "not public"),
    Row("PyTorch/2.4.1-cuda-12.4-cudnn-9", WHAT, "cuda", "docker.io/pytorch/pytorch:2.4.1-cuda12.4-cudnn9-runtime"),
    Row(f"App/1-{'a' * 60}-end", "It", "cpu", "x"),
]


def test_a_line_for_each_module_in_full_in_a_pipe(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["search", "pytorch", "2.2.0", "3.10"]) == 0
    assert run(["search", "pytorch 2.4.1"]) == 0
    out, err = capfd.readouterr()
    lines = [line.split("  ") for line in out.splitlines()]
    assert [AS_VARIANT, WHAT, "rocm", f"not public: {LUMI}"] in [[cell for cell in line if cell] for line in lines]
    assert "…" not in out
    assert err.endswith(
        "== for example, with a GPU for rocm (here: none): sifmod install PyTorch-2.4.1 --variant rocm\n"
    )


def test_lines_fit_the_terminal() -> None:
    assert fitted(ROWS[:2], 60)[0] == [
        "PyTorch/2.2.0…on-3.10-singularity-20240209  rocm  not public",
        "PyTorch/2.4.1-cuda-12.4-cudnn-9             cuda",
    ]
    assert fitted(ROWS[:2], 80)[0] == [
        "PyTorch/2.2.0-rocm-5.6.1-python-3.10-singularity-20240209       rocm  not public",
        "PyTorch/2.4.1-cuda-12.4-cudnn-9  PyTorch, a machine learning…   cuda",
    ]
    assert fitted(ROWS[1:2], 80)[0] == [
        "PyTorch/2.4.1-cuda-12.4-cudnn-9  PyTorch, a machine learning framework,…  cuda"
    ]
    assert fitted(ROWS[:2], 200)[0] == [
        f"{AS_VARIANT}  {WHAT}  rocm  not public: {LUMI[:65]}…",
        f"{ROWS[1].name:57}  {WHAT}  cuda  {ROWS[1].where}",
    ]
    alike = [Row(f"PyTorch/2.2.2-rocm-5.6.1{more}-singularity-20240404", WHAT, "rocm", "x") for more in ("", "-vllm")]
    assert fitted(alike, 50)[0] == [
        "PyTorch/2.2.2…-5.6.1-singularity-20240404  rocm  x",
        "PyTorch/2.2.2…1-vllm-singularity-20240404  rocm  x",
    ]
    assert fitted(ROWS[2:], 0)[0] == [f"{ROWS[2].name}  It  cpu  x"]


@pytest.mark.parametrize("width", [40, *range(60, 260, 20)])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    for rows in (ROWS, ROWS[:1], ROWS[1:2], ROWS[2:]):
        lines, cut = fitted(rows, width)
        assert cut == any(row.name not in line for line, row in zip(lines, rows, strict=True))
        assert len(lines) == len(rows)
        for line, row in zip(lines, rows, strict=True):
            assert len(line) <= width
            assert f"  {row.accelerator}  " in f"{line}  "
            assert row.name in line or ("…" in line and len(row.name) > width - 4 - 4 - 11)


@pytest.mark.parametrize("width", [60, 80, 200])
def test_a_terminal_is_asked_for_its_width(width: int) -> None:
    out, err = shown((*SIFMOD, "search", "PyTorch/2.2.0"), width)
    assert len(out) == 6
    assert max(map(len, out)) in range(width - 10, width + 1)
    assert ("names are shortened" in err) == (width < 200)


@pytest.mark.parametrize("width", [60, 80])
def test_names_with_the_width_of_the_terminal(width: int) -> None:
    """A column of which three letters fit is not there."""
    header, *rows = shown((*SIFMOD, "search"), width)[0]
    assert header.split() == ["NAME", "NEWEST", "MODULES", "FOR", *(["WHAT"] if width == 80 else [])]
    assert max(map(len, rows)) <= width
    assert any(row.endswith("…") for row in rows) == (width == 80)


def test_json_has_the_matching_variants_of_each_file(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["search", "--json", NGC]) == 0
    captured = capfd.readouterr()
    assert (json.loads(captured.out), captured.err) == (
        [
            {
                "path": str(shipped() / "PyTorch/PyTorch-2.2.0.yaml"),
                "variants": [
                    {
                        "variant": "cuda",
                        "module": NGC,
                        "name": "PyTorch",
                        "version": "2.2.0",
                        "versionsuffix": "-cuda-12.3-python-3.10-ngc-24.01",
                        "accelerator": "cuda",
                        "description": WHAT,
                        "contents": {"torch": "2.2.0a0+81ea7a4"},
                        "sources": [SOURCE],
                        "public": True,
                        "available": None,
                    }
                ],
                "installed": [],
            }
        ],
        "",
    )
    assert run(["search", "--json", "--site", "lumi-g", AS_VARIANT]) == 0
    ((only,),) = (found["variants"] for found in json.loads(capfd.readouterr().out))
    assert (only["variant"], only["accelerator"], only["public"], only["available"]) == ("rocm", "rocm", False, LUMI)
    assert run(["search", "--json"]) == 0
    everything = json.loads(capfd.readouterr().out)
    assert sorted(each["path"] for each in everything) == [str(path) for path in FILES]
    assert all(set(each) == {"path", "variants", "installed"} and each["variants"] for each in everything)


def test_nothing_found(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["search", "pytoch"]) == 1
    assert capfd.readouterr() == ("", f"{NOTHING}\n\nhint: did you mean PyTorch or torch?\n")
    assert run(["search", "--json", "pytoch"]) == 1
    out, err = capfd.readouterr()
    assert (held("search", out)["hint"], err.splitlines()[0]) == ("did you mean PyTorch or torch?", NOTHING)


def test_easyconfigs_of_a_site_are_read_as_they_are(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    site = tmp_path / "site"
    write(site / "Mine-1.yaml", "name: Mine\nversion: '1'\naccelerator: cuda\nimage: {sources: [x.sif]}\n")
    bad = write(site / "Mine-2.yaml", "name: Mine\nversion: 2\n")
    assert run(["search", "--robot-paths", str(site), "mine"]) == 0
    assert capfd.readouterr() == (
        f"Mine/1                  cuda  not public: x.sif\nMine-2  cannot be used  ?     sifmod check {bad}\n",
        f"== for example, with a GPU for cuda (here: none): sifmod install Mine-1 --robot-paths {site}\n",
    )
    assert run(["search", "--robot-paths", str(site), "--json", "mine 2"]) == 0
    (found,) = json.loads(capfd.readouterr().out)
    assert (found["path"], found["variants"]) == (str(bad), [])
    assert [(one["file"], one["line"], one["column"], one["key"]) for one in found["problems"]] == [
        (str(bad), 2, 10, "version")
    ]
    bad.write_text("name: Mine\nversion: '2'\nimage: {sources: ['gopher://x']}\n")  # which check refuses
    assert run(["search", "--robot-paths", str(site), "--json", "mine 2"]) == 0
    (found,) = json.loads(capfd.readouterr().out)
    assert (found["variants"], found["problems"][0]["key"]) == ([], "image.sources[0]")


@pytest.mark.parametrize("version", ["2", "2.0", "2.0.0"])
def test_zeros_at_the_end_of_a_version_make_no_other_one(
    version: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    easyconfig = "name: Mine\nversion: '{}'\naccelerator: none\nimage: {{sources: [x.sif]}}\n"
    for each in ("2.0", "20", "2.0.1" if version == "2.0.0" else "3"):
        write(tmp_path / f"Mine-{each}.yaml", easyconfig.format(each))
    assert run(["search", "--robot-paths", str(tmp_path), "--json", f"mine {version}"]) == 0
    assert [Path(found["path"]).stem for found in json.loads(capfd.readouterr().out)] == ["Mine-2.0"]


def test_an_accelerator_is_one_word_more(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["search", "--accelerator", "none", "pytorch"]) == 0
    assert [line.split()[0] for line in capfd.readouterr().out.splitlines()] == [
        "PyTorch/2.2.0-cpu",
        "PyTorch/2.13.0-cpu",
    ]


BOTH = """\
name: Both
version: '{version}'
image: {{sources: ['docker://registry.example/both:{version}']}}
variants: {{{variants}}}
"""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "for example: sifmod install Both-1 "),  # an older one that runs here
        (("--accelerator", "rocm"), "for example: sifmod install Both-2 "),
        (("--accelerator", "cuda"), "for example: sifmod install Both-2 --variant cuda "),  # alone among what is found
        (("both", "2"), "for example, with a GPU for cuda (here: none): sifmod install Both-2 --variant cuda "),
        (("--site", "generic-rocm"), "for example: sifmod install Both-2 --site generic-rocm "),
    ],
)
def test_the_example_runs_on_this_machine(
    words: tuple[str, ...], said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "Both-1.yaml", BOTH.format(version=1, variants="cpu: {}, rocm: {versionsuffix: -r}"))
    write(tmp_path / "Both-2.yaml", BOTH.format(version=2, variants="cuda: {}, rocm: {versionsuffix: -r}"))
    words = words if "both" in words else ("both", *words)
    assert run(["search", "--robot-paths", str(tmp_path), *words]) == 0
    line = capfd.readouterr().err.splitlines()[-1]
    assert f"{line} ".startswith(f"== {said}")
    command = line.rpartition(": ")[2].split()
    assert run([*command[1:], "-D"]) == 0, "what it says can be typed"


def test_text_of_others_does_not_steer_the_terminal(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    text = 'name: Odd\nversion: "1"\naccelerator: none\ndescription: "a\u202eb"\nimage: {sources: [x.sif]}\n'
    write(tmp_path / "Odd-1.yaml", text)
    write(tmp_path / "Odd\n\u061c-2.yaml", "name: Odd\n")
    assert run(["search", "--robot-paths", str(tmp_path), "odd"]) == 0
    out, err = capfd.readouterr()
    assert out.splitlines()[0].split("  ")[-2:] == ["none", "not public: x.sif"]
    assert [line.split()[0] for line in out.splitlines()] == ["Odd/1", "Odd\\n\\u061c-2"]
    assert "a\\u202eb" in out
    assert "names are shortened" not in err
    assert run(["search", "\x1b[2J"]) == 1
    assert "\x1b" not in capfd.readouterr().err


def test_settings_that_are_wrong_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["search", "--site", "lumi"]) == 2
    assert "there is no site 'lumi'" in capfd.readouterr().err
    monkeypatch.setenv("SIFMOD_ROBOTPATHS", "/x")
    assert run(["search"]) == 2
    assert "SIFMOD_ROBOT_PATHS" in capfd.readouterr().err
    monkeypatch.delenv("SIFMOD_ROBOTPATHS")
    write(tmp_path / "etc-sifmod.d/site.yaml", "robot_paths: [x]\n")
    assert run(["search"]) == 5
    assert "robot_paths" in capfd.readouterr().err


def test_what_ships_is_found_without_a_parser() -> None:
    code = "import sys; from sifmod.cli.main import run; run(['search', 'pytorch', '2.4']); run(['search', 'pytoch'])"
    heavy = "print(sorted({'yaml', 'pydantic', 'requests', 'rich'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", f"{code}; {heavy}"], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("\n[]\n")


def test_without_a_word_a_line_for_each_name(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["search"]) == 0
    out, err = capfd.readouterr()
    header, *rows = out.splitlines()
    assert header.split() == ["NAME", "NEWEST", "MODULES", "FOR", "WHAT"]
    names = [row.split()[0] for row in rows]
    assert names == sorted(set(names), key=str.casefold)
    (row,) = (row for row in rows if row.startswith("PyTorch "))
    assert run(["search", "--json", "PyTorch/*"]) == 0
    modules = [each["module"] for found in json.loads(capfd.readouterr().out) for each in found["variants"]]
    assert row.split()[2] == str(len(modules))
    assert "cuda, none, rocm" in row
    assert "`sifmod search NAME`" in err
