"""Which verb prints what, and the JSON Schema of it."""

from typing import Any

from pydantic import TypeAdapter

from sifmod.actions.hooks import FetchHook, InstallHook, RetireHook
from sifmod.cli.outputs import easyconfig, installed, stack, tree, use, words

# what each verb prints where it succeeds; where it fails as a whole, an Error
OUTPUTS: dict[str, Any] = {
    "install": (
        list[installed.InstallDone | installed.EasyconfigError]
        | list[installed.DryRun | installed.EasyconfigError]
        | list[installed.FetchedFor | installed.EasyconfigError]
        | list[installed.Reapplied | installed.ReappliedError]
    ),
    "fetch": installed.Fetched | list[installed.FetchedOfSeveral | installed.NotFetchedError],
    "push": installed.PushedImage,
    "export": installed.ExportedImage,
    "new": easyconfig.Drafted,
    "import": list[easyconfig.Imported | easyconfig.NotImportedError],
    "jobscript": use.JobScript,
    "list": list[installed.Listed],
    "show": installed.Installed | easyconfig.ShownEasyconfig | list[easyconfig.OriginOfKey] | installed.ShownImage,
    "search": list[easyconfig.Found],
    "stack catalogue": stack.Catalogue,
    "add": use.LayerData,
    "remove": use.LayerData | list[use.LayerData],
    "layers": list[use.LayerData],
    "sync": use.LayerData,
    "stack plan": stack.Applied,
    "stack apply": stack.Applied,
    "stack init": stack.StackFile,
    "stack outdated": stack.Outdated,
    "stack lock": stack.Locked,
    "stack bundle": stack.Bundled,
    "lock": stack.Locked | list[stack.Locked],
    "jupyter": use.KernelData | use.LabData,
    "verify": list[tree.Verified] | list[tree.Signed | tree.SignatureError] | list[tree.Modes],
    "sbom": use.SbomData,
    "diff": use.DiffData,
    "test": use.TestData,
    "uninstall": tree.Uninstalled,
    "rollback": installed.Installed,
    "default": list[installed.Decided],
    "hide": list[installed.Decided],
    "deprecate": list[installed.Decided],
    "retire": list[installed.Decided],
    "log": list[tree.Logged],
    "gc": list[tree.Collected],
    "check": list[easyconfig.Checked | easyconfig.CheckError],
    "config show": list[easyconfig.OriginOfKey],
    "site show": easyconfig.ShownSite,
    "site detect": easyconfig.DetectedSite,
    "site new": easyconfig.NewSite,
    "doctor": list[easyconfig.Diagnosis],
}


def output_schema(verb: str) -> dict[str, Any]:
    """The schema (JSON Schema 2020-12) of what a verb prints with `--json`; raises KeyError for one without."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"sifmod {verb} --json",
        **TypeAdapter(OUTPUTS[verb] | words.Error).json_schema(),
    }


def hook_schema() -> dict[str, Any]:
    """The schema of what a hook has on its standard input."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "the standard input of a hook",
        **TypeAdapter(InstallHook | FetchHook | RetireHook).json_schema(),
    }
