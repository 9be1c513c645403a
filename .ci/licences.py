"""Prints the libraries that the package's programs hold, and the texts of their licences.

Reads the document of `cargo metadata` from standard input.
"""

import json
import pathlib
import sys

PACKAGED = {"weir-cli", "weir-capi", "weir-sqlite", "weir-preload"}
TEXTS = ("LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE")


def linked(nodes, roots):
    """The identities of all that is linked into `roots`, which leaves out what only builds and tests use."""
    found, ahead = set(), list(roots)
    while ahead:
        here = ahead.pop()
        if here not in found:
            found.add(here)
            for dependency in nodes[here]["deps"]:
                if any(kind["kind"] is None for kind in dependency["dep_kinds"]):
                    ahead.append(dependency["pkg"])
    return found


def main():
    kind = [{"kind": None}]
    example = {"a": {"deps": [{"pkg": "b", "dep_kinds": kind}, {"pkg": "c", "dep_kinds": [{"kind": "dev"}]}]}}
    assert linked(example | {"b": {"deps": []}}, ["a"]) == {"a", "b"}

    metadata = json.load(sys.stdin)
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    packages = {package["id"]: package for package in metadata["packages"]}
    roots = [identity for identity, package in packages.items() if package["name"] in PACKAGED]
    assert len(roots) == len(PACKAGED), "a program of the package has another name"
    others = [packages[identity] for identity in linked(nodes, roots) if packages[identity]["source"]]

    texts = {}
    print("What the programs of this package hold of others:\n")
    for package in sorted(others, key=lambda package: (package["name"], package["version"])):
        name = f"{package['name']} {package['version']}"
        print(f"{name}: {package['license'] or package['license_file']}")
        for path in sorted(pathlib.Path(package["manifest_path"]).parent.iterdir()):
            if path.is_file() and path.name.upper().startswith(TEXTS):
                text = path.read_text(encoding="utf-8", errors="replace").strip()
                texts.setdefault(text, []).append(name)
    print("SQLite (in libsqlite3-sys): public domain")
    for text, names in texts.items():
        print(f"\n{'-' * 78}\n{', '.join(names)}:\n\n{text}")


main()
