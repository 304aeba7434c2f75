"""HTTP requests that wait: httpx gives up after 5 s, and a busy machine may take longer."""

from functools import partial

import httpx2 as httpx

_TIMEOUT_S = 60.0

get = partial(httpx.get, timeout=_TIMEOUT_S)
post = partial(httpx.post, timeout=_TIMEOUT_S)
request = partial(httpx.request, timeout=_TIMEOUT_S)
stream = partial(httpx.stream, timeout=_TIMEOUT_S)
