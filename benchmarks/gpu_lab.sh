#!/usr/bin/env bash
# What only a GPU can tell, on any machine that has one: from the checkout, nothing installed, nothing downloaded.
#
#   benchmarks/gpu_lab.sh test       the test suite on the device, or the files that are named
#   benchmarks/gpu_lab.sh sanitize   compute-sanitizer (memcheck, racecheck) over small cases
#   benchmarks/gpu_lab.sh bench      the figures of benchmarks/gpu.py; more words are options of its
#
# Each part ends within ten minutes; where it says that some is left, the same command goes on with it. Results go to $OUT,
# or else benchmarks/results: gpu_test.txt, gpu_sanitize.txt, gpu.json, gpu.md. PYTHON names the interpreter.
# With --rehearse, as the second word, the part runs without a GPU, on the tests' stand-in for CuPy.
set -euo pipefail
cd "$(dirname "$0")/.."
part=${1:-}
if [[ ! $part =~ ^(test|sanitize|bench)$ ]]; then
    sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' benchmarks/gpu_lab.sh >&2
    exit 2
fi
shift
PYTHON=${PYTHON:-python3}
OUT=${OUT:-benchmarks/results}
LIMIT=${LIMIT:-560}  # seconds
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
export XLA_PYTHON_CLIENT_PREALLOCATE=false  # the memory of the device is that of other libraries too
rehearse=
if [ "${1:-}" = --rehearse ]; then
    rehearse=yes
    shift
    PYTHONPATH="$PWD/tests/gpu_offline:$PWD/tests/gpu_offline/standin:$PYTHONPATH"
elif ! "$PYTHON" -c "import cupy; cupy.cuda.runtime.getDeviceCount()"; then
    echo "needs CuPy and an NVIDIA GPU; --rehearse does without" >&2
    exit 2
fi
mkdir -p "$OUT"
OUT=$(cd "$OUT" && pwd)
commit=$(git describe --always --dirty 2> /dev/null || "$PYTHON" -c "import tridiag; print(tridiag.__version__)")
failed=0

# Run a step within the time that is left, unless it has passed at this commit: record, name, command.
step() {
    local record=$1 name=$2 log code=0
    shift 2
    if grep -qsxF "$commit passed: $name" "$record"; then
        return
    elif [ "$SECONDS" -ge "$LIMIT" ]; then
        echo "The time is up before $name: the same command goes on with it."
        exit 3
    fi
    log=$(mktemp)
    timeout "$((LIMIT - SECONDS + 30))" "$@" > "$log" 2>&1 || code=$?
    if [ "$code" = 0 ] || [ "$code" = 5 ]; then  # 5: pytest has nothing to run in a file
        echo "$commit passed: $name" >> "$record"
    else
        failed=1
        { echo "$commit failed with $code: $name"; tail -n 60 "$log"; } >> "$record"
    fi
    echo "$name: exit status $code; $(tail -n 1 "$log")"
    rm -f "$log"
}

case $part in
test)
    if ! "$PYTHON" -c "import pytest"; then
        echo "needs pytest, which is not installed" >&2
        exit 2
    fi
    files=("$@")
    [ "$#" != 0 ] || mapfile -t files < <(grep -lE "backend|cupy" tests/test_*.py)
    about=${rehearse:+"gpu_offline or smoke"}
    on_gpus="cupy or cusparse or numba_cuda or triton or pallas"
    for file in "${files[@]}"; do
        step "$OUT/gpu_test.txt" "$file" "$PYTHON" -m pytest -c setup.cfg -o addopts= -o filterwarnings=default \
            -p no:cacheprovider -q -rs -m "${about:-not slow and not gpu_offline}" -k "$on_gpus" "$file"
    done
    ;;
sanitize)
    if [ -z "$rehearse" ] && ! command -v compute-sanitizer > /dev/null; then
        echo "needs compute-sanitizer, which is not installed" >&2
        exit 2
    fi
    for backend in $("$PYTHON" tests/gpu_offline/small_cases.py --list); do
        for dtype in float64 float32 complex128 complex64; do
            for tool in memcheck racecheck; do
                command=("$PYTHON" tests/gpu_offline/small_cases.py --dtype "$dtype" "$backend")
                [ -n "$rehearse" ] || command=(compute-sanitizer --tool "$tool" --error-exitcode 9 "${command[@]}")
                step "$OUT/gpu_sanitize.txt" "$tool of $backend in $dtype" "${command[@]}"
            done
        done
    done
    ;;
bench)
    exec "$PYTHON" benchmarks/gpu.py --folder "$OUT" --minutes "$((LIMIT / 60))" "$@"
    ;;
esac
exit "$failed"
