#!/usr/bin/env bash
# The torch-free core without optimisation, all its tests.
. "$(dirname "$0")/common.sh"
configure_and_build debug
ctest --preset debug --no-tests=error
