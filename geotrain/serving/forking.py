"""Loaded by nobody but the process that those of a service are forked from, which is deaf to SIGTERM and Ctrl-C.

They may go to all processes at once: to a group, or to what systemd calls a control group. They are for serve, which
lets requests under way finish; those who work on them end when serve hangs up.
"""

import signal

signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)

import geotrain.serving.process  # noqa: E402, F401 -- once for all of them
