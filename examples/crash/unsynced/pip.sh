#!/bin/sh
# pip under power cuts with its syncs off: a step installs a local wheel of ten modules into a virtual environment.
set -eu
STEPS=16

setup() {
    /usr/bin/python3 -m venv --without-pip --system-site-packages venv
    /usr/bin/python3 -SE - "$STEPS" <<'END'
import sys
import zipfile

for step in range(1, int(sys.argv[1]) + 1):
    info = f"step{step}-1.dist-info"
    files = {f"step{step}/m{nth}.py": "".join(f"value{line} = {line * step}\n" for line in range(150 * nth)) for nth in range(10)}
    files[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: step{step}\nVersion: 1\n"
    files[f"{info}/WHEEL"] = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(f"step{step}-1-py3-none-any.whl", "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)
END
}

take_step() {
    venv/bin/python -m pip --disable-pip-version-check --no-cache-dir --quiet install --no-index --no-deps \
        "step$1-1-py3-none-any.whl"
}

# pip writes RECORD last: a step is there if it has one, and then all files are those of the wheel.
list_steps() {
    venv/bin/python -SE - "$STEPS" <<'END'
import csv
import glob
import sys
import zipfile

(site,) = glob.glob("venv/lib/python3*/site-packages")
for step in range(1, int(sys.argv[1]) + 1):
    info = f"{site}/step{step}-1.dist-info"
    if not glob.glob(f"{info}/RECORD"):
        continue
    with open(f"{info}/RECORD", newline="") as record:
        recorded = {row[0] for row in csv.reader(record)}
    with zipfile.ZipFile(f"step{step}-1-py3-none-any.whl") as wheel:
        for name in wheel.namelist():
            with open(f"{site}/{name}", "rb") as file:
                if name not in recorded or not name.endswith("/RECORD") and file.read() != wheel.read(name):
                    sys.exit(f"step {step} is installed, and {name} is not that of its wheel")
    print(step)
END
}

. "${0%/*}/steps.sh"
