#!/usr/bin/env bash
# Builds the torch-free core without optimisation, and runs all its tests.
. "$(dirname "$0")/common.sh"
configure_and_build debug
ctest --preset debug --no-tests=error
