"""Makes an image of containers as a file of OCI: one layer with ten files.

make_image.py FILE STEP: the image has the name `local/step:STEP`."""

import hashlib
import io
import json
import sys
import tarfile


def tar_of(files):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o644
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def main(path, step):
    lines = [f"{line * int(step)}\n".encode() for line in range(10000)]
    layer = tar_of({f"file{nth}": b"".join(lines[: 1000 * nth]) for nth in range(1, 11)})
    files = {"oci-layout": b'{"imageLayoutVersion": "1.0.0"}'}

    def add(content, kind):
        digest = hashlib.sha256(content).hexdigest()
        files[f"blobs/sha256/{digest}"] = content
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": len(content)}

    layer = add(layer, "layer.v1.tar")
    config = {"architecture": "amd64", "os": "linux", "config": {}, "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]}}
    config = add(json.dumps(config).encode(), "config.v1+json")
    manifest = add(json.dumps({"schemaVersion": 2, "config": config, "layers": [layer]}).encode(), "manifest.v1+json")
    manifest["annotations"] = {"io.containerd.image.name": f"local/step:{step}"}
    files["index.json"] = json.dumps({"schemaVersion": 2, "manifests": [manifest]}).encode()
    with open(path, "wb") as file:
        file.write(tar_of(files))


main(*sys.argv[1:])
