"""OpenAI's HTTP interface on any engine: routes, keys, limits, errors, access log."""
