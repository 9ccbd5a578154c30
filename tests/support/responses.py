"""Answers as requests gives them, made without a server."""

import io
from collections.abc import Mapping

import requests
import urllib3


def answered(
    status: int, headers: Mapping[str, str] | None = None, body: bytes = b"", url: str = "https://host:5000/x?signed"
) -> requests.Response:
    """One whose body has not been read yet; its reason has a control character in it."""
    response = requests.Response()
    response.status_code, response.url, response.reason = status, url, "In\x1bdeed"
    response.request = requests.Request("GET", url).prepare()
    response.headers.update(headers or {})
    response.raw = urllib3.HTTPResponse(io.BytesIO(body), headers=headers, status=status, preload_content=False)
    return response
