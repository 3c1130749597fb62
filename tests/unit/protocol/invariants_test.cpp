// The invariants see what they are there to see.
#include "tests/unit/protocol/invariants.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace collab::protocol {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

class InvariantsTest : public testing::Test {
 protected:
  InvariantsTest() {
    start = {TermId{1},
             1,
             {},
             RunId{7},
             RoundId{1},
             AttemptId{1},
             {{SiteId{0}, "paris", 1}, {SiteId{1}, "tokyo", 1}},
             {{SiteId{0}, {0, 4096}}},
             {{SiteId{0}, "paris", AcceptorId{1}}, {SiteId{1}, "tokyo", AcceptorId{2}}}};
    out(1, wire::Welcome{TermId{1}, SiteId{0}, 1, 1});
    out(2, wire::Welcome{TermId{1}, SiteId{1}, 1, 1});
    out(1, wire::InstallAnchor{TermId{1}, RunId{7}, RoundId{0}, {SiteId{0}}, {1, 1}});
  }
  void out(std::uint64_t link, wire::Message message) {
    invariants.coordinator_step("coordinator", Tick{}, {Send{LinkId{link}, std::move(message)}});
  }
  void done(std::uint64_t link, Digest digest = {5, 5}) {
    invariants.coordinator_step("coordinator",
                                Received{LinkId{link}, wire::Done{TermId{1}, RoundId{1}, AttemptId{1}, {digest}}}, {});
  }
  void site(const std::string& name, const SiteEvent& event, std::vector<SiteAction> actions) {
    invariants.site_step(name, event, actions);
  }
  // Both sites have joined and exchanged; neither has said that it is done.
  void start_both() {
    for (std::uint32_t id = 0; id < 2; ++id) {
      site(name(id), Received{LinkId{1}, wire::Welcome{TermId{1}, SiteId{id}, 1, 1}}, {});
      site(name(id), Tick{}, {JoinDone{SiteId{id}, RunId{7}, RoundId{0}}});
      site(name(id), Tick{}, {StartExchange{start, SiteId{id}, {LinkId{0}, LinkId{0}}}});
    }
  }
  void say_done(std::uint32_t id) {
    site(name(id), Tick{}, {Send{LinkId{1}, wire::Done{TermId{1}, RoundId{1}, AttemptId{1}, {{5, 5}}}}});
  }
  static std::string name(std::uint32_t id) { return id == 0 ? "paris" : "tokyo"; }

  wire::StartAttempt start;
  const wire::Commit commit{TermId{1}, RunId{7}, RoundId{1}, AttemptId{1}, {SiteId{0}, SiteId{1}}};
  Invariants invariants;
};

TEST_F(InvariantsTest, ARoundAsItShouldBe) {
  out(1, start);
  out(2, start);
  start_both();
  say_done(0);
  say_done(1);
  done(1);
  done(2);
  out(1, commit);
  out(2, commit);
  for (std::uint32_t id = 0; id < 2; ++id) {
    site(name(id), Tick{}, {ApplyCommit{commit, Base::kParameters}});
    site(name(id), Applied{RoundId{1}, {9, 9}}, {});
  }
  EXPECT_THAT(invariants.broken(), IsEmpty());
}

// Of three fresh sites, with what each says; the swarm begins with the parameters of one of them.
class TheFirstAnchor : public InvariantsTest {
 protected:
  void begin_with(std::uint32_t site, const std::set<std::uint32_t>& resumed, const std::string& named = "") {
    for (std::uint32_t id = 0; id < 3; ++id) {
      wire::Join join;
      join.site = "site" + std::to_string(id);
      join.resumed = resumed.count(id) != 0;
      join.offer.digest = {id, id};
      if (id == 2) join.init_from = named;
      step(Received{LinkId{10 + id}, join}, {Send{LinkId{10 + id}, wire::Welcome{TermId{1}, SiteId{id}, 1, 1}}});
    }
    step(Tick{},
         {Send{LinkId{10}, wire::InstallAnchor{TermId{1}, RunId{8}, RoundId{0}, {SiteId{site}}, {site, site}}}});
  }
  void step(const CoordinatorEvent& event, const std::vector<CoordinatorAction>& actions) {
    invariants.coordinator_step("another", event, actions);
  }
};

TEST_F(TheFirstAnchor, IsThatOfTheLowest) {
  begin_with(0, {});
  EXPECT_THAT(invariants.broken(), IsEmpty());
}
TEST_F(TheFirstAnchor, IsThatOfTheLowestWhoResumed) {
  begin_with(1, {1, 2});
  EXPECT_THAT(invariants.broken(), IsEmpty());
}
TEST_F(TheFirstAnchor, IsThatOfWhoIsNamed) {
  begin_with(0, {1}, "site0");
  EXPECT_THAT(invariants.broken(), IsEmpty());
}
TEST_F(TheFirstAnchor, IsNotThatOfAFreshOneWhereOneResumed) {
  begin_with(0, {1});
  EXPECT_THAT(invariants.broken(), Contains(HasSubstr("with the parameters of site 0, not with those of site1")));
}
TEST_F(TheFirstAnchor, IsNotThatOfAnotherThanIsNamed) {
  begin_with(1, {1}, "site0");
  EXPECT_THAT(invariants.broken(), Contains(HasSubstr("not with those of site0")));
}
TEST_F(TheFirstAnchor, WaitsForWhoIsNamed) {
  begin_with(0, {}, "rome");
  EXPECT_THAT(invariants.broken(), Contains(HasSubstr("began without rome")));
}
TEST_F(TheFirstAnchor, MayBeAnyWhereOneIsHeld) {
  wire::Join join;
  join.site = "site3";
  join.offer = {RunId{5}, RoundId{0}, {9, 9}};
  step(Received{LinkId{13}, join}, {Send{LinkId{13}, wire::Welcome{TermId{1}, SiteId{3}, 1, 1}}});
  begin_with(2, {1});
  EXPECT_THAT(invariants.broken(), IsEmpty());
}

TEST_F(InvariantsTest, AnAttemptIsAlikeForAll) {
  out(1, start);
  start.participants[0].weight = 2;
  out(2, start);
  EXPECT_THAT(invariants.broken(), Contains(HasSubstr("formed in two ways")));
}

TEST_F(InvariantsTest, AttemptsAscend) {
  start.attempt = AttemptId{2};
  out(1, start);
  start.attempt = AttemptId{1};
  out(1, start);
  EXPECT_THAT(invariants.broken(), Contains(HasSubstr("formed after attempt 2")));
}

TEST_F(InvariantsTest, CommitNeedsAllDone) {
  out(1, start);
  done(1);
  out(1, commit);
  EXPECT_THAT(invariants.broken(), Contains(HasSubstr("site 1 was not done")));
}

TEST_F(InvariantsTest, CommitNeedsEqualMeans) {
  out(1, start);
  done(1);
  done(2, {6, 6});
  out(1, commit);
  EXPECT_THAT(invariants.broken(), Contains(HasSubstr("the means differ")));
}

TEST_F(InvariantsTest, OneCommitARoundWhoeverSendsIt) {
  out(1, start);
  done(1);
  done(2);
  out(1, commit);
  wire::Commit other = commit;
  other.attempt = AttemptId{2};
  other.term = TermId{2};
  invariants.coordinator_step("successor", Tick{}, {Send{LinkId{1}, other}});
  EXPECT_THAT(invariants.broken(), Contains(HasSubstr("contradicts")));
}

TEST_F(InvariantsTest, ContributorsAreThoseWithAWeight) {
  out(1, start);
  done(1);
  done(2);
  wire::Commit short_one = commit;
  short_one.contributors.pop_back();
  out(1, short_one);
  EXPECT_THAT(invariants.broken(), Contains(HasSubstr("contributors are not those who had a weight")));
}

TEST_F(InvariantsTest, NobodyAppliesBeforeAllAreDone) {
  out(1, start);
  start_both();
  say_done(0);
  done(1);
  done(2);  // said for the other
  out(1, commit);
  site("paris", Tick{}, {ApplyCommit{commit, Base::kParameters}});
  EXPECT_THAT(invariants.broken(), Contains(HasSubstr("never said that it was done")));
}

TEST_F(InvariantsTest, AllHoldTheSameAfterACommit) {
  out(1, start);
  start_both();
  say_done(0);
  say_done(1);
  done(1);
  done(2);
  out(1, commit);
  for (std::uint32_t id = 0; id < 2; ++id) {
    site(name(id), Tick{}, {ApplyCommit{commit, Base::kParameters}});
    site(name(id), Applied{RoundId{1}, {id, 9}}, {});
  }
  EXPECT_THAT(invariants.broken(), Contains(HasSubstr("tokyo has another state after round 1 than paris")));
}

TEST_F(InvariantsTest, WhoIsOverIsOver) {
  site("paris", Tick{}, {Left{}});
  site("paris", Tick{}, {Left{}});
  EXPECT_THAT(invariants.broken(), Contains(HasSubstr("acts after it has left or failed")));
}

}  // namespace
}  // namespace collab::protocol
