"""JSON schemas of the files people write, for editors."""

import json
from pathlib import Path


def schema_texts() -> dict[str, str]:
    """The schemas by file name."""
    from geotrain.cluster import Cluster
    from geotrain.files import Document
    from geotrain.plan import Plan
    from geotrain.workload import Job

    documents: dict[str, type[Document]] = {"cluster": Cluster, "job": Job, "plan": Plan}
    return {
        f"{name}.schema.json": json.dumps(document.model_json_schema(), indent=2, ensure_ascii=False) + "\n"
        for name, document in documents.items()
    }


def write_schemas(directory: Path) -> list[Path]:
    """Write the schemas; they are made, not edited, so older ones are replaced."""
    from geotrain.files import write_text

    texts = schema_texts()
    for name, text in texts.items():
        write_text(directory / name, text)
    return [directory / name for name in texts]
