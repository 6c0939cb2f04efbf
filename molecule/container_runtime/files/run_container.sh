#!/bin/sh
# A container of the node's own files that runs until it is killed, as a pod that uses GPUs would.
set -eu
root=/run/container/root
mkdir -p "$root/usr" "$root/proc" "$root/dev"
for name in bin lib lib64; do ln -s "usr/$name" "$root/$name"; done
cat > /run/container/config.json <<EOF
{"ociVersion": "1.0.2", "process": {"user": {"uid": 0, "gid": 0}, "args": ["/bin/sleep", "infinity"], "cwd": "/"},
 "root": {"path": "$root"}, "linux": {"namespaces": [{"type": "pid"}, {"type": "mount"}]},
 "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs"},
            {"destination": "/usr", "type": "bind", "source": "/usr", "options": ["rbind", "ro"]}]}
EOF
ctr --address /run/k3s/containerd/containerd.sock run --detach --config /run/container/config.json trainer
