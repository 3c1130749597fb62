// Each bug planted in the agreement is found where the table says, and what finds it finds nothing without.
#include "tests/sim/mutants.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace collab::sim {
namespace {

int run_unit_test(const MutantRow& row, bool planted) {
  const std::string command = (planted ? "COLLAB_MUTANT=" + std::string(row.name) + " " : "") +
                              "\"" COLLAB_PROTOCOL_MUTANTS "\" --gtest_filter='" + std::string(row.test) +
                              "' >/dev/null 2>&1";
  return std::system(command.c_str());
}

TEST(Mutants, EachIsFoundWhereTheTableSays) {
  for (const MutantRow& row : mutant_table()) {
    SCOPED_TRACE(std::string(row.name) + ": " + std::string(row.breaks));
    switch (row.finder) {
      case Finder::kSwarm:
      case Finder::kHistory:
      case Finder::kExplorer:
        plant(&row);
        EXPECT_FALSE(run_row(row, row.seed).empty()) << replay_row(row, row.seed);
        plant(nullptr);
        EXPECT_TRUE(run_row(row, row.seed).empty()) << replay_row(row, row.seed);
        break;
      case Finder::kNobody:
      case Finder::kUnit:
        EXPECT_FALSE(row.why.empty());
        if (row.test.empty() && row.finder == Finder::kNobody) break;
        EXPECT_NE(run_unit_test(row, true), 0);
        EXPECT_EQ(run_unit_test(row, false), 0);
        break;
    }
  }
}

}  // namespace
}  // namespace collab::sim
