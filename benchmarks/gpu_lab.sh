#!/usr/bin/env bash
# What only a GPU can tell, on any machine that has one: from the checkout, nothing installed, nothing downloaded.
#
#   benchmarks/gpu_lab.sh test       the test suite on the device, or the files that are named
#   benchmarks/gpu_lab.sh sanitize   compute-sanitizer (memcheck, racecheck) over small cases of all backends, or those named
#   benchmarks/gpu_lab.sh bench      the figures of benchmarks/gpu.py; more words are options of its
#
# Each part ends within LIMIT seconds (560); where it says that some is left, the same command goes on with it. Tests and
# small cases run in JOBS processes at a time. Results go to $OUT, or else benchmarks/results: gpu_test.txt,
# gpu_sanitize.txt, gpu.json, gpu.md. PYTHON names the interpreter,
# BACKENDS those to be tested ("cupy_pcr or cupy_scan"), COMMIT the state of the code where there is no repository.
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
JOBS=${JOBS:-$(nproc)}
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
if [ -z "${COMMIT:=$(git describe --always --dirty 2> /dev/null)}" ]; then
    COMMIT=$("$PYTHON" -c "import tridiag; print(tridiag.__version__)")
fi
export COMMIT
failed=0

# Run a step within the time that is left, unless it has passed at this commit: record, name, command.
step() {
    local record=$1 name=$2 log code=0
    shift 2
    log=$(mktemp)
    timeout "$((LIMIT > SECONDS ? LIMIT - SECONDS + 5 : 1))" "$@" > "$log" 2>&1 || code=$?
    if [ "$code" = 0 ]; then
        echo "$COMMIT passed: $name" >> "$record"
    else
        { echo "$COMMIT failed with $code: $name"; tail -n 60 "$log"; } >> "$record"
    fi
    echo "$name: exit status $code; $(tail -n 1 "$log")"
    rm -f "$log"
    return "$code"
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
    on_gpus=${BACKENDS:-"cupy or cusparse or numba_cuda or triton or pallas"}
    options=(-c setup.cfg -o addopts= -o filterwarnings=default -p no:cacheprovider -p lab_record -q -rs)
    if "$PYTHON" -c "import xdist" 2> /dev/null; then
        options+=(-n "$JOBS" --dist worksteal)
    fi
    if "$PYTHON" -c "import pytest_timeout" 2> /dev/null; then
        options+=(-o timeout=100 -o timeout_method=thread) # a kernel that hangs takes its process along
    fi
    export LAB_RECORD=$OUT/gpu_test.jsonl LAB_DONE
    export PYTHONPATH="$PWD/tests/gpu_offline:$PYTHONPATH"
    LAB_DONE=$(mktemp)
    cat "$LAB_RECORD" > "$LAB_DONE" 2> /dev/null || true
    code=0
    timeout --signal=INT --kill-after=20 "$LIMIT" "$PYTHON" -m pytest "${options[@]}" \
        -m "${about:-not slow and not gpu_offline}" -k "$on_gpus" "${files[@]}" > "$OUT/gpu_test.log" 2>&1 || code=$?
    rm -f "$LAB_DONE"
    "$PYTHON" tests/gpu_offline/lab_record.py "$LAB_RECORD" "$COMMIT" > "$OUT/gpu_test.txt"
    sed '/^$/,$d' "$OUT/gpu_test.txt"
    tail -n 1 "$OUT/gpu_test.log"
    if [ "$code" = 124 ] || [ "$code" = 137 ]; then
        echo "The time is up: the same command goes on with what is left."
        exit 3
    fi
    [ "$code" = 0 ] || [ "$code" = 5 ] || failed=1 # 5: nothing is left
    ;;
sanitize)
    if [ -z "$rehearse" ] && ! command -v compute-sanitizer > /dev/null; then
        echo "needs compute-sanitizer, which is not installed" >&2
        exit 2
    fi
    running=0
    backends=("$@")
    [ "$#" != 0 ] || mapfile -t backends < <("$PYTHON" tests/gpu_offline/small_cases.py --list)
    for backend in "${backends[@]}"; do
        for dtype in float64 float32 complex128 complex64; do
            # what libraries ask the driver for, to see whether it is there, is no error
            for tool in "memcheck --report-api-errors no" racecheck; do
                name="${tool%% *} of $backend in $dtype"
                if grep -qsxF "$COMMIT passed: $name" "$OUT/gpu_sanitize.txt"; then
                    continue
                elif [ "$SECONDS" -ge "$LIMIT" ]; then
                    echo "The time is up before $name: the same command goes on with it."
                    failed=3
                    break 3
                fi
                command=("$PYTHON" tests/gpu_offline/small_cases.py --dtype "$dtype" "$backend")
                [ -n "$rehearse" ] || command=(compute-sanitizer --tool $tool --error-exitcode 9 "${command[@]}")
                if [ "$running" -ge "$JOBS" ]; then
                    wait -n || failed=1
                    running=$((running - 1))
                fi
                step "$OUT/gpu_sanitize.txt" "$name" "${command[@]}" &
                running=$((running + 1))
            done
        done
    done
    for ((; running > 0; running--)); do
        wait -n || failed=1
    done
    ;;
bench)
    exec "$PYTHON" benchmarks/gpu.py --folder "$OUT" --seconds "$LIMIT" "$@"
    ;;
esac
exit "$failed"
