"""`sifmod search --json`: the easyconfigs found, and what each can install."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from sifmod.config.find import shipped
from support.collection import FILES
from support.lumi import AS_VARIANT

NGC = "PyTorch/2.2.0-cuda-12.3-python-3.10-ngc-24.01"


def search(*arguments: str) -> tuple[int, list[dict[str, Any]]]:
    command = (sys.executable, "-m", "sifmod", "search", "--json", *arguments)
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.stderr == ""
    return result.returncode, json.loads(result.stdout)


def test_search_tells_programs_what_each_file_offers() -> None:
    assert search("--site", "generic", "^PyTorch-2.2.0$") == (
        0,
        [
            {
                "path": str(shipped() / "PyTorch/PyTorch-2.2.0.yaml"),
                "variants": [
                    {"variant": "rocm", "module": AS_VARIANT, "accelerator": "rocm"},
                    {
                        "variant": "cuda",
                        "module": "PyTorch/2.2.0-cuda-12.3-python-3.10-ngc-24.01",
                        "accelerator": "cuda",
                    },
                    {"variant": "cpu", "module": "PyTorch/2.2.0-cpu", "accelerator": "none"},
                ],
            }
        ],
    )
    only = {"variant": None, "module": "rocm/6.2.2-singularity-20241007", "accelerator": "rocm"}
    assert [each["variants"] for each in search("rocm-6.2.2")[1]] == [[only]]
    code, everything = search()
    assert (code, [each["path"] for each in everything]) == (0, [str(path) for path in FILES])
    assert all(set(each) == {"path", "variants"} and each["variants"] for each in everything)
    assert search("nothing-of-that-name") == (1, [])


def test_search_tells_of_a_file_that_cannot_be_used(tmp_path: Path) -> None:
    path = tmp_path / "Bad-1.yaml"
    path.write_text("name: Bad\nversion: 1\n")
    code, (found,) = search("--robot-paths", str(tmp_path), "bad")
    assert (code, found["path"], found["variants"]) == (0, str(path), [])
    places = [(one["file"], one["line"], one["column"], one["key"]) for one in found["problems"]]
    assert (str(path), 2, 10, "version") in places
