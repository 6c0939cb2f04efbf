#!/bin/sh
# MOCK: makes the files of the machine in /root/machine_facts.json and mounts them over the kernel's own. Takes away what an
# earlier run mounted.
set -eu
machine=/opt/machine
library=/usr/lib/x86_64-linux-gnu/libnvidia-ml.so
places='/sys/bus/pci/devices /sys/firmware /sys/module /proc/driver /usr/lib/modules /boot /var/lib/dkms'

for place in $places /sys/class; do
    while grep -q " $place " /proc/mounts; do umount --recursive "$place"; done
done
rm -rf "$machine" "$library".*
python3 /root/machine_tree.py /root/machine_facts.json "$machine"

mkdir -p /usr/lib/modules /boot /var/lib/dkms "$machine/usr/lib" "$machine/lib/modules"
ln -s ../../lib/modules "$machine/usr/lib/modules"
for place in $places; do
    mkdir -p "$machine$place"
    mount --bind "$machine$place" "$place"
done

# RDMA devices are a class of their own, for which this kernel has no folder: all classes are mounted, the others as they are.
if [ -d "$machine/sys/class/infiniband" ]; then
    for class in /sys/class/*; do
        name=${class##*/}
        [ "$name" = infiniband ] && continue
        rm -rf "$machine/sys/class/$name"
        mkdir -p "$machine/sys/class/$name"
        mount --bind "$class" "$machine/sys/class/$name"
    done
    mount --rbind "$machine/sys/class" /sys/class
fi

# Programs and libraries are the container's own files: what packages would have installed.
rm -f /usr/local/bin/nvidia-smi
[ ! -e "$machine/bin/nvidia-smi" ] || cp "$machine/bin/nvidia-smi" /usr/local/bin/nvidia-smi
[ ! -e "$machine$library.1" ] || ln -s "$(basename "$(readlink "$machine$library.1")")" "$library.1"
