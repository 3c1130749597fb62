// The unit tests of the protocol with one bug planted: the one that COLLAB_MUTANT names.
#include <cstdio>
#include <cstdlib>

#include "tests/sim/mutants.h"

namespace {

const bool kPlanted = [] {
  const char* name = std::getenv("COLLAB_MUTANT");
  const collab::sim::MutantRow* row = name == nullptr ? nullptr : collab::sim::row_named(name);
  if (name != nullptr && row == nullptr) {
    std::fprintf(stderr, "COLLAB_MUTANT: no bug is named %s\n", name);
    std::abort();
  }
  collab::sim::plant(row);
  return true;
}();

}  // namespace
