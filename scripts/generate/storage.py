"""The schema of code, checkpoints, datasets and the other volumes; see :mod:`scripts.generate.frame`."""

from __future__ import annotations

from scripts.generate.frame import (
    DNS_LABEL,
    MEMORY,
    PATH,
    Schema,
    choice,
    list_of,
    map_of_texts,
    object_name,
    section,
    switch,
    text,
    whole,
)

SUBPATH = r"^\.?[A-Za-z0-9_][-.A-Za-z0-9_]*(/\.?[A-Za-z0-9_][-.A-Za-z0-9_]*)*$"
"""Folder of a volume, without a `/` at either end."""
FILE_NAME = r"^\.?[-_A-Za-z0-9][-._A-Za-z0-9]{0,251}$"
"""Key of a ConfigMap."""
URL = r"^[a-z][a-z0-9+.-]*://[^\s]+$"

NFS: Schema = {
    **section(
        {
            "server": text(r"^\S+$", doc="Host name or address of the NFS server."),
            "path": text(r"^/.*$", doc="Exported path."),
        },
        doc="Source: an NFS export, mounted by the nodes.",
    ),
    "dependentRequired": {"server": ["path"], "path": ["server"]},
}
HOST_PATH = section({"path": text(PATH, doc="Folder that exists on every node.")}, doc="Source: a folder of the nodes.")

DATASET = section(
    {
        "name": text(DNS_LABEL, longest=40, doc="Name of the dataset within the release."),
        "mountPath": text(PATH, doc="Where the trainer finds it."),
        "readOnly": switch(doc="Read-only unless set to false."),
        "claim": object_name(doc="Source: name of a claim in the release's namespace."),
        "nfs": NFS,
        "hostPath": HOST_PATH,
        "subPath": text(SUBPATH, doc="Folder of the source to mount instead of the whole."),
        "objectStorage": section(
            {
                "url": text(URL, doc="Source: where the data is, e.g. `s3://bucket/imagenet`; the script reads it."),
                "cacheSize": text(MEMORY, doc="Most that the cache at mountPath may hold; a pod that exceeds it ends."),
                "cachePath": text(PATH, doc="Folder of the nodes for the cache, so that it outlives the pods."),
            },
            required=("url",),
            doc="Source: object storage, with a cache on the node.",
        ),
    },
    required=("name", "mountPath"),
)

FRAME: dict[str, Schema] = {
    "code": section(
        {
            "mountPath": text(PATH),
            "readOnly": switch(),
            "files": map_of_texts(FILE_NAME),
            "configMap": object_name(optional=True),
            "claim": object_name(optional=True),
            "nfs": NFS,
            "hostPath": HOST_PATH,
            "subPath": text(SUBPATH, optional=True),
            "git": section(
                {
                    "repository": text(r"^[^\s-]\S*$", optional=True),
                    "revision": text(r"^[A-Za-z0-9_][-./+A-Za-z0-9_]*$", optional=True),
                    "secret": object_name(optional=True),
                }
            ),
        }
    ),
    "shm": section(
        {
            "size": text(MEMORY, optional=True),
            "loader": section(
                {
                    "workers": {
                        **whole(1, 1024),
                        "description": "Data loader workers of a rank; left out, train.dataLoader.workers.",
                    },
                    "prefetch": {
                        **whole(1, 1024),
                        "description": "Batches that each worker holds ready; left out, train.dataLoader.prefetch.",
                    },
                    "batch": text(
                        MEMORY,
                        doc="Memory of one batch that a rank's loader gives, e.g. `40Mi`; with the library's that "
                        "is a step's, train.batchSize x train.accumulate samples.",
                    ),
                }
            ),
        }
    ),
    "tmp": section({"size": text(MEMORY, optional=True)}),
    "cache": section(
        {
            "size": text(MEMORY, optional=True),
            "storageClass": object_name(optional=True),
            "hostPath": HOST_PATH,
        }
    ),
    "checkpoints": section(
        {
            "size": text(MEMORY),
            "storageClass": object_name(optional=True),
            "accessMode": choice("", "ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod"),
            "existingClaim": object_name(optional=True),
            "nfs": NFS,
            "hostPath": section(
                {
                    "path": text(PATH, doc="Folder that exists on the node."),
                    "shared": switch(doc="The path is the same file system on every node."),
                },
                doc="A folder of the nodes.",
            ),
            "subPath": text(SUBPATH, optional=True),
            "keep": switch(),
            "local": section(
                {
                    "enabled": switch(),
                    "size": text(MEMORY, optional=True),
                    "storageClass": object_name(optional=True),
                    "hostPath": HOST_PATH,
                }
            ),
        }
    ),
    "datasets": list_of(DATASET),
    "objectStorage": section(
        {
            "url": text(URL, optional=True),
            "endpoint": text(r"^https?://[^\s/]+[^\s]*$", optional=True),
            "region": text(r"^[A-Za-z0-9-]+$", optional=True),
            "secret": object_name(optional=True),
        }
    ),
}
