#!/bin/sh
# Makes a container image of a wheel: an archive that `zcat ARCHIVE | podman load` takes, and docker too.
#
# usage: release/image.sh WHEEL OUT        ends with the path of the archive
#
# BASE=IMAGE    build on this image of a registry; without it, on a Debian that mmdebstrap makes here
# SPARK=yes     with Spark and Java, from the network of the build
# TAG=NAME      gaussdecode:VERSION without it
# SOURCE=URL    where the sources are, for the labels
set -eu
umask 022
cd "$(dirname "$0")/.."
wheel=$(realpath "$1") out=$(realpath -m "$2")
suite=bookworm python=3.11 # of the Debian made here; the wheel must be for it
version=$(basename "$wheel" | cut -d- -f2)
tag=${TAG:-gaussdecode:$version}
base=${BASE:-localhost/gaussdecode-base:$suite}
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
case $wheel in
    *-cp"$(echo "$python" | tr -d .)"-*) ;;
    *) echo "image: $wheel is not for Python $python, which Debian $suite has; build it with a python$python" >&2; exit 1 ;;
esac
programs="podman runc"
[ -n "${BASE:-}" ] || programs="$programs mmdebstrap"
missing=
for program in $programs; do
    command -v "$program" >/dev/null || missing="$missing $program"
done
[ -z "$missing" ] || { echo "image: missing; install it: apt-get install$missing" >&2; exit 1; }

context=$(mktemp -d)
trap 'rm -rf "$context" "$context.lock" "$context.tar"' EXIT
mkdir "$context/wheels"
cp release/image/Containerfile requirements.lock "$context"
# Everything comes through pip here, with its checksums: the build itself asks no registry.
machine=$(uname -m)
pip="${PYTHON:-.venv/bin/python} -m pip --disable-pip-version-check --quiet"
$pip download --dest "$context/wheels" --require-hashes --requirement requirements.lock \
    --only-binary :all: --implementation cp --python-version "$python" --abi "cp$(echo "$python" | tr -d .)" --abi abi3 \
    --platform "manylinux_2_28_$machine" --platform "manylinux_2_17_$machine" --platform "manylinux2014_$machine"
awk '/^[a-z]/ { is_pip = /^pip==/ } is_pip' .ci/build.lock >"$context.lock"
$pip download --dest "$context/wheels" --no-deps --require-hashes --requirement "$context.lock"
cp "$wheel" "$context/wheels"

if [ -z "${BASE:-}" ]; then
    mmdebstrap --quiet --variant=minbase --include=python3,ca-certificates,tzdata \
        --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
        --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
        "$suite" "$context.tar" "${MIRROR:-http://deb.debian.org/debian}"
    podman import --quiet "$context.tar" "$base" >/dev/null
fi
# Docker's format keeps the health check, which OCI's has no field for; limits, as some hosts forbid
# the larger ones that podman would set.
podman --runtime runc build --quiet --format docker --timestamp "$SOURCE_DATE_EPOCH" --network host \
    --ulimit nofile=4096:4096 --ulimit nproc=4096:4096 \
    --build-arg BASE="$base" --build-arg SPARK="${SPARK:-no}" \
    --label org.opencontainers.image.version="$version" \
    --label org.opencontainers.image.revision="$(git rev-parse HEAD)" \
    ${SOURCE:+--label org.opencontainers.image.source="$SOURCE"} \
    --file "$context/Containerfile" --tag "$tag" "$context" >/dev/null
mkdir -p "$out"
archive=$out/gaussdecode-${version}-image-$(dpkg --print-architecture).tar
rm -f "$archive" "$archive.gz"
podman save --quiet --format docker-archive --output "$archive" "$tag" >/dev/null
gzip -n "$archive"
echo "$archive.gz"
