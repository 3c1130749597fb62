// The invariants find what they are there to find.
#include "tests/unit/protocol/invariants.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace collab::protocol {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

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
  void send_done(std::uint32_t id) {
    write(name(id), 1, record(TermId{1}, {{start, true, {{5, 5}}, {}}}));
    site(name(id), Persisted{1, {}}, {Send{LinkId{1}, wire::Done{TermId{1}, RoundId{1}, AttemptId{1}, {{5, 5}}}}});
  }
  void write(const std::string& name, std::uint64_t number, const wire::Record& what) {
    site(name, Tick{}, {Persist{number, what}});
  }
  static wire::Record record(TermId promised, std::vector<wire::Proposal> proposals = {},
                             AcceptorId acceptor = AcceptorId{3}) {
    wire::Record record;
    record.acceptor = acceptor;
    record.promised = promised;
    record.proposals = std::move(proposals);
    return record;
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
  send_done(0);
  send_done(1);
  done(1);
  done(2);
  out(1, commit);
  out(2, commit);
  for (std::uint32_t id = 0; id < 2; ++id) {
    site(name(id), Tick{}, {ApplyCommit{commit, Base::kParameters, {TermId{1}, start.voters}}});
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
TEST_F(TheFirstAnchor, IsThatOfTheLowestResumedSite) {
  begin_with(1, {1, 2});
  EXPECT_THAT(invariants.broken(), IsEmpty());
}
TEST_F(TheFirstAnchor, IsThatOfTheNamedSite) {
  begin_with(0, {1}, "site0");
  EXPECT_THAT(invariants.broken(), IsEmpty());
}
TEST_F(TheFirstAnchor, IsNotThatOfAFreshSiteIfAnotherResumed) {
  begin_with(0, {1});
  EXPECT_THAT(invariants.broken(), Contains(HasSubstr("with the parameters of site 0, not with those of site1")));
}
TEST_F(TheFirstAnchor, IsNotThatOfAnotherThanIsNamed) {
  begin_with(1, {1}, "site0");
  EXPECT_THAT(invariants.broken(), Contains(HasSubstr("not with those of site0")));
}
TEST_F(TheFirstAnchor, WaitsForTheNamedSite) {
  begin_with(0, {}, "rome");
  EXPECT_THAT(invariants.broken(), Contains(HasSubstr("began without rome")));
}
TEST_F(TheFirstAnchor, MayBeAnyIfASiteHoldsAnAnchor) {
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

TEST_F(InvariantsTest, ATermHasOneLeaderThatCommits) {
  out(1, start);
  invariants.coordinator_step("another", Tick{}, {Send{LinkId{1}, commit}});
  EXPECT_THAT(invariants.broken(), Contains(HasSubstr("another leads term 1 of run 7, and so did coordinator")));
}

// tokyo and lima go on under another name; paris does without a record.
class RenamedTest : public InvariantsTest {
 protected:
  void comes(std::uint64_t link, const std::string& name, std::uint64_t run, std::uint64_t round) {
    wire::Join join;
    join.site = name;
    join.offer = {RunId{run}, RoundId{round}, {3, round}};
    join.report.record.anchor = join.offer;
    join.report.record.voters = start.voters;
    invariants.coordinator_step("another", Received{LinkId{link}, join},
                                {Send{LinkId{link}, wire::Welcome{TermId{2}, id(link), 1, 1}}});
  }
  void committed(std::uint64_t run, std::uint64_t round) {
    wire::Commit other = commit;
    other.run = RunId{run};
    other.round = RoundId{round};
    invariants.coordinator_step("before", Tick{}, {Send{LinkId{1}, other}});
  }
  std::vector<std::string> begins(std::uint64_t source) {
    const std::size_t before = invariants.broken().size();
    invariants.coordinator_step(
        "another", Tick{},
        {Send{LinkId{11}, wire::InstallAnchor{TermId{2}, RunId{9}, RoundId{40}, {id(source)}, {3, 40}}}});
    return {invariants.broken().begin() + static_cast<std::ptrdiff_t>(before), invariants.broken().end()};
  }
  static SiteId id(std::uint64_t link) { return SiteId{static_cast<std::uint32_t>(link - 11)}; }
};

TEST_F(RenamedTest, ARenamedRunMayContinueFromTheNewestAnchor) {
  committed(7, 40);
  committed(8, 2);
  comes(11, "tokyo", 7, 40);
  comes(12, "lima", 8, 2);
  EXPECT_THAT(begins(11), IsEmpty());
}

TEST_F(RenamedTest, NotALaterRunAtFewerRounds) {
  committed(7, 40);
  committed(8, 2);
  comes(11, "tokyo", 7, 40);
  comes(12, "lima", 8, 2);
  EXPECT_THAT(begins(12),
              Contains(HasSubstr("run 9 goes on from round 2 of run 8, and tokyo brought round 40 of run 7")));
}

TEST_F(RenamedTest, AnUncommittedVectorIsNoAnchor) {
  committed(8, 2);
  comes(11, "tokyo", 7, 40);
  comes(12, "lima", 8, 2);
  EXPECT_THAT(begins(12), IsEmpty());
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

TEST_F(InvariantsTest, OneCommitARoundWhateverLeaderSendsIt) {
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

TEST_F(InvariantsTest, NoSiteAppliesBeforeAllAreDone) {
  out(1, start);
  start_both();
  send_done(0);
  done(1);
  done(2);  // said for the other
  out(1, commit);
  site("paris", Tick{}, {ApplyCommit{commit, Base::kParameters, {TermId{1}, start.voters}}});
  EXPECT_THAT(invariants.broken(), Contains(HasSubstr("never said that it was done")));
}

TEST_F(InvariantsTest, AllHoldTheSameAfterACommit) {
  out(1, start);
  start_both();
  send_done(0);
  send_done(1);
  done(1);
  done(2);
  out(1, commit);
  for (std::uint32_t id = 0; id < 2; ++id) {
    site(name(id), Tick{}, {ApplyCommit{commit, Base::kParameters, {TermId{1}, start.voters}}});
    site(name(id), Applied{RoundId{1}, {id, 9}}, {});
  }
  EXPECT_THAT(invariants.broken(), Contains(HasSubstr("tokyo has another state after round 1 than paris")));
}

// ---- durable before it is said ---------------------------------------------------------------------

class Durable : public InvariantsTest {
 protected:
  void says(const SiteEvent& event, wire::Message message) {
    site("paris", event, {Send{LinkId{1}, std::move(message)}});
  }
  static wire::Promise promise(const wire::Record& record) { return {record.promised, {}, {record}}; }
  void accepts() { site("paris", Received{LinkId{1}, wire::Accept{TermId{2}, {settled()}}}, {}); }
  [[nodiscard]] wire::Proposal settled() const { return {start, true, {{5, 5}}, TermId{2}}; }
};

TEST_F(Durable, EachMessageFollowsItsDurableRecord) {
  write("paris", 1, record(TermId{2}));
  says(Persisted{1, {}}, promise(record(TermId{2})));
  accepts();
  write("paris", 2, record(TermId{2}, {settled()}));
  says(Persisted{2, {}}, wire::Accepted{TermId{2}});
  write("paris", 3, record(TermId{2}, {settled()}, AcceptorId{4}));
  says(Persisted{3, {}}, wire::Leave{"trained to the end"});
  EXPECT_THAT(invariants.broken(), IsEmpty());
}
TEST_F(Durable, ADurableRecordAlsoCoversTheRecordItReplaced) {
  write("paris", 1, record(TermId{2}));
  write("paris", 2, record(TermId{2}));
  says(Persisted{2, {}}, promise(record(TermId{2})));
  EXPECT_THAT(invariants.broken(), IsEmpty());
}
TEST_F(Durable, APromiseBeforeItsRecordIsABreach) {
  write("paris", 1, record(TermId{2}));
  says(Tick{}, promise(record(TermId{2})));
  EXPECT_THAT(invariants.broken(), Contains(HasSubstr("promises term 2 before that is durable")));
}
TEST_F(Durable, APromiseThatTellsOfMoreThanTheRecordIsABreach) {
  write("paris", 1, record(TermId{2}));
  says(Persisted{1, {}}, promise(record(TermId{2}, {settled()})));
  EXPECT_THAT(invariants.broken(), Contains(HasSubstr("promises term 2 before that is durable")));
}
TEST_F(Durable, APromiseThatIsTooLateToCountIsNoBreach) {
  site("paris", Received{LinkId{1}, wire::Welcome{TermId{2}, SiteId{0}, 1, 1}}, {});
  says(Tick{}, promise(record(TermId{2})));
  EXPECT_THAT(invariants.broken(), IsEmpty());
}
TEST_F(Durable, AWriteThatWasOvertakenAndFailsEndsTheMemory) {
  write("paris", 1, record(TermId{2}));
  write("paris", 2, record(TermId{2}));
  site("paris", Persisted{2, {}}, {});
  says(Persisted{1, unavailable("no space")}, promise(record(TermId{2})));
  EXPECT_THAT(invariants.broken(), Contains(HasSubstr("promises term 2 before that is durable")));
}
TEST_F(Durable, AFailedWriteMakesNothingDurable) {
  write("paris", 1, record(TermId{2}));
  says(Persisted{1, unavailable("no space")}, promise(record(TermId{2})));
  EXPECT_THAT(invariants.broken(), Contains(HasSubstr("promises term 2 before that is durable")));
}
TEST_F(Durable, PromisesOfOneMemoryAscend) {
  write("paris", 1, record(TermId{2}));
  says(Persisted{1, {}}, promise(record(TermId{2})));
  write("paris", 2, record(TermId{2}));
  says(Persisted{2, {}}, promise(record(TermId{2})));
  EXPECT_THAT(invariants.broken(), Contains(HasSubstr("promises term 2 after term 2")));
}
TEST_F(Durable, AnAcceptBeforeItsRecordIsABreach) {
  write("paris", 1, record(TermId{2}));
  accepts();
  says(Persisted{1, {}}, wire::Accepted{TermId{2}});
  EXPECT_THAT(invariants.broken(), Contains(HasSubstr("accepts something under term 2 before that is durable")));
}
TEST_F(Durable, AnAcceptUnderATermThatIsNotDurableIsABreach) {
  write("paris", 1, record(TermId{1}, {settled()}));
  accepts();
  says(Persisted{1, {}}, wire::Accepted{TermId{2}});
  EXPECT_THAT(invariants.broken(), Contains(HasSubstr("accepts something under term 2 before that is durable")));
}
TEST_F(Durable, DoneBeforeItsRecordIsABreach) {
  start_both();
  write("paris", 1, record(TermId{1}, {{start, false, {}, {}}}));
  says(Persisted{1, {}}, wire::Done{TermId{1}, RoundId{1}, AttemptId{1}, {{5, 5}}});
  EXPECT_THAT(invariants.broken(), Contains(HasSubstr("done with round 1 attempt 1 before that is durable")));
}
TEST_F(Durable, LeaveBeforeTheEndOfTheMemoryIsABreach) {
  write("paris", 1, record(TermId{2}));
  says(Persisted{1, {}}, promise(record(TermId{2})));
  says(Tick{}, wire::Leave{"trained to the end"});
  EXPECT_THAT(invariants.broken(), Contains(HasSubstr("leaves before the end of its memory is durable")));
}

// ---- what a memory is of ---------------------------------------------------------------------------

class Memories : public InvariantsTest {
 protected:
  void keeps(std::uint64_t number, RunId run, std::vector<wire::Proposal> proposals = {},
             AcceptorId as = AcceptorId{3}) {
    wire::Record kept = record(TermId{2}, std::move(proposals), as);
    kept.anchor = {run, RoundId{0}, {1, 1}};
    write("paris", number, kept);
  }
  void says_installed() {
    site("paris", Tick{}, {Send{LinkId{1}, wire::AnchorInstalled{RunId{7}, RoundId{0}, {1, 1}, AcceptorId{3}}}});
  }
};

TEST_F(Memories, AreOfOneRunEach) {
  keeps(1, RunId{7}, {{start, true, {{5, 5}}, {}}});
  keeps(2, RunId{8}, {{start, true, {{5, 5}}, TermId{2}}}, AcceptorId{4});  // accepted from a successor
  EXPECT_THAT(invariants.broken(), IsEmpty());
  keeps(3, RunId{8}, {}, AcceptorId{3});
  EXPECT_THAT(invariants.broken(), Contains(HasSubstr("in one memory what it agreed on in two runs")));
}

// Its record says of no run, and a process that goes on from it may come to another.
TEST_F(Memories, WithNothingDurableBelongToNoRun) {
  wire::Record kept = record(TermId{2}, {}, AcceptorId{3});
  kept.anchor = {RunId{7}, RoundId{0}, {1, 1}};
  wire::Join join;
  join.site = "paris";
  for (const char* process : {"paris.1", "paris.2"}) site(process, Begin{join}, {});
  site("paris.1", Tick{}, {Persist{1, kept}});
  kept.anchor.run = RunId{8};
  site("paris.2", Tick{}, {Persist{1, kept}});
  EXPECT_THAT(invariants.broken(), IsEmpty());
}

TEST_F(Memories, HoldNoAttemptOfAnotherRun) {
  keeps(1, RunId{8}, {{start, true, {{5, 5}}, {}}});
  EXPECT_THAT(invariants.broken(), Contains(HasSubstr("of another run than its anchor")));
}
TEST_F(Memories, EndWithAWriteThatFails) {
  keeps(1, RunId{7});
  site("paris", Persisted{1, {}}, {});
  says_installed();
  EXPECT_THAT(invariants.broken(), IsEmpty());
  keeps(2, RunId{7});
  site("paris", Persisted{2, unavailable("no space")}, {});
  says_installed();
  EXPECT_THAT(invariants.broken(), Contains(HasSubstr("goes on with a memory that could not be written")));
}

// ---- who votes -------------------------------------------------------------------------------------

TEST_F(InvariantsTest, AnAnchorLiesWithItsMembershipAndTerm) {
  start_both();
  site("paris", Tick{}, {KeepAnchor{RunId{7}, RoundId{0}, {1, 1}, {TermId{1}, start.voters}}});
  EXPECT_THAT(invariants.broken(), IsEmpty());
  site("paris", Tick{}, {ReceiveAnchor{RunId{7}, RoundId{0}, {1, 1}, {TermId{1}, {}}}});
  EXPECT_THAT(invariants.broken(), Contains(HasSubstr("without the membership as of it")));
  site("tokyo", Tick{}, {KeepAnchor{RunId{7}, RoundId{0}, {1, 1}, {TermId{}, start.voters}}});
  EXPECT_THAT(invariants.broken(), Contains(HasSubstr("tokyo keeps an anchor with term 0, and follows term 1")));
}
TEST_F(InvariantsTest, SitesThatLeftAreRemembered) {
  start_both();
  const wire::MemberLeft left{TermId{1}, "tokyo", AcceptorId{2}};
  wire::Record kept = record(TermId{1});
  kept.voters = start.voters;
  kept.voters[1].left = true;
  site("paris", Received{LinkId{1}, left}, {Persist{1, kept}});
  EXPECT_THAT(invariants.broken(), IsEmpty());
  site("paris", Received{LinkId{1}, left}, {});
  kept.voters[1].left = false;
  site("paris", Received{LinkId{1}, left}, {Persist{2, kept}});
  EXPECT_THAT(invariants.broken(), SizeIs(2));
}
TEST_F(InvariantsTest, ANonVoterThatTakesNoPartGetsNoVote) {
  out(1, wire::InstallAnchor{TermId{1}, RunId{7}, RoundId{0}, {}, {1, 1}, wire::Counted::kNo, start.voters});
  out(1, start);
  EXPECT_THAT(invariants.broken(), IsEmpty());
  start.attempt = AttemptId{2};
  start.voters.push_back({SiteId{2}, "lima", AcceptorId{5}});
  out(1, start);
  EXPECT_THAT(invariants.broken(), Contains(HasSubstr("lima takes no part, had no say")));
}

// paris and tokyo agreed on round 0; tokyo goes.
class TheOthers : public InvariantsTest {
 protected:
  TheOthers() {
    for (std::uint32_t id = 0; id < 2; ++id) {
      wire::Join join;
      join.site = name(id);
      join.offer = {RunId{8}, RoundId{0}, {1, 1}};
      join.report.record.acceptor = AcceptorId{id + 1};
      join.report.record.voters = start.voters;
      step(Received{LinkId{10 + id}, join}, {Send{LinkId{10 + id}, wire::Welcome{TermId{2}, SiteId{id}, 1, 1}}});
    }
    step(Tick{}, {Send{LinkId{10},
                       wire::InstallAnchor{
                           TermId{2}, RunId{8}, RoundId{0}, {SiteId{0}}, {1, 1}, wire::Counted::kNo, start.voters}}});
  }
  void leaves(const std::vector<CoordinatorAction>& actions) {
    step(Received{LinkId{11}, wire::Leave{"trained to the end"}}, actions);
  }
  void step(const CoordinatorEvent& event, const std::vector<CoordinatorAction>& actions) {
    invariants.coordinator_step("another", event, actions);
  }
};

TEST_F(TheOthers, HearOfAVoterThatLeaves) {
  leaves({Send{LinkId{10}, wire::MemberLeft{TermId{2}, "tokyo", AcceptorId{2}}}});
  EXPECT_THAT(invariants.broken(), IsEmpty());
}
TEST_F(TheOthers, AreNotLeftToMissIt) {
  leaves({});
  EXPECT_THAT(invariants.broken(), Contains(HasSubstr("tokyo leaves, and the others do not hear of it")));
}

// ---- what a successor commits ----------------------------------------------------------------------

// Both have come to it and accepted under term 2.
class JudgedSuccessor : public InvariantsTest {
 protected:
  JudgedSuccessor() { out(1, start); }
  void commits(const std::vector<wire::Proposal>& proposals) {
    for (std::uint32_t id = 0; id < 2; ++id) {
      wire::Join join;
      join.site = name(id);
      step(Received{LinkId{id}, join}, {Send{LinkId{id}, wire::Accept{TermId{2}, proposals}}});
      step(Received{LinkId{id}, wire::Accepted{TermId{2}}}, {});
    }
    wire::Commit again = commit;
    again.term = TermId{2};
    step(Tick{}, {Send{LinkId{0}, again}});
  }
  void step(const CoordinatorEvent& event, const std::vector<CoordinatorAction>& actions) {
    invariants.coordinator_step("successor", event, actions);
  }
};

TEST_F(JudgedSuccessor, CommitsWhatWasAcceptedAgain) {
  commits({{start, true, {{5, 5}}, TermId{2}}});
  EXPECT_THAT(invariants.broken(), IsEmpty());
}
TEST_F(JudgedSuccessor, CommitsNothingThatItHasNotProposed) {
  commits({});
  EXPECT_THAT(invariants.broken(), Contains(HasSubstr("it was not accepted under term 2")));
}
TEST_F(JudgedSuccessor, CommitsNothingElse) {
  wire::StartAttempt other = start;
  other.attempt = AttemptId{2};
  commits({{other, true, {{5, 5}}, TermId{2}}});
  EXPECT_THAT(invariants.broken(), Contains(HasSubstr("it was not accepted under term 2")));
}
TEST_F(InvariantsTest, TheMembershipBeforeIsKnown) {
  out(1, wire::InstallAnchor{TermId{1}, RunId{7}, RoundId{0}, {}, {1, 1}, wire::Counted::kNo, start.voters});
  start.round = RoundId{3};
  out(1, start);
  wire::Commit third = commit;
  third.round = RoundId{3};
  out(1, third);
  EXPECT_THAT(invariants.broken(), Contains(HasSubstr("the membership before is not known")));
}

// ---- whether a contribution counted ----------------------------------------------------------------

// lima holds round 0 and is let in when the swarm is at round 1; paris has told of that one's commit when it promised,
// or has not.
class Unknown : public InvariantsTest {
 protected:
  void told(const std::vector<wire::Past>& recent) {
    wire::Join paris;
    paris.site = "paris";
    step(Received{LinkId{1}, paris}, {});
    wire::Promise promise{TermId{2}, {}};
    promise.report.record.recent = recent;
    step(Received{LinkId{1}, promise}, {Send{LinkId{1}, wire::Welcome{TermId{2}, SiteId{0}, 1, 1}}});
    wire::Join lima;
    lima.site = "lima";
    lima.offer = {RunId{7}, RoundId{0}, {1, 1}};
    step(Received{LinkId{2}, lima}, {Send{LinkId{2}, wire::Welcome{TermId{2}, SiteId{2}, 1, 1}}});
    step(Tick{}, {Send{LinkId{2}, wire::InstallAnchor{
                                      TermId{2}, RunId{7}, RoundId{1}, {SiteId{0}}, {9, 9}, wire::Counted::kUnknown}}});
  }
  void step(const CoordinatorEvent& event, const std::vector<CoordinatorAction>& actions) {
    invariants.coordinator_step("successor", event, actions);
  }
};

TEST_F(Unknown, IsTheAnswerIfNoMemberHasReportedTheCommit) {
  told({});
  EXPECT_THAT(invariants.broken(), IsEmpty());
}
TEST_F(Unknown, IsABreachIfAMemberHasReportedTheCommit) {
  told({{RunId{7}, RoundId{1}, AttemptId{1}, {"paris"}, {}}});
  EXPECT_THAT(invariants.broken(), Contains(HasSubstr("whose commit paris has told of")));
}

TEST_F(InvariantsTest, AnEndedSiteStaysEnded) {
  site("paris", Tick{}, {Left{}});
  site("paris", Tick{}, {Left{}});
  EXPECT_THAT(invariants.broken(), Contains(HasSubstr("acts after it has left or failed")));
}

}  // namespace
}  // namespace collab::protocol
