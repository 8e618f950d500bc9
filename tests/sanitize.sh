#!/bin/sh
# Builds the extensions with AddressSanitizer and UBSan in a temporary copy, and runs the tests of
# those that touch bytes from outside: parsers, translators, receive loop, queues, collector, and what
# serve prints and frames.
# Ends with the status of the tests; the first finding of a sanitizer ends the run.
#
#   tests/sanitize.sh [pytest arguments]
#
# PYTHON names the interpreter; the default is the checkout's virtual environment.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
if [ -z "${PYTHON:-}" ]; then
    PYTHON=$root/.venv/bin/python
    [ -x "$PYTHON" ] || PYTHON=python3
fi
copy=$(mktemp -d "${TMPDIR:-/tmp}/gaussdecode-sanitize.XXXXXX")
trap 'rm -rf "$copy"' EXIT INT TERM

cd "$root"
cp --parents setup.py pyproject.toml "$copy"
find gaussdecode \( -name '*.py' -o -name '*.p[xy]*' \) -exec cp --parents {} "$copy" \;
cp -r tests "$copy"

cd "$copy"
find . -name '*.so' -exec rm {} +
GAUSSDECODE_BUILD=asan CFLAGS="-Wno-error" "$PYTHON" -W ignore setup.py -q egg_info build_ext --inplace
library=$(gcc -print-file-name=libasan.so)

# Leaks are looked for by the tests' own memory checks: the interpreter never frees all.
export ASAN_OPTIONS="detect_leaks=0:quarantine_size_mb=8:${ASAN_OPTIONS:-}"
export UBSAN_OPTIONS="halt_on_error=1:print_stacktrace=1:${UBSAN_OPTIONS:-}"
# Fewer made-up cases: each takes some twenty times as long here.
export GAUSSDECODE_FUZZ_CASES="${GAUSSDECODE_FUZZ_CASES:-0.04}"
LD_PRELOAD="$library ${LD_PRELOAD:-}" PYTHONMALLOC=malloc PYTHONPATH="$copy:$copy/tests" \
    "$PYTHON" -m pytest -q -s -p no:cacheprovider --import-mode=importlib \
    tests/test_wire.py tests/wire/test_part.py tests/wire/test_values.py \
    tests/source/gaussdb/test_translate.py tests/source/gaussdb/test_translate_fuzz.py \
    tests/source/test_dispatch.py tests/source/gaussdb/test_receive.py tests/source/postgresql/test_known.py \
    tests/source/test_relations.py tests/source/gaussdb/test_transcode.py \
    tests/serve/test_framing.py tests/serve/test_outputs.py tests/serve/test_hostile.py \
    tests/serve/test_shared.py \
    tests/collect tests/decode tests/ipc/test_ring.py "$@"
