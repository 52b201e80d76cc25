#!/usr/bin/env bash
# Checks and measures NNL on this machine's GPU, stage by stage, in under five minutes; what fails
# is reported, and the rest goes on. A table comes last; the exit status is 0 where nothing failed.
#
#   benchmarks/gpu/run.sh [--wheels FOLDER] [--out FOLDER] [--limit SECONDS] [--rounds N]
#                         [--python PROGRAM] [--smoke] [--emulated]
#
# --wheels    is installed from first, without a network: PyCUDA, and what else the Python lacks
#             (default $WHEELS, else nothing is installed)
# --out       takes gpu.json (all figures), operators.json and log.txt (default $OUT, else runs/gpu)
# --smoke     tiny sizes: does everything run?  --emulated  on the driver of tools/cuemu, without figures
set -u
root=$(cd "$(dirname "$0")/../.." && pwd) || exit
wheels=${WHEELS:-} out=${OUT:-$root/runs/gpu} limit=285 rounds=9 python=python3 smoke=() patience=1

while [ $# -gt 0 ]; do
  case $1 in
    --wheels) wheels=$2; shift ;;
    --out) out=$2; shift ;;
    --limit) limit=$2; shift ;;
    --rounds) rounds=$2; shift ;;
    --python) python=$2; shift ;;
    --smoke) smoke=(--smoke) ;;
    --emulated) export NNL_EMULATED_GPU=1; limit=1500 patience=5 ;;
    *) sed -n '2,13s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
  esac
  shift
done

[ -z "$wheels" ] || wheels=$(cd "$wheels" && pwd) || exit
mkdir -p "$out" && out=$(cd "$out" && pwd) || exit
work=$(mktemp -d) || exit
running=
trap 'rm -rf "$work"' EXIT
trap '[ -z "$running" ] || kill "$running"; exit 130' INT TERM
cd "$root" || exit
export PYTHONPATH="$work/site:$root${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
export NNL_CACHE_DIR="$work/cache"
: >"$out/log.txt"
rm -f "$out/gpu.json" "$out/operators.json"
failures=0
few=(nnl::softmax nnl::sum nnl::max_pooling nnl::batch_matmul nnl::convolution)
[ ${#smoke[@]} -eq 0 ] && operators=() || operators=("${few[@]}")  # none named: every one

# stage NAME SECONDS COMMAND...: run it in the time that is left, and say how it ended.
stage() {
  local name=$1 seconds=$(($2 * patience)) status start=$SECONDS left=$((limit - SECONDS))
  shift 2
  if [ "$left" -lt 5 ]; then
    echo "== $name: left out, the $limit s are over"
    failures=$((failures + 1))
    return
  fi
  [ "$seconds" -lt "$left" ] || seconds=$left
  echo "== $name" >>"$out/log.txt"
  # Behind the script, so that it hears of Ctrl-C at once.
  timeout -k 5 "$seconds" "$@" >"$work/said" 2>&1 <&0 &
  running=$!
  wait "$running"
  status=$? running=
  cat "$work/said" >>"$out/log.txt"
  case $status in
    0) echo "== $name: done in $((SECONDS - start)) s" ;;
    124 | 137) echo "== $name: stopped after $seconds s" ;;
    *) echo "== $name: failed with status $status in $((SECONDS - start)) s" ;;
  esac
  [ "$status" -eq 0 ] || failures=$((failures + 1))
  case $name in
    versions | operators) tail -n 30 "$work/said" ;;
    *) [ "$status" -eq 0 ] || tail -n 12 "$work/said" ;;
  esac
}

measure() {
  stage "$1" "$2" "$python" -m benchmarks.run gpu --rounds "$rounds" --sections "$1" "${smoke[@]}" \
    --save "$out/gpu.json"
}

if [ -n "$wheels" ]; then
  stage install 60 "$python" -m pip install -q --no-index --no-deps --no-compile --no-cache-dir \
    --disable-pip-version-check --target "$work/site" "$wheels"/*.whl
fi
stage versions 40 "$python" -m benchmarks.gpu.machine
stage operators 100 "$python" -m benchmarks.gpu.correctness --seconds $((85 * patience)) \
  --save "$out/operators.json" "${operators[@]}"
measure memory 45
measure small 60
measure products 30
measure convolutions 40
measure launches 30
measure residual 75
# The fixtures of the tests come with the package where it is installed.
plugins=(-p no:cacheprovider -W default)
"$python" -c 'from importlib.metadata import version; version("nnl-core")' 2>"$work/said" ||
  plugins+=(-p nnl_core.testing.pytest_plugin)
[ "$(nproc)" -lt 8 ] || plugins+=(-n 8)
stage tests 60 "$python" -m pytest -q --maxfail 20 "${plugins[@]}" -m cuda tests/gpu \
  --deselect tests/gpu/test_benchmark.py
if command -v compute-sanitizer >"$work/said"; then
  printf '"%s"\n' "${few[@]}" >"$work/names"
  stage sanitizer 45 compute-sanitizer --error-exitcode 9 "$python" -m \
    benchmarks.gpu.operator_worker <"$work/names"
fi

echo
"$python" -m benchmarks.gpu.results "$out/gpu.json" || failures=$((failures + 1))
echo "stages that failed: $failures; figures and log in $out"
[ "$failures" -eq 0 ]
