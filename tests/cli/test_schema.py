import json
from pathlib import Path

import pytest
import yaml

from geotrain.cluster import GPUS
from geotrain.workload import MODELS


@pytest.fixture
def schemas(geotrain, tmp_path: Path):
    written = geotrain("schema", tmp_path, "--json").json["files"]
    return {Path(path).name.removesuffix(".schema.json"): json.loads(Path(path).read_text()) for path in written}


def properties(schemas, name: str):
    return schemas["plan"]["$defs"][name]["properties"]


def test_there_is_a_schema_for_each_file(schemas):
    assert {name: schema["title"] for name, schema in schemas.items()} == {
        "cluster": "Cluster",
        "job": "Job",
        "plan": "Plan",
    }


def test_a_schema_knows_every_field_of_the_example(schemas, example: Path):
    for name, schema in schemas.items():
        fields = yaml.safe_load((example / f"{name}.yaml").read_text())
        assert fields.keys() <= schema["properties"].keys()
        assert set(schema["required"]) <= fields.keys()
        assert schema["additionalProperties"] is False


def test_fields_carry_the_names_people_write_and_what_they_mean(schemas):
    assert list(properties(schemas, "LinkOverride")) == [
        *("rtt", "pair_cap", "tcp_window", "capacity", "price_per_gb", "loss"),
        *("between", "from", "to"),
    ]
    assert properties(schemas, "Fabric")["latency"] == {
        "anyOf": [{"type": "number", "minimum": 0}, {"type": "string"}],
        "default": 0.0,
        "description": "One way, between two nodes.",
        "examples": ["40 ms"],
        "title": "Latency",
    }


def test_editors_complete_catalog_names_and_whole_mappings(schemas):
    assert properties(schemas, "Datacenter")["gpu"]["anyOf"] == [
        {"enum": list(GPUS), "type": "string"},
        {"$ref": "#/$defs/_ChangedGpu"},
        {"$ref": "#/$defs/Gpu"},
    ]
    assert properties(schemas, "Job")["model"]["anyOf"] == [
        {"enum": list(MODELS), "type": "string"},
        {"$ref": "#/$defs/Model"},
    ]
    assert "required" not in schemas["plan"]["$defs"]["Model"]


def test_a_plan_names_its_cluster_or_holds_it(schemas):
    assert schemas["plan"]["properties"]["cluster"]["anyOf"] == [{"type": "string"}, {"$ref": "#/$defs/Cluster"}]


def test_the_command_says_what_it_wrote(geotrain, tmp_path: Path):
    names = ("cluster", "job", "plan")
    assert geotrain("schema", tmp_path).out.splitlines() == [f"wrote {tmp_path / f'{n}.schema.json'}" for n in names]
