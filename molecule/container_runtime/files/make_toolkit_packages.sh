#!/bin/sh
# MOCK of NVIDIA's repository: packages of the container toolkit whose programs do without GPUs. The runtime is runc.
set -eu
version=$1
repository=/srv/toolkit/deb/amd64
build=$(mktemp -d)
mkdir -p "$repository" "$build/base/usr/bin"

cat > "$build/base/usr/bin/nvidia-ctk" <<EOF
#!/bin/sh
# MOCK
case "\$*" in
--version) echo 'NVIDIA Container Toolkit CLI version $version' ;;
'system create-dev-char-symlinks --create-all')
    mkdir -p /dev/char
    # As the real one: not those of NVSwitches.
    for device in /dev/nvidia[0-9]* /dev/nvidiactl /dev/nvidia-modeset /dev/nvidia-uvm /dev/nvidia-uvm-tools; do
        [ ! -c "\$device" ] || ln -sf "\$device" "/dev/char/\$((0x\$(stat -c %t "\$device"))):\$((0x\$(stat -c %T "\$device")))"
    done ;;
'cdi generate --output=/etc/cdi/nvidia.yaml')
    mkdir -p /etc/cdi
    printf 'kind: nvidia.com/gpu\ndevices: [{name: all}]\n# /usr/lib/libcuda.so.%s\n' "\$(cat /root/driver)" > /etc/cdi/nvidia.yaml ;;
*) echo "unknown: \$*" >&2; exit 1 ;;
esac
EOF
printf '#!/bin/sh\n# MOCK\nexec runc "$@"\n' > "$build/base/usr/bin/nvidia-container-runtime"
chmod +x "$build/base/usr/bin/"*

: > "$repository/Packages"
for name in nvidia-container-toolkit-base nvidia-container-toolkit libnvidia-container-tools libnvidia-container1; do
    folder=$build/$name
    if [ "$name" = nvidia-container-toolkit-base ]; then mv "$build/base" "$folder"; fi
    mkdir -p "$folder/DEBIAN"
    printf 'Package: %s\nVersion: %s-1\nArchitecture: amd64\nMaintainer: a test <test@example.org>\nDescription: mock\n' \
        "$name" "$version" > "$folder/DEBIAN/control"
    dpkg-deb --root-owner-group --build "$folder" "$repository/$name.deb" > /dev/null
    {
        cat "$folder/DEBIAN/control"
        printf 'Filename: %s.deb\nSize: %s\n' "$name" "$(stat -c %s "$repository/$name.deb")"
        printf 'SHA256: %s\n\n' "$(sha256sum "$repository/$name.deb" | cut -d ' ' -f 1)"
    } >> "$repository/Packages"
done
rm -r "$build"

# What is written here is not signed.
cat > /etc/apt/apt.conf.d/99-unsigned <<EOF
Acquire::AllowInsecureRepositories "true";
APT::Get::AllowUnauthenticated "true";
EOF
