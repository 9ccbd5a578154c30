"""Labels, definition and the text behind `inspect`: what an image says about itself and where it came from."""

import json
import re
import time
from collections.abc import Mapping, Sequence

from sifmod.image.convert.metadata.quoted import unicode_text

_SCHEMA = "org.label-schema."
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_BUILD_DATE = f"{_SCHEMA}build-date"


def definition(bootstrap: str, source: str) -> str:
    """A definition file that would build the image again: `bootstrap` is docker, oci…, `source` names it by digest."""
    return f"bootstrap: {_line(bootstrap)}\nfrom: {_line(source)}\n\n"


def make_labels(
    labels: Sequence[tuple[str, str]], arch: str, created: int | None, origin: tuple[str, str]
) -> dict[str, str]:
    """The labels of the SIF, sorted: the image's own, and those that Apptainer's conversion adds.

    They depend on the image alone: the build date is its creation time, unless it has a label about that itself, and no
    version of a tool is there. `origin` is bootstrap and source of the definition.
    """
    made = {unicode_text(name): unicode_text(value) for name, value in labels}
    if created is not None:
        made.setdefault(_BUILD_DATE, _date(created))
    made[f"{_SCHEMA}schema-version"] = "1.0"
    made[f"{_SCHEMA}build-arch"] = arch
    made[f"{_SCHEMA}usage.singularity.deffile.bootstrap"] = _line(origin[0])
    made[f"{_SCHEMA}usage.singularity.deffile.from"] = _line(origin[1])
    return dict(sorted(made.items()))


def labels_text(labels: Mapping[str, str]) -> bytes:
    """`labels` as a JSON file."""
    return json.dumps(labels, ensure_ascii=False, indent="\t").encode()


def inspect_text(labels: Mapping[str, str], deffile: str, scripts: Mapping[str, str]) -> bytes:
    """The JSON that `inspect` shows without starting the image.

    `scripts` are runscript, startscript, and the environment's by their full path. The runtimes cut the line ends off.
    """
    attributes = {
        "environment": {path: text.rstrip("\n") for path, text in sorted(scripts.items()) if path.startswith("/")},
        "labels": dict(labels),
        "runscript": scripts["runscript"].rstrip("\n"),
        "deffile": deffile.rstrip("\n"),
        "startscript": scripts["startscript"].rstrip("\n"),
    }
    whole = {"data": {"attributes": attributes}, "type": "container"}
    return json.dumps(whole, ensure_ascii=False, separators=(",", ":")).encode()


def _date(created: int) -> str:
    """As Apptainer writes a time, in UTC: Thursday_2_January_2025_3:4:5_UTC."""
    when = time.gmtime(created)
    date = f"{_DAYS[when.tm_wday]}_{when.tm_mday}_{_MONTHS[when.tm_mon - 1]}_{when.tm_year}"
    return f"{date}_{when.tm_hour}:{when.tm_min}:{when.tm_sec}_UTC"


def _line(text: str) -> str:
    return re.sub(r"[\x00-\x1f\x7f]", "?", unicode_text(text))
