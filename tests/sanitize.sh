#!/bin/sh
# Builds the parsers with AddressSanitizer and UBSan in a temporary copy, and runs their tests.
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

# Only the extensions that parse: the rest would double the time to build.
cd "$root"
mkdir -p "$copy/tests/source" "$copy/tests/vectors"
cp setup.py "$copy"
find gaussdecode -name '*.py' -exec cp --parents {} "$copy" \;
cp --parents gaussdecode/_*.p[xy]* gaussdecode/source/_trans*.p[xy]* "$copy"
cp -r tests/kit tests/test_wire.py tests/test_part.py tests/test_values.py "$copy/tests"
cp tests/source/test_translate*.py "$copy/tests/source"
cp tests/vectors/opengauss.json "$copy/tests/vectors"
# The version only: the package is not what is tested here.
sed -n '/^\[project\]/,/^version/p' pyproject.toml > "$copy/pyproject.toml"

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
    tests/test_wire.py tests/test_part.py tests/test_values.py \
    tests/source/test_translate.py tests/source/test_translate_fuzz.py "$@"
