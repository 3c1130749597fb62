// Links that were taken in: how many, of which peers, and which go if there are too many.
#include "core/runtime/admitted_links.h"

#include <gtest/gtest.h>

#include <set>

namespace collab {
namespace {

constexpr std::size_t kFiles = 1024;
constexpr std::size_t kMost = kFiles / 4;

class AdmittedLinksTest : public ::testing::Test {
 protected:
  // The link that goes for it; 0: none. It is closed.
  std::uint64_t come(std::uint64_t link, const std::string& network, const std::string& name = {}) {
    const auto gone =
        taken_.admit(LinkId{link}, network, name, [this](const std::string& each) { return voters_.contains(each); });
    if (gone) taken_.closed(*gone);
    return gone ? gone->value : 0;
  }
  void come_all(std::uint64_t first, std::uint64_t count, const std::string& network) {
    for (std::uint64_t link = first; link < first + count; ++link) ASSERT_EQ(come(link, network), 0U) << link;
  }
  AdmittedLinks taken_{[] { return kFiles; }};
  std::set<std::string> voters_;
};

TEST_F(AdmittedLinksTest, ManyNamesOfOnePeerTakeAQuarterOfTheFilesAndMakeRoom) {
  come_all(1, 40, "site");
  come_all(1000, kMost - 40, "greedy");
  EXPECT_EQ(come(5000, "greedy", "one more"), 5000U);
  EXPECT_EQ(come(50, "site"), 1000 + kMost - 40 - 1) << "its latest";
  EXPECT_EQ(come(60, "third"), 1000 + kMost - 40 - 2);
}

TEST_F(AdmittedLinksTest, AWholeSiteBehindOneAddressKeepsItsLinks) {
  come_all(1, 64, "site");
  for (std::uint64_t host = 0; host < 4; ++host) come_all(1000 * (1 + host), 48, "greedy" + std::to_string(host));
  EXPECT_EQ(come(7000, "greedy9"), 7000U) << "no host has more than 64";
  EXPECT_TRUE(taken_.has(LinkId{64}));
}

TEST_F(AdmittedLinksTest, VotersAreClosedAfterAllOthers) {
  voters_ = {"paris", "rome"};
  EXPECT_EQ(come(1, "site", "paris"), 0U);
  come_all(2, 63, "site");
  for (std::uint64_t host = 0; host < 3; ++host) come_all(1000 * (1 + host), 64, "host" + std::to_string(host));
  EXPECT_EQ(come(8000, "rome's", "rome"), 3063U) << "the latest that has none, wherever";
  EXPECT_EQ(come(8001, "site"), 8001U);
}

// A peer that takes part in a round under many names is a voter under each.
TEST_F(AdmittedLinksTest, ManyVotersOfOneHostPushNobodyOut) {
  come_all(1, 30, "site");
  for (std::uint64_t link = 1000; link < 2000; ++link) {
    voters_.insert(std::to_string(link));
    const std::uint64_t gone = come(link, "greedy", std::to_string(link));
    EXPECT_TRUE(gone == 0 || gone >= 1000) << gone;
  }
  EXPECT_GE(come(31, "site"), 1000U);
}

TEST_F(AdmittedLinksTest, LocalLinksAreClosedAfterAllOthersButVoters) {
  voters_ = {"paris"};
  come_all(1, 100, "");
  come_all(1000, kMost - 100, "greedy");
  EXPECT_EQ(come(101, ""), 1000 + kMost - 100 - 1);
  for (std::uint64_t link = 102; link <= kMost; ++link) EXPECT_GE(come(link, ""), 1000U) << link;
  EXPECT_EQ(come(500, ""), 500U) << "it is bounded, too";
  EXPECT_EQ(come(9000, "paris's", "paris"), kMost) << "the latest of them";
}

TEST(AdmittedLinks, AreAThousandAHostHoweverManyFilesThereAre) {
  AdmittedLinks taken{[] { return std::size_t{1} << 20; }};
  const auto none = [](const std::string&) { return false; };
  for (std::uint64_t link = 1; link <= AdmittedLinks::kMostOfHost; ++link) {
    ASSERT_FALSE(taken.admit(LinkId{link}, "greedy", "", none));
  }
  EXPECT_EQ(taken.admit(LinkId{5000}, "greedy", "", none), LinkId{5000});
  taken.closed(LinkId{5000});
  taken.closed(LinkId{5000});
  taken.closed(LinkId{1});
  EXPECT_FALSE(taken.admit(LinkId{5001}, "greedy", "", none));
  EXPECT_FALSE(taken.admit(LinkId{5002}, "site", "", none));
}

}  // namespace
}  // namespace collab
