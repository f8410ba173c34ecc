"""What the Dockerfile, the Compose file and the package's list name is there."""

import json
import pathlib
import re
import sys
import tomllib

import jsonschema
import yaml


def need(condition, message):
    if not condition:
        sys.exit(f"named: {message}")


compose = yaml.safe_load(open("docker-compose.yml"))
for name, service in compose["services"].items():
    build = service.get("build")
    if build is not None:
        file = build.get("dockerfile", "Dockerfile") if isinstance(build, dict) else "Dockerfile"
        need(pathlib.Path(file).is_file(), f"docker-compose.yml: {name} is built from {file}, which is not there")
    for other in service.get("depends_on", {}):
        need(other in compose["services"], f"docker-compose.yml: {name} depends on {other}")

text = open("deploy/docker/Dockerfile").read()
bases = re.findall(r"^FROM (\S+)", text, re.M)
need(all(re.search(r":[^:]*\d", base) for base in bases[:-1]), f"Dockerfile: a base without a version: {bases}")
need(bases[-1] == "scratch", f"Dockerfile: what is shipped begins with {bases[-1]}, and so holds more than walpost needs")
need(re.search(r"^USER \d+(:\d+)?$", text, re.M), "Dockerfile: the user is no number, by which Kubernetes tells that it is not root")
need("HEALTHCHECK" in text, "Dockerfile: no health check")
for source in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.M):
    for path in source.split():
        need(path.startswith("--") or pathlib.Path(path).exists(), f"Dockerfile: copies {path}, which is not there")

for script in re.findall(r"^RUN (\S+\.sh)", text, re.M):
    need(pathlib.Path(script).is_file(), f"Dockerfile: runs {script}, which is not there")

manifest = tomllib.load(open("Cargo.toml", "rb"))
deb = manifest["package"]["metadata"]["deb"]
made = ("target/release/", "target/package/")
for source, target, _mode in deb["assets"]:
    need(source.startswith(made) or list(pathlib.Path().glob(source)), f"Cargo.toml: the package holds {source}, which is not there")
targets = ["/" + target for _source, target, _mode in deb["assets"]]
for conffile in deb["conf-files"]:
    need(conffile in targets, f"Cargo.toml: {conffile} is no file of the package")
packaged = tomllib.load(open("deploy/debian/walpost.toml", "rb"))
jsonschema.validate(packaged, json.load(open("deploy/walpost.schema.json")), jsonschema.Draft7Validator)
unit = open("deploy/systemd/walpost.service").read()
for path in re.findall(r"/etc/walpost/\S+\.toml", unit):
    need(path in targets, f"walpost.service reads {path}, which is no file of the package")
print("ok", len(deb["assets"]), "files of the package")
