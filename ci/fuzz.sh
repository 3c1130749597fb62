#!/usr/bin/env bash
# Runs every fuzz target for SECONDS (default 60), starting from its corpus, and keeps findings in build/fuzz/found.
#
#   ci/fuzz.sh [SECONDS]
. "$(dirname "$0")/common.sh"
seconds="${1:-60}"
install_packages clang-16 libclang-rt-16-dev
configure_and_build fuzz tests/fuzz/all
mkdir -p build/fuzz/found
mapfile -t targets < <(find build/fuzz/tests/fuzz -maxdepth 1 -type f -executable -name '*_fuzz' | sort)
[ ${#targets[@]} -gt 0 ] || die "no fuzz target was built in build/fuzz/tests/fuzz"
for target in "${targets[@]}"; do
  name="$(basename "$target")"
  say "$name, $seconds s"
  mkdir -p "build/fuzz/corpus/$name"
  seeds=()
  [ -d "tests/fuzz/corpus/$name" ] && seeds=("tests/fuzz/corpus/$name")
  "$target" -max_total_time="$seconds" -max_len=65536 -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
    -artifact_prefix="build/fuzz/found/$name-" "build/fuzz/corpus/$name" "${seeds[@]}"
done
