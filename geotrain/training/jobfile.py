"""The job of a file, its own or a plan's; and writing a profile into it, every other character left as it is."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import yaml

from geotrain import yaml_edit
from geotrain.files import read_text, read_yaml
from geotrain.plan import Plan
from geotrain.units import format_seconds
from geotrain.workload import Job, Profile


@dataclass(frozen=True, kw_only=True)
class JobFile:
    """Where a job stands, and what it says."""

    path: Path
    """The file with its text."""
    within: tuple[str, ...]
    """Keys that lead to it there."""
    job: Job
    plan: Plan | None
    """Which stages there are; read without the job's old profile, which may be of other ones."""

    @classmethod
    def open(cls, path: Path) -> Self:
        """Read a job file, or a plan file and its job."""
        content = read_yaml(path)
        if not isinstance(content, Mapping) or not {"stages", "cluster", "job"} & content.keys():
            return cls(path=path, within=(), job=Job.parse(content, source=path), plan=None)
        given = content.get("job")
        if isinstance(given, str) and (beside := path.parent / given).exists():
            job = Job.load(beside)
            bare = job.model_copy(update={"profile": Profile()})
            return cls(path=beside, within=(), job=job, plan=Plan.parse({**content, "job": bare}, source=path))
        old = Profile()
        if isinstance(given, Mapping):
            old = Profile.parse(given.get("profile", {}), source=path)
            content = {**content, "job": {key: value for key, value in given.items() if key != "profile"}}
        plan = Plan.parse(content, source=path)
        job = plan.job.model_copy(update={"profile": old})
        return cls(path=path, within=("job",), job=job, plan=plan)

    def write(self, profile: Profile) -> None:
        """Put the profile into the text; comments and the order of fields stay."""
        fields = _plain(profile.dump())
        meant = yaml.safe_load(read_text(self.path))
        self._inside(meant)["profile"] = fields
        where = ".".join((*self.within, "profile"))
        yaml_edit.change(
            self.path,
            lambda text: self._edited(text, fields),
            lambda edited: bool(yaml.safe_load(edited) == meant),
            by_hand=f"{where}: {yaml_edit.flow(fields)}",
        )

    def _inside(self, content: Any) -> Any:
        for key in self.within:
            content = content[key]
        return content

    def _edited(self, text: str, fields: Mapping[str, Any]) -> str:
        if not self._inside(yaml.safe_load(text)).get("profile"):
            return yaml_edit.put(text, (*self.within, "profile"), fields)
        for key, value in fields.items():
            text = yaml_edit.put(text, (*self.within, "profile", key), value)
        return text


def _plain(value: Any, key: str = "") -> Any:
    """As people write it: times with a unit, bytes as whole numbers."""
    if isinstance(value, Mapping):
        return {key: _plain(inner, key) for key, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    return format_seconds(value) if key.endswith("_s") else round(value)
