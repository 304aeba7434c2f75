"""A connector whose files vanish between vLLM's scheduler and its worker."""

from typing import Any

from geotrain.serving.vllm import connector


class LosingConnector(connector.HandoverConnector):
    def build_connector_meta(self, scheduler_output: Any) -> connector.Loads:
        meta = super().build_connector_meta(scheduler_output)
        for load in meta.loads:
            (self._directory / load.name).unlink()
        return meta
