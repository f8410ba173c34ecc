"""What the chart renders, judged by Kubernetes' schemas and by what walpost needs.

Usage: manifests.py RENDERED.yaml REPLICAS SCHEMA.json, where SCHEMA is that of walpost.toml. Prints a line for each document.
"""

import json
import sys
import tomllib

import jsonschema
import kubernetes_validate
import yaml

VERSIONS = ["1.27", "1.31", "1.37"]
# Of the Prometheus operator: Kubernetes has no schema of them.
FOREIGN = {"ServiceMonitor", "PrometheusRule"}


def need(condition, message):
    if not condition:
        sys.exit(f"manifests: {sys.argv[1]}: {message}")




def variables(schema):
    """The variable of every key, as walpost names them."""
    for name, key in schema["properties"].items():
        members = key.get("properties", {}) if key.get("type") == "object" else {"": {}}
        for member in members:
            path = f"{name}.{member}".rstrip(".")
            yield "WALPOST_" + path.replace(".", "_").replace("-", "_").upper()


def selects(selector, labels):
    return selector and selector.items() <= labels.items()


def deployment(document, documents, schema, replicas):
    spec = document["spec"]
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    labels = spec["template"]["metadata"]["labels"]
    need(spec["replicas"] == replicas, f"{spec['replicas']} pods")
    need(selects(spec["selector"]["matchLabels"], labels), "the Deployment does not select its pods")
    need(pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"] > 0, "it runs as root")
    need(pod["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault", "it has all system calls")
    need(pod["automountServiceAccountToken"] is False, "it gets a token of Kubernetes")
    own = container["securityContext"]
    need(own["readOnlyRootFilesystem"] and not own["allowPrivilegeEscalation"], "it may write its image, or rise")
    need(own["capabilities"] == {"drop": ["ALL"]}, "it has capabilities")
    need(container["livenessProbe"]["httpGet"]["path"] == "/healthz", "liveness")
    need(container["readinessProbe"]["httpGet"]["path"] == "/readyz", "readiness")
    need(container["resources"]["limits"]["memory"], "it has no bound on memory")

    variable = {entry["name"]: entry.get("value") for entry in container["env"]}
    known = set(variables(schema)) | {"WALPOST_CONFIG", "WALPOST_LOG_LEVEL", "WALPOST_LOG_FORMAT"}
    for name in variable:
        need(not name.startswith("WALPOST_") or name in known, f"{name} is no variable of walpost")
        secret = any(word in name for word in ("PASSWORD", "SECRET", "TOKEN", "URL"))
        need(not secret or name.endswith("_FILE"), f"{name} holds a secret")
    grace = int(variable["WALPOST_SHUTDOWN_GRACE"].removesuffix("s"))
    need(pod["terminationGracePeriodSeconds"] > grace, "it is killed before its shutdown_grace is over")

    (secrets,) = (volume["projected"] for volume in pod["volumes"] if volume["name"] == "secrets")
    files = {item["path"] for source in secrets["sources"] for item in source["secret"]["items"]}
    named = {value.removeprefix("/run/secrets/walpost/") for value in variable.values() if value and "/run/secrets/" in value}
    need(files == named, f"files {files} of secrets, and variables name {named}")
    need(variable["WALPOST_CONFIG"] == "/etc/walpost/walpost.toml", "a command in the pod does not find the configuration")
    mounted = {mount["mountPath"] for mount in container["volumeMounts"]}
    need("/run/secrets/walpost" in mounted and "/etc/walpost" in mounted, "what is named is not mounted")
    need(all(mount["readOnly"] for mount in container["volumeMounts"]), "a mount may be written to")
    need({"name": "http"}.items() <= container["ports"][0].items(), "no port http")

    for other in documents:
        kind, spec = other["kind"], other.get("spec", {})
        selector = {
            "Service": lambda: spec["selector"],
            "PodDisruptionBudget": lambda: spec["selector"]["matchLabels"],
            "NetworkPolicy": lambda: spec["podSelector"]["matchLabels"],
        }.get(kind)
        need(selector is None or selects(selector(), labels), f"{kind} selects no pod")
        if kind == "ServiceMonitor":
            (service,) = (one for one in documents if one["kind"] == "Service")
            need(selects(spec["selector"]["matchLabels"], service["metadata"]["labels"]), "ServiceMonitor finds no service")
        if kind == "PrometheusRule":
            rules = [rule for group in spec["groups"] for rule in group["rules"]]
            need(rules and all("expr" in rule for rule in rules), "PrometheusRule holds no rules")
            urls = {rule["annotations"]["runbook_url"] for rule in rules}
            need(all(url.startswith("https://git.example.com/walpost/docs/runbooks/") for url in urls), f"runbooks are at {urls}")
    accounts = {one["metadata"]["name"] for one in documents if one["kind"] == "ServiceAccount"}
    need(not accounts or pod["serviceAccountName"] in accounts, "its service account is not made")


def main():
    rendered, replicas, schema = sys.argv[1], int(sys.argv[2]), json.load(open(sys.argv[3]))
    documents = [document for document in yaml.safe_load_all(open(rendered)) if document]
    for document in documents:
        if document["kind"] not in FOREIGN:
            for version in VERSIONS:
                kubernetes_validate.validate(document, version, strict=True)
        print(f"ok {document['kind']} {document['metadata']['name']}")
    (config,) = (document for document in documents if document["kind"] == "ConfigMap")
    jsonschema.validate(tomllib.loads(config["data"]["walpost.toml"]), schema, jsonschema.Draft7Validator)
    (one,) = (document for document in documents if document["kind"] == "Deployment")
    deployment(one, documents, schema, replicas)


main()
