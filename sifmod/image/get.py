"""A Get: opens one resource over HTTP, whatever server, login and protocol are behind it."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager

import requests

Get = Callable[[Mapping[str, str]], AbstractContextManager[requests.Response]]
"""Opens one resource, with these headers besides: 200, 206 or 416, its body not read yet.

Authenticated, redirects followed. Raises TransientError where another try may help, FetchError where it will not; so
does reading the body inside the `with`. May be called by several threads at once.
"""
