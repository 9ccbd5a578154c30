"""Which verb prints what, and the JSON Schema of it."""

from typing import Any

from pydantic import TypeAdapter

from sifmod.cli.outputs.catalogue import Catalogue
from sifmod.cli.outputs.easyconfig import (
    Checked,
    CheckError,
    Drafted,
    Found,
    Imported,
    NotImportedError,
    ShownEasyconfig,
)
from sifmod.cli.outputs.error import Error
from sifmod.cli.outputs.image import Fetched, FetchedOfSeveral, NotFetchedError, PushedImage, ShownImage
from sifmod.cli.outputs.installed import (
    DryRun,
    EasyconfigError,
    FetchedFor,
    InstallDone,
    Installed,
    Listed,
    Reapplied,
    ReappliedError,
)
from sifmod.cli.outputs.job import JobScript
from sifmod.cli.outputs.jupyter import KernelData, LabData
from sifmod.cli.outputs.layers import LayerData
from sifmod.cli.outputs.life import Decided
from sifmod.cli.outputs.machine import DetectedSite, Diagnosis, NewSite, OriginOfKey, ShownSite
from sifmod.cli.outputs.provenance import DiffData, SbomData
from sifmod.cli.outputs.stack import Applied, Bundled, Locked, Outdated, StackFile
from sifmod.cli.outputs.test import TestData
from sifmod.cli.outputs.tree import Collected, Logged, Modes, SignatureError, Signed, Uninstalled, Verified

# what each verb prints where it succeeds; where it fails as a whole, an Error
OUTPUTS: dict[str, Any] = {
    "install": (
        list[InstallDone | EasyconfigError]
        | list[DryRun | EasyconfigError]
        | list[FetchedFor | EasyconfigError]
        | list[Reapplied | ReappliedError]
    ),
    "fetch": Fetched | list[FetchedOfSeveral | NotFetchedError],
    "push": PushedImage,
    "new": Drafted,
    "import": list[Imported | NotImportedError],
    "jobscript": JobScript,
    "list": list[Listed],
    "show": Installed | ShownEasyconfig | list[OriginOfKey] | ShownImage,
    "search": list[Found],
    "stack catalogue": Catalogue,
    "add": LayerData,
    "remove": LayerData | list[LayerData],
    "layers": list[LayerData],
    "sync": LayerData,
    "stack plan": Applied,
    "stack apply": Applied,
    "stack init": StackFile,
    "stack outdated": Outdated,
    "stack lock": Locked,
    "stack bundle": Bundled,
    "lock": Locked | list[Locked],
    "jupyter": KernelData | LabData,
    "verify": list[Verified] | list[Signed | SignatureError] | list[Modes],
    "sbom": SbomData,
    "diff": DiffData,
    "test": TestData,
    "uninstall": Uninstalled,
    "rollback": Installed,
    "default": list[Decided],
    "hide": list[Decided],
    "deprecate": list[Decided],
    "retire": list[Decided],
    "log": list[Logged],
    "gc": list[Collected],
    "check": list[Checked | CheckError],
    "config show": list[OriginOfKey],
    "site show": ShownSite,
    "site detect": DetectedSite,
    "site new": NewSite,
    "doctor": list[Diagnosis],
}


def output_schema(verb: str) -> dict[str, Any]:
    """The schema (JSON Schema 2020-12) of what a verb prints with `--json`; raises KeyError for one without."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"sifmod {verb} --json",
        **TypeAdapter(OUTPUTS[verb] | Error).json_schema(),
    }
