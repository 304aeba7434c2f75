"""What a Kubernetes API server with Kubeflow's training operator would check of our manifests.

Only the fields that we use, in the public shape of `kubeflow.org/v1` PyTorchJob, pods, services and config maps; a
field that is not here is refused, as the server refuses one that does not exist.
"""

from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, model_validator
from pydantic.alias_generators import to_camel

Subdomain = Annotated[
    str, Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$", max_length=253)
]
Label = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63)]
JobLabel = Annotated[str, Field(pattern=r"^[a-z]([-a-z0-9]*[a-z0-9])?$", max_length=63 - len("-worker-999"))]
"""DNS-1035, as the operator wants it; the names of its pods are longer and must be labels too."""
PortName = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=15)]
Port = Annotated[int, Field(ge=1, le=65535)]
DataKey = Annotated[str, Field(pattern=r"^[-._a-zA-Z0-9]+$", max_length=253)]
LabelKey = Annotated[str, Field(pattern=r"^([a-z0-9.-]+/)?[A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?$")]


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, alias_generator=to_camel)


class Metadata(Part):
    name: Subdomain


class JobMetadata(Part):
    name: JobLabel


class FieldRef(Part):
    field_path: Literal["status.podIP", "status.hostIP", "metadata.name"]


class ValueFrom(Part):
    field_ref: FieldRef


class Variable(Part):
    name: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
    value_from: ValueFrom


class ContainerPort(Part):
    name: PortName
    container_port: Port


class Resources(Part):
    limits: dict[Literal["nvidia.com/gpu"], Annotated[int, Field(ge=1)]]


class Mount(Part):
    name: Label
    mount_path: Annotated[str, Field(pattern=r"^/[^:]*$")]


class Container(Part):
    name: Literal["pytorch"]
    """The operator looks for this one."""
    image: Annotated[str, Field(min_length=1)]
    command: list[str]
    args: list[str]
    env: list[Variable]
    ports: list[ContainerPort]
    resources: Resources
    volume_mounts: list[Mount]


class Item(Part):
    key: DataKey
    path: Annotated[str, Field(pattern=r"^[^/][^:]*$")]


class Secret(Part):
    secret_name: Subdomain
    default_mode: Annotated[int, Field(ge=0, le=0o777)]
    items: list[Item]


class Claim(Part):
    claim_name: Subdomain
    read_only: bool = False


class EmptyDir(Part):
    medium: Literal["", "Memory"]


class Volume(Part):
    name: Label
    config_map: Metadata | None = None
    persistent_volume_claim: Claim | None = None
    secret: Secret | None = None
    empty_dir: EmptyDir | None = None

    @model_validator(mode="after")
    def _one_source(self) -> "Volume":
        assert len(self.model_fields_set) == 2, "a volume has one source"
        return self


class Pod(Part):
    host_network: bool
    dns_policy: Literal["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"]
    containers: Annotated[list[Container], Field(min_length=1, max_length=1)]
    volumes: list[Volume]

    @model_validator(mode="after")
    def _mounts_are_volumes(self) -> "Pod":
        names = [volume.name for volume in self.volumes]
        mounts = self.containers[0].volume_mounts
        assert len(set(names)) == len(names) and {mount.name for mount in mounts} == set(names)
        assert len({mount.mount_path for mount in mounts}) == len(mounts)
        return self


class Template(Part):
    spec: Pod


class Replicas(Part):
    replicas: Annotated[int, Field(ge=1)]
    restart_policy: Literal["Always", "OnFailure", "Never", "ExitCode"]
    template: Template


class RunPolicy(Part):
    clean_pod_policy: Literal["All", "Running", "None"]
    backoff_limit: Annotated[int, Field(ge=0)]


class JobSpec(Part):
    run_policy: RunPolicy
    pytorch_replica_specs: dict[Literal["Master", "Worker"], Replicas] = Field(alias="pytorchReplicaSpecs")

    @model_validator(mode="after")
    def _one_master(self) -> "JobSpec":
        assert self.pytorch_replica_specs["Master"].replicas == 1
        return self


class PyTorchJob(Part):
    api_version: Literal["kubeflow.org/v1"]
    kind: Literal["PyTorchJob"]
    metadata: JobMetadata
    spec: JobSpec


class ServicePort(Part):
    name: PortName
    port: Port
    target_port: Port


class ServiceSpec(Part):
    type: Literal["ClusterIP", "NodePort", "LoadBalancer"]
    selector: dict[LabelKey, Annotated[str, Field(max_length=63)]]
    ports: list[ServicePort]


class ServiceMetadata(Part):
    name: Label


class Service(Part):
    api_version: Literal["v1"]
    kind: Literal["Service"]
    metadata: ServiceMetadata
    spec: ServiceSpec


class ConfigMap(Part):
    api_version: Literal["v1"]
    kind: Literal["ConfigMap"]
    metadata: Metadata
    data: dict[DataKey, str]


_MANIFEST: TypeAdapter[Any] = TypeAdapter(Annotated[PyTorchJob | Service | ConfigMap, Field(discriminator="kind")])


def read(text: str) -> dict[str, Any]:
    """The documents by kind, or a ValidationError."""
    documents = [_MANIFEST.validate_python(document) for document in yaml.safe_load_all(text) if document is not None]
    assert len({document.kind for document in documents}) == len(documents)
    return {document.kind: document for document in documents}
