"""The container and Kubernetes files: Twinlog reads their settings, and the manifests have Kubernetes' form."""

import subprocess
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from twinlog.cli import exporter
from twinlog.settings.broker_conf import load_broker_conf
from twinlog.settings.nameserver_conf import load_nameserver_conf

DEPLOY = Path(__file__).parents[2] / "deploy"
CONTAINER, KUBERNETES = DEPLOY / "container", DEPLOY / "kubernetes"
MANIFESTS = [
    (path.name, document)
    for path in sorted(KUBERNETES.glob("*.yaml"))
    if path.name != "kustomization.yaml"
    for document in yaml.safe_load_all(path.read_text())
]


def compose() -> dict:
    return yaml.safe_load((CONTAINER / "compose.yaml").read_text())


@pytest.mark.parametrize(
    "manifest", [one for _, one in MANIFESTS], ids=[f"{name}-{one['kind']}" for name, one in MANIFESTS]
)
def test_kubernetes_knows_every_field(manifest: dict):
    kubernetes_validate.validate(manifest, "1.33", strict=True)


def test_every_manifest_is_applied():
    listed = yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text())["resources"]
    assert sorted(listed) == sorted({name for name, _ in MANIFESTS})


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_pod_starts_a_broker_with_an_id_and_a_name_of_its_own(number: int, tmp_path: Path):
    """The pod's own shell command makes its settings."""
    found = {one["kind"]: one for name, one in MANIFESTS if name == "broker-a.yaml"}
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "broker.conf").write_text(found["ConfigMap"]["data"]["broker.conf"])
    container = found["StatefulSet"]["spec"]["template"]["spec"]["containers"][0]
    pod = f"broker-a-{number}"
    command = container["args"][0].replace("$(POD)", pod).replace("/etc/twinlog", str(tmp_path / "source"))
    command = command.replace("exec twinlog broker", "echo started")
    done = subprocess.run(
        [*container["command"], command], cwd=tmp_path, env={"POD": pod, "PATH": "/usr/bin:/bin"}, capture_output=True
    )
    assert done.stdout == b"started -c broker.conf --log-json\n", done.stderr
    settings = load_broker_conf(tmp_path / "broker.conf")
    assert (settings.broker.broker_id, settings.broker.broker_ip1) == (number + 1, f"{pod}.broker-a")
    assert settings.warnings == ()


def test_probes_ask_the_port_that_the_settings_have():
    for name, one in MANIFESTS:
        if one["kind"] == "StatefulSet":
            container = one["spec"]["template"]["spec"]["containers"][0]
            ports = {port["name"]: port["containerPort"] for port in container["ports"]}
            conf = next(other for where, other in MANIFESTS if where == name and other["kind"] == "ConfigMap")
            assert f"metricsPort={ports['metrics']}\n" in next(iter(conf["data"].values()))
            probes = {container[kind]["httpGet"]["path"] for kind in ("readinessProbe", "livenessProbe")}
            assert probes == {"/health", "/readiness"}


def test_an_image_that_is_on_the_node_is_used():
    for _, one in MANIFESTS:
        if one["kind"] == "StatefulSet":
            (container,) = one["spec"]["template"]["spec"]["containers"]
            assert container["imagePullPolicy"] == "IfNotPresent", "with the tag latest, Always is the default"


def test_prometheus_asks_the_ports_of_the_exporter_and_of_the_samples():
    jobs = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())["scrape_configs"]
    ports = {job["job_name"]: job["static_configs"][0]["targets"][0].rpartition(":")[2] for job in jobs}
    sample = load_broker_conf(CONTAINER / "conf" / "broker-a.properties").broker.metrics_port
    assert ports == {"rocketmq-exporter": str(exporter.PORT), "rocketmq-brokers": str(sample)}


def test_each_server_of_the_compose_file_has_valid_settings():
    services = compose()["services"]
    assert len(services) == 5
    load_nameserver_conf(CONTAINER / "conf" / "namesrv.conf")
    identities = set()
    for name, service in services.items():
        if name == "namesrv":
            continue
        assert service["command"] == [name]
        settings = load_broker_conf(CONTAINER / "conf" / f"{name}.properties")
        assert settings.warnings == ()
        assert settings.broker.broker_ip1 == name
        assert settings.broker.namesrv_addr == "namesrv:9876"
        identities.add((settings.broker.broker_name, settings.broker.broker_id))
    assert identities == {("broker-a", 0), ("broker-a", 1), ("broker-b", 0), ("broker-b", 1)}


def test_administration_is_allowed_from_the_network_of_the_containers_only():
    subnet = compose()["networks"]["twinlog"]["ipam"]["config"][0]["subnet"]
    for path in (CONTAINER / "conf").iterdir():
        assert f"adminRequestsFrom={subnet}\n" in path.read_text()


def test_a_broker_keeps_its_settings_on_its_volume(tmp_path: Path):
    """The entry point copies them once: what a change of role wrote stays."""
    shell, option, script = compose()["services"]["broker-a"]["entrypoint"]
    script = script.replace("$$", "$").replace("/etc/twinlog", str(CONTAINER / "conf")).replace("exec twinlog", "echo")
    for _ in range(2):
        done = subprocess.run([shell, option, script, "broker-a"], cwd=tmp_path, text=True, capture_output=True)
        assert done.stdout == "broker -c broker.conf\n", done.stderr
        with (tmp_path / "broker.conf").open("a") as settings:
            settings.write("brokerRole=SLAVE\n")
    assert (tmp_path / "broker.conf").read_text().count("brokerRole=SLAVE\n") == 2


def test_the_image_copies_files_that_exist():
    lines = (CONTAINER / "Containerfile").read_text().splitlines()
    copied = [
        word for line in lines if line.startswith("COPY ") and "--from" not in line for word in line.split()[1:-1]
    ]
    assert copied and all((DEPLOY.parent / name).exists() for name in copied)
