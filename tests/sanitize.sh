#!/bin/sh
# Builds the parser with AddressSanitizer and UBSan in a temporary copy, and runs its tests.
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

# Only what the parser needs: the rest would double the time to build.
mkdir -p "$copy/gaussdecode" "$copy/tests"
cd "$root"
cp setup.py "$copy"
for file in __init__.py errors.py _column _cursor _layout _part _times _values _wire; do
    cp "gaussdecode/$file" "$copy/gaussdecode" 2>/dev/null || cp "gaussdecode/$file".p* "$copy/gaussdecode"
done
cp -r gaussdecode/model gaussdecode/protocol "$copy/gaussdecode"
cp -r tests/kit tests/test_wire.py tests/test_part.py tests/test_values.py "$copy/tests"
# The version only: the package is not what is tested here.
sed -n '/^\[project\]/,/^version/p' pyproject.toml > "$copy/pyproject.toml"

cd "$copy"
find . -name '*.so' -exec rm {} +
GAUSSDECODE_BUILD=asan CFLAGS="-Wno-error" "$PYTHON" -W ignore setup.py -q egg_info build_ext --inplace
library=$(gcc -print-file-name=libasan.so)

# Leaks are looked for by the tests' own memory checks: the interpreter never frees all.
export ASAN_OPTIONS="detect_leaks=0:quarantine_size_mb=8:${ASAN_OPTIONS:-}"
export UBSAN_OPTIONS="halt_on_error=1:print_stacktrace=1:${UBSAN_OPTIONS:-}"
LD_PRELOAD="$library ${LD_PRELOAD:-}" PYTHONMALLOC=malloc PYTHONPATH="$copy:$copy/tests" \
    "$PYTHON" -m pytest -q -s -p no:cacheprovider --import-mode=importlib \
    tests/test_wire.py tests/test_part.py tests/test_values.py "$@"
