#!/usr/bin/env bash
# The torch-free core under ThreadSanitizer, with no suppressions; about ten minutes. Simulations have one thread and run
# a hundred times slower under it, so ci/asan.sh runs them.
. "$(dirname "$0")/common.sh"
configure_and_build tsan
export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1
# g++ 12's ThreadSanitizer does not know the memory layouts that newer kernels choose at random.
setarch "$(uname -m)" -R ctest --preset tsan -LE sim --no-tests=error
