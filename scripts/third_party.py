#!/usr/bin/env python3
"""The licences of what a binary of walpost is built from, with their texts.

Usage: scripts/third_party.py TARGET, as in x86_64-unknown-linux-gnu. Prints the notice.
"""

import json
import pathlib
import re
import subprocess
import sys

TEXTS = re.compile(r"^(licen[cs]e|copying|notice|copyright|unlicense)", re.IGNORECASE)


def crates(target):
    """The crates that are linked, without those that only build or test."""
    command = ["cargo", "metadata", "--locked", "--format-version=1", "--filter-platform", target]
    metadata = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    root = metadata["resolve"]["root"]
    found, ahead = set(), [root]
    while ahead:
        one = ahead.pop()
        if one in found:
            continue
        found.add(one)
        for dependency in nodes[one]["deps"]:
            # A dependency of a normal kind has none in this list.
            if any(kind["kind"] is None for kind in dependency["dep_kinds"]):
                ahead.append(dependency["pkg"])
    return sorted((packages[one] for one in found - {root}), key=lambda package: (package["name"], package["version"]))


def texts(folder):
    """Paths of licences, also those of C code that a crate brings along."""
    nested = [path for path in folder.glob("*/*") if path.is_file()]
    return sorted(path for path in [*folder.iterdir(), *nested] if path.is_file() and TEXTS.match(path.name))


def main():
    print("walpost is licensed under Apache-2.0. Its binary holds these, under the licences that stand below.\n")
    listed = crates(sys.argv[1])
    by_text = {}
    for package in listed:
        print(f"{package['name']} {package['version']}: {package['license'] or package['license_file']}")
        for path in texts(pathlib.Path(package["manifest_path"]).parent):
            text = path.read_text(errors="replace").strip()
            by_text.setdefault(text, []).append(f"{package['name']} {package['version']}")
    for text, names in by_text.items():
        print(f"\n{'=' * 100}\n{', '.join(dict.fromkeys(names))}\n{'=' * 100}\n\n{text}")
    if not listed or not by_text:
        sys.exit("no crate was found")


main()
