// The one rule: each set that accepts and each set that promises share a site that remembers.
#include "core/protocol/agreement/quorum.h"

#include <gtest/gtest.h>

#include <vector>

namespace collab::protocol {
namespace {

std::vector<wire::Voter> voters(std::size_t count) {
  std::vector<wire::Voter> list;
  for (std::uint32_t i = 0; i < count; ++i) list.push_back({SiteId{i}, std::string(1, static_cast<char>('a' + i)), {}});
  return list;
}

// Voter i is here as the i-th digit of `code`, to the base of three, says.
Presence digit(std::size_t code, std::uint32_t site) {
  for (; site > 0; --site) code /= 3;
  return static_cast<Presence>(code % 3);
}
std::size_t power_of_3(std::size_t n) { return n == 0 ? 1 : 3 * power_of_3(n - 1); }

Quorum quorum(const std::vector<wire::Voter>& list, std::size_t code) {
  return quorum_of(list, [&](const wire::Voter& voter) { return digit(code, voter.site.value); });
}

TEST(Quorum, AnAcceptingAndAPromisingQuorumShareAVoterWithItsRecord) {
  for (std::size_t n = 1; n <= 6; ++n) {
    const auto list = voters(n);
    for (std::size_t accepts = 0; accepts < power_of_3(n); ++accepts) {
      if (!quorum(list, accepts).can_accept()) continue;
      for (std::size_t promises = 0; promises < power_of_3(n); ++promises) {
        if (!quorum(list, promises).can_promise()) continue;
        bool shared = false;
        for (std::uint32_t i = 0; i < n; ++i) {
          shared = shared || (digit(accepts, i) != Presence::kAbsent && digit(promises, i) == Presence::kWithRecord);
        }
        ASSERT_TRUE(shared) << "of " << n << ": " << accepts << " and " << promises;
      }
    }
  }
}

// Nobody leads beside another under a later term without hearing of it.
TEST(Quorum, AnyTwoSetsThatAcceptShareOne) {
  for (std::size_t n = 1; n <= 6; ++n) {
    const auto list = voters(n);
    for (std::size_t a = 0; a < power_of_3(n); ++a) {
      for (std::size_t b = 0; b < power_of_3(n); ++b) {
        if (!quorum(list, a).can_accept() || !quorum(list, b).can_accept()) continue;
        bool shared = false;
        for (std::uint32_t i = 0; i < n; ++i) {
          shared = shared || (digit(a, i) != Presence::kAbsent && digit(b, i) != Presence::kAbsent);
        }
        ASSERT_TRUE(shared) << "of " << n << ": " << a << " and " << b;
      }
    }
  }
}

TEST(Quorum, NeedsEnoughVotersByNameAndEnoughWithTheirRecords) {
  struct Case {
    std::size_t voters, by_name, with_record;
    bool accept, promise;
  };
  for (const Case& c : std::vector<Case>{{1, 1, 1, true, true},
                                         {1, 1, 0, true, false},
                                         {2, 1, 1, false, false},
                                         {2, 2, 1, true, true},
                                         {2, 2, 0, true, false},
                                         {3, 2, 2, true, true},
                                         {3, 3, 1, true, false},
                                         {3, 1, 1, false, false},
                                         {4, 3, 2, true, true},
                                         {4, 2, 2, false, false},
                                         {5, 3, 3, true, true},
                                         {5, 5, 2, true, false}}) {
    const Quorum quorum{c.voters, c.by_name, c.with_record};
    EXPECT_EQ(quorum.can_accept(), c.accept) << c.voters << ' ' << c.by_name << ' ' << c.with_record;
    EXPECT_EQ(quorum.can_promise(), c.promise) << c.voters << ' ' << c.by_name << ' ' << c.with_record;
    EXPECT_EQ(quorum.lacks_records(), c.accept && !c.promise);
  }
}

TEST(Quorum, OfNoMembersIsNeverReached) {
  EXPECT_FALSE(Quorum{}.can_accept());
  EXPECT_FALSE(Quorum{}.can_promise());
}

TEST(Quorum, ASiteThatLeftCountsByNameWhateverItsKind) {
  auto list = voters(3);
  list[0].left = list[1].left = true;
  for (const Presence presence : {Presence::kAbsent, Presence::kByName, Presence::kWithRecord}) {
    const Quorum quorum = quorum_of(list, [&](const wire::Voter& voter) {
      EXPECT_EQ(voter.name, "c") << "who has left is not looked for";
      return presence;
    });
    EXPECT_EQ(quorum.by_name, presence == Presence::kAbsent ? 2U : 3U);
    EXPECT_EQ(quorum.with_record, presence == Presence::kWithRecord ? 1U : 0U);
  }
}

}  // namespace
}  // namespace collab::protocol
