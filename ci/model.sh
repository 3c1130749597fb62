#!/usr/bin/env bash
# Checks the agreement as a model (tests/model): every state within some bounds, then planted errors, each of which must
# be found. Takes less than a minute on two cores, and 1 GiB.
#
#   ci/model.sh          as ci/test.sh runs it
#   ci/model.sh --full   wider bounds as well: about five minutes, 3 GiB
#
# Generated files, and the trace of an error, are in build/model.
. "$(dirname "$0")/common.sh"

full=no
case "${1-}" in
  "") ;;
  --full) full=yes ;;
  *) die "unknown argument $1; expected nothing or --full" ;;
esac
command -v spin >/dev/null || die "spin is not installed: apt-get install spin (ci/setup.sh does)"

memory_mib=3000
# By default two terms, one attempt a term, two rounds, three sites, all voters, and one may lose its record.
bounds=(
  "-DTERMS=3 -DROUNDS=1"
  "-DATTEMPTS=2 -DROUNDS=1"
  "-DSHARED=1"
  "-DTERMS=3 -DVOTERS=5"
  "-DLEAVES=1"
  "-DLEAVES=2"
)
if [ "$full" = yes ]; then
  bounds+=(
    "-DTERMS=3"
    "-DATTEMPTS=2"
    "-DTERMS=4 -DROUNDS=1 -DFORGETS=0"
    "-DSHARED=1 -DVOTERS=5 -DATTEMPTS=2"
    "-DFORGETS=2 -DTERMS=3 -DROUNDS=1"
    "-DFORGETS=2 -DTERMS=3 -DVOTERS=5"
    "-DFORGETS=3 -DTERMS=3 -DVOTERS=5 -DROUNDS=1"
    "-DLEAVES=1 -DATTEMPTS=2 -DROUNDS=1 -DFORGETS=0"
    "-DLEAVES=1 -DTERMS=3 -DROUNDS=1 -DFORGETS=0"
    "-DLEAVES=2 -DTERMS=3 -DROUNDS=1"
    "-DRESTARTS=1 -DTERMS=3 -DROUNDS=1"
    "-DRESTARTS=1 -DTERMS=3 -DVOTERS=5"
  )
fi
# The rule that is broken, and the smallest bounds under which this shows. Unbroken, these bounds have no errors.
planted=(
  "RECORDS half of those who promise need not have their records"
  "LATE a site that recovers counts in a term begun before it came"
  "FROZEN with nothing to settle, Accept is not waited for"
  "ACCEPT what is settled is not accepted under the new term -DTERMS=3 -DROUNDS=1 -DVOTERS=5"
  "SETTLE what may have been committed is never settled"
  "ABSENT given up although all participants who promised have accepted it"
  "RANK of two attempts, the term under which one was settled is not looked at -DTERMS=4 -DROUNDS=1 -DFORGETS=0"
  "NEXT the membership of what is settled is not asked -DTERMS=3 -DVOTERS=5"
  "PROMISE an acceptor follows a term older than the one it has promised"
  "DONE committed when most of the participants have accepted"
  "HALF half of a membership is enough to accept"
  "MEMBERSHIP attempts are formed with the first membership for ever"
  "LEAVE a site leaves, and keeps its memory -DLEAVES=1 -DROUNDS=1 -DFORGETS=0"
)

# search FLAGS...: sets states, errors (a number, or what went wrong) and took.
search() {
  local folder="build/model/check" begin=$SECONDS
  rm -rf "$folder"
  mkdir -p "$folder"
  cp tests/model/agreement.pml "$folder"
  (
    # No partial order reduction, because all variables are shared. -E: a state without further steps is no error.
    cd "$folder" && spin -a "$@" agreement.pml &&
      "${CC:-cc}" -O2 -DSAFETY -DNOREDUCE -DNOBOUNDCHECK -DMEMLIM="$memory_mib" -w -o pan pan.c &&
      ./pan -E -m1000 -w23 >pan.log
  ) || die "the model could not be searched with $*: see above, and $folder/pan.log"
  states="$(awk '/states, stored/ { printf "%d", $1 }' "$folder/pan.log")"
  errors="$(sed -n 's/.*errors: \([0-9]*\)$/\1/p' "$folder/pan.log")"
  if [ "$errors" != 0 ]; then
    grep -q "assertion violated" "$folder/pan.log" || errors="no end: $(grep -m1 '^pan:' "$folder/pan.log")"
  elif grep -q "Search not completed\|too small\|MEMLIM bound" "$folder/pan.log"; then
    errors="not every state was looked at"
  fi
  took=$((SECONDS - begin))
}

rm -rf build/model
say "every state"
total=0
wrong=0
for flags in "${bounds[@]}"; do
  read -ra each <<<"$flags"
  search "${each[@]}"
  printf '%9d states %4d s  errors: %-3s %s\n' "$states" "$took" "$errors" "$flags"
  total=$((total + states))
  [ "$errors" = 0 ] && continue
  wrong=$((wrong + 1))
  rm -rf "build/model/wrong-$wrong"
  mv build/model/check "build/model/wrong-$wrong"
  [ "$errors" = 1 ] || continue
  echo "          the way there: cd build/model/wrong-$wrong && spin -t $flags agreement.pml"
done

say "planted errors"
found=0
for plant in "${planted[@]}"; do
  words="${plant%% -D*}"
  read -ra each <<<"-DBREAK_${words%% *} ${plant#"$words"}"
  search "${each[@]}"
  verdict=MISSED
  if [ "$errors" = 1 ]; then
    verdict=found
    found=$((found + 1))
  fi
  printf '%-7s %8d states %4d s  %s\n' "$verdict" "$states" "$took" "$words"
done

echo
echo "model: $total states, $wrong errors; $found of ${#planted[@]} planted errors found"
[ "$wrong" -eq 0 ] && [ "$found" -eq ${#planted[@]} ]
