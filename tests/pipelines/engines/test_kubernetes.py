"""The Kubernetes recipe, against the Flink operator's own schema and our own flags."""

from __future__ import annotations

import shutil
import subprocess
import zipfile
from typing import Any

import pytest
import yaml

from recordmill.pipelines.engines.choice import check_beam_flags
from recordmill.pipelines.engines.engine_spec import EngineSpec
from recordmill.records.spec import build, options_of
from recordmill.transforms.text.text_spec import TextSpec

from ..clusters import ROOT, await_build

RECIPE = ROOT / "examples/flink/kubernetes"
OPERATOR = "org.apache.flink:flink-kubernetes-operator-api:1.10.0"


def problems(value: Any, schema: dict[str, Any], where: str = "") -> list[str]:
    """Returns where a value does not fit a schema; fields that it does not know are dropped."""
    if schema.get("x-kubernetes-preserve-unknown-fields") or "anyOf" in schema:
        return []
    kinds = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}
    if not isinstance(value, kinds.get(schema["type"], (int, float))):
        return [f"{where} must be of type {schema['type']}, got {value!r}"]
    if "enum" in schema and value not in schema["enum"]:
        return [f"{where} must be one of {schema['enum']}, got {value!r}"]
    found: list[str] = []
    for key, inner in value.items() if isinstance(value, dict) else []:
        inside = schema.get("properties", {}).get(key) or schema.get("additionalProperties")
        unknown = [f"{where}.{key} is unknown"]
        found += problems(inner, inside, f"{where}.{key}") if inside else unknown
    for number, inner in enumerate(value if isinstance(value, list) else []):
        found += problems(inner, schema["items"], f"{where}[{number}]")
    return found


@pytest.fixture(scope="module")
def operator_schema() -> dict[str, Any]:
    """The schema that the operator's release installs for a FlinkDeployment."""
    if not shutil.which("mvn"):
        pytest.skip("mvn is not installed, and the operator's schema comes from Maven")
    repository = ROOT / "build/flink/maven"
    group, artifact, version = OPERATOR.split(":")
    jar = repository / group.replace(".", "/") / f"{artifact}/{version}/{artifact}-{version}.jar"
    if not jar.exists():
        await_build("flink")  # which fills the same repository
        command = [
            "mvn", "-B", "-q", f"-Dmaven.repo.local={repository}", "dependency:get",
            f"-Dartifact={OPERATOR}", "-Dtransitive=false",
        ]  # fmt: skip
        subprocess.run(command, check=True, timeout=500)
    with zipfile.ZipFile(jar) as content:
        text = content.read("META-INF/fabric8/flinkdeployments.flink.apache.org-v1.yml")
    [release] = yaml.load(text, yaml.CSafeLoader)["spec"]["versions"]
    return dict(release["schema"]["openAPIV3Schema"]["properties"]["spec"])


def load(name: str) -> dict[str, Any]:
    return dict(yaml.safe_load((RECIPE / name).read_text()))


@pytest.mark.slow
@pytest.mark.flink
def test_cluster_fits_the_operators_schema(operator_schema: dict[str, Any]) -> None:
    manifest = load("cluster.yaml")
    assert (manifest["apiVersion"], manifest["kind"]) == (
        "flink.apache.org/v1beta1",
        "FlinkDeployment",
    )
    assert problems(manifest["spec"], operator_schema) == []
    wrong = manifest["spec"] | {"mode": "nativ", "flinkVersions": "v1_20"}
    wrong["taskManager"] = {"replicas": "4", "resources": {}}
    assert len(problems(wrong, operator_schema)) == 4


def test_job_has_flags_that_we_know() -> None:
    [container] = load("job.yaml")["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["recordmill", "text"]
    given = dict(flag.removeprefix("--").split("=", 1) for flag in container["args"])
    own = {name: given.pop(name) for name in list(given) if name in options_of(TextSpec)}
    engine = {name: given.pop(name) for name in list(given) if name in options_of(EngineSpec)}
    assert build(TextSpec, own).output.output == "gs://BUCKET/dataset"
    assert build(EngineSpec, engine).runner == "flink"
    service = f"{load('cluster.yaml')['metadata']['name']}-rest"
    assert given == {"flink_master": f"{service}:8081", "environment_type": "PROCESS"}
    check_beam_flags([f"--{name}={value}" for name, value in given.items()], ())
