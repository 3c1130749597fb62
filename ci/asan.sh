#!/usr/bin/env bash
# The torch-free core under AddressSanitizer and UndefinedBehaviorSanitizer; a few minutes.
. "$(dirname "$0")/common.sh"
configure_and_build asan
export ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
ctest --preset asan --no-tests=error
