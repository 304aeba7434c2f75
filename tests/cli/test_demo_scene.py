"""What `geotrain demo live` simulates is what it serves."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from geotrain.cli._demo_scene import made_model, made_scene
from geotrain.errors import InputError
from geotrain.prefill.settings import Settings
from geotrain.serving import site as sites
from tests.serving import live


def test_the_settings_are_those_of_serve(geotrain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    asked: list[Settings] = []

    def site(plan: object, model: object, settings: Settings, **where: Any) -> None:
        asked.append(settings)
        raise InputError("that was all")

    monkeypatch.setattr(sites, "site", site)
    plan, config = live.small_plan(), made_model(tmp_path / "tiny")
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump(plan.dump()))
    scene = made_scene(plan, config)
    slo = f"{scene.settings.slo_s} s"
    answer = geotrain("serve", str(tmp_path / "plan.yaml"), "--model", str(tmp_path / "tiny"), "--slo", slo)
    assert answer.err.endswith("that was all\n") and asked == [scene.settings]
