"""Training with prefill in its bubbles, measured and simulated: files read, figures, page."""

from geotrain.reports.live.figures import Blocks, Live, Side, simulated
from geotrain.reports.live.files import prefilled, trained
from geotrain.reports.live.page import live_html, live_table

__all__ = [
    "Blocks",
    "Live",
    "Side",
    "live_html",
    "live_table",
    "prefilled",
    "simulated",
    "trained",
]
