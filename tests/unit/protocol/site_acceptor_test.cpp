// A site as an acceptor: nothing that others may rely on is said before the record of it is durable.
#include <gmock/gmock.h>

#include <set>

#include "core/protocol/agreement/acceptor.h"
#include "core/protocol/agreement/attempt.h"
#include "core/wire/limits.h"
#include "tests/unit/protocol/harness.h"

namespace collab::protocol {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using H = SiteHarness;

const std::vector<std::string> kTwo{"paris", "tokyo"};
const std::vector<Digest> kMean{{5, 5}, {6, 6}};

// Site 1 of two that hold (run 7, round 0); records become durable when the test says so.
class SiteAcceptor : public testing::Test {
 protected:
  SiteAcceptor() {
    s.become(1, kTwo);
    s.writes_wait = true;
  }
  // The last record that was asked for, and what is said once it is durable.
  std::uint64_t asked(const H::Actions& actions) {
    const auto writes = all<Persist>(actions);
    if (writes.empty()) return 0;
    record = writes.back().record;
    return writes.back().number;
  }
  H::Actions durable(std::uint64_t number, Status why = {}) { return s.step(Persisted{number, std::move(why)}); }
  // Its coordinator is lost; it asks another one, on link 5.
  void ask_again() {
    static_cast<void>(s.step(Closed{LinkId{1}, unavailable("reset")}));
    static_cast<void>(s.pass(seconds(1)));
    ASSERT_EQ(sent<wire::Join>(s.step(CoordinatorConnected{LinkId{5}})).size(), 1U);
  }
  // In the exchange of attempt 1.
  void exchange() {
    s.link_to(0, "paris", 2);
    static_cast<void>(s.step(Trigger{8, 4}));
    const auto begun = s.hear(1, H::start(1, 1, 2));
    ASSERT_EQ(all<StartExchange>(begun).size(), 1U);
    static_cast<void>(durable(asked(begun)));
  }
  H::Actions complete(std::uint32_t attempt = 1) {
    return s.step(ExchangeComplete{RoundId{1}, AttemptId{attempt}, kMean});
  }
  wire::Proposal settled(std::uint64_t term) const { return {H::start(1, 1, 2), true, kMean, TermId{term}}; }

  static AcceptorId next_of(AcceptorId id) { return AcceptorId{id.value + (join_of(kTwo[1]).process | 1)}; }

  SiteHarness s;
  wire::Record record;
};

// ---- what is too long to be remembered ---

TEST_F(SiteAcceptor, NamesThatAreLongTogetherAreNotFollowed) {
  s.writes_wait = false;
  s.link_to(0, "paris", 2);
  static_cast<void>(s.step(Trigger{8, 4}));
  wire::StartAttempt fits = H::start(1, 1, 2);
  std::size_t bytes = 0;
  for (const wire::Participant& each : fits.participants) bytes += each.name.size();
  const auto lengthen = [&](wire::StartAttempt start, std::size_t to) {
    std::uint32_t id = 100;
    for (std::size_t left = to - bytes; left > 0; ++id) {
      const std::size_t length = std::min(left, wire::kMaxNameBytes);
      start.participants.push_back({SiteId{id}, std::string(length, 'x'), 0.0});
      left -= length;
    }
    return start;
  };
  const wire::StartAttempt longer = lengthen(fits, kMaxNamesBytes + 1);
  EXPECT_THAT(notes(s.hear(1, longer)), HasSubstr("its names are longer in total than a site can remember"));
  fits = lengthen(fits, kMaxNamesBytes);
  EXPECT_THAT(notes(s.hear(1, fits)), Not(HasSubstr("longer in total")));
  wire::InstallAnchor install{TermId{1}, RunId{7}, RoundId{1}, {SiteId{0}}, kWrong};
  for (std::uint32_t i = 0; i < wire::kMaxSites; ++i) {
    install.voters.push_back({SiteId{i}, std::string(wire::kMaxNameBytes, 'x'), AcceptorId{i + 1}});
  }
  EXPECT_EQ(all<CloseLink>(s.hear(1, install)).size(), 1U);
  EXPECT_EQ(s.site.record().voters, voters_of(kTwo));
  static_cast<void>(s.pass(seconds(1)));
  static_cast<void>(s.step(CoordinatorConnected{LinkId{5}}));
  static_cast<void>(s.hear(5, wire::Prepare{TermId{4}}));
  EXPECT_EQ(all<CloseLink>(s.hear(5, wire::Accept{TermId{4}, {{longer, true, kMean, TermId{4}}}})).size(), 1U);
}

TEST(SiteAcceptorAlone, ReportsFewerCommitsWithLongNames) {
  Acceptor acceptor;
  const std::vector<std::string> names(kMaxNamesBytes / wire::kMaxNameBytes, std::string(wire::kMaxNameBytes, 'x'));
  for (std::uint64_t round = 1; round <= 4; ++round) {
    acceptor.committed({RunId{7}, RoundId{round}, AttemptId{1}, names, {}});
  }
  const std::vector<wire::Past> recent = acceptor.record(1, {}).recent;
  ASSERT_EQ(recent.size(), 2U);
  EXPECT_EQ(recent.back().round, RoundId{4}) << "the newest";
}

// ---- promises --------------------------------------------------------------------------------------

TEST_F(SiteAcceptor, APromiseIsSentOnceItIsDurable) {
  ask_again();
  const auto prepared = s.hear(5, wire::Prepare{TermId{4}});
  EXPECT_THAT(sent<wire::Promise>(prepared), IsEmpty());
  const std::uint64_t number = asked(prepared);
  EXPECT_EQ(record.promised, TermId{4});
  const auto promises = sent<wire::Promise>(durable(number));
  ASSERT_EQ(promises.size(), 1U);
  EXPECT_EQ(promises[0].first, LinkId{5});
  EXPECT_EQ(promises[0].second.term, TermId{4});
  EXPECT_EQ(promises[0].second.offer, (wire::Offer{RunId{7}, RoundId{0}, kRight}));
  EXPECT_EQ(promises[0].second.report.record, record);
}

TEST_F(SiteAcceptor, FollowsNoTermOlderThanItHasPromised) {
  ask_again();
  static_cast<void>(durable(asked(s.hear(5, wire::Prepare{TermId{4}}))));
  for (const std::uint64_t term : {1, 3, 4}) {
    const auto actions = s.hear(5, wire::Prepare{TermId{term}});
    EXPECT_THAT(all<Persist>(actions), IsEmpty());
    EXPECT_THAT(notes(actions), HasSubstr("was to be promised, this site follows term 4"));
  }
  EXPECT_EQ(all<Persist>(s.hear(5, wire::Prepare{TermId{5}})).size(), 1U);
  const auto old = s.hear(5, wire::Welcome{TermId{3}, SiteId{0}, 1000, 60000});
  EXPECT_THAT(all<CloseLink>(old).at(0).why, HasSubstr("acts under term 3, and this site follows term 5"));
}

// A disk may take longer than a round: what comes after may overtake it there.
TEST_F(SiteAcceptor, SaysNoDoneOnceTheRoundIsSkipped) {
  exchange();
  const std::uint64_t number = asked(complete());
  ASSERT_GT(number, 0U);
  static_cast<void>(s.hear(1, wire::RoundSkipped{TermId{1}, RoundId{1}, "no majority"}));
  EXPECT_THAT(sent<wire::Done>(durable(number)), IsEmpty());
}

// In another register than that of its promises it is another acceptor, and has promised nothing.
TEST_F(SiteAcceptor, ForgetsItsPromiseWhenLetInAnew) {
  ask_again();
  static_cast<void>(durable(asked(s.hear(5, wire::Prepare{TermId{9}}))));
  const auto actions = s.hear(5, wire::Welcome{TermId{3}, SiteId{0}, 1000, 60000, true});
  EXPECT_THAT(all<CloseLink>(actions), IsEmpty()) << notes(actions);
  EXPECT_EQ(s.site.record().promised, TermId{3});
  EXPECT_NE(s.site.record().acceptor, record.acceptor);
}

// The terms would come to their end. However many a candidate asks for, they end at the clock's; a coordinator's may be
// a minute ahead.
TEST(SiteTerms, AboveTheClocksLimitAreNotFollowed) {
  constexpr std::uint64_t kLimit = (2'000'000ULL + 60) * 4096;
  SiteConfig config = H::defaults();
  config.terms.since_1970 = seconds(2'000'000);
  const auto asks = [&] {
    H s(config);
    static_cast<void>(s.step(Begin{join_of("tokyo")}));
    static_cast<void>(s.step(CoordinatorConnected{LinkId{1}}));
    return s;
  };
  H s = asks();
  EXPECT_EQ(sent<wire::Promise>(s.hear(1, wire::Prepare{TermId{kLimit}})).size(), 1U);
  const auto far = s.hear(1, wire::Prepare{TermId{kLimit + 1}});
  EXPECT_THAT(all<CloseLink>(far).at(0).why, HasSubstr("[coordinator.far-term]"));
  EXPECT_EQ(s.site.record().promised, TermId{kLimit});
  H welcomed = asks();
  const auto leads = welcomed.hear(1, wire::Welcome{TermId{kLimit + 1}, SiteId{0}, 1000, 60000});
  EXPECT_THAT(all<CloseLink>(leads).at(0).why, HasSubstr("acts under term " + std::to_string(kLimit + 1)));
}

TEST_F(SiteAcceptor, AMemberMakesNoPromise) {
  const auto actions = s.hear(1, wire::Prepare{TermId{9}});
  EXPECT_THAT(all<Persist>(actions), IsEmpty());
  EXPECT_THAT(notes(actions), HasSubstr("[ignored]"));
}

TEST_F(SiteAcceptor, KeepsItsPromiseOverARestart) {
  H again;
  wire::Join join = join_of("tokyo");
  join.report.record = s.site.record();
  join.report.record.promised = TermId{8};
  join.report.record.proposals = {{H::start(1, 2, 2)}, settled(3)};
  static_cast<void>(again.step(Begin{join}));
  const auto joins = sent<wire::Join>(again.step(CoordinatorConnected{LinkId{1}}));
  ASSERT_EQ(joins.size(), 1U);
  EXPECT_EQ(joins[0].second.report.record, join.report.record);
  EXPECT_FALSE(joins[0].second.report.member);
  EXPECT_FALSE(joins[0].second.report.holds_mean) << "that was in memory";
  EXPECT_THAT(sent<wire::Promise>(again.hear(1, wire::Prepare{TermId{8}})), IsEmpty());
  EXPECT_EQ(sent<wire::Promise>(again.hear(1, wire::Prepare{TermId{9}})).size(), 1U);
}

TEST_F(SiteAcceptor, APromiseToAClosedLinkIsNotSent) {
  ask_again();
  const std::uint64_t number = asked(s.hear(5, wire::Prepare{TermId{4}}));
  static_cast<void>(s.step(Closed{LinkId{5}, unavailable("reset")}));
  EXPECT_THAT(sent<wire::Promise>(durable(number)), IsEmpty());
}

// ---- what is accepted ------------------------------------------------------------------------------

TEST_F(SiteAcceptor, AnExchangeIsDoneOnceThatIsDurable) {
  exchange();
  const auto completed = complete();
  EXPECT_THAT(sent<wire::Done>(completed), IsEmpty());
  const std::uint64_t number = asked(completed);
  EXPECT_THAT(record.proposals, ElementsAre(wire::Proposal{H::start(1, 1, 2), true, kMean}));
  const auto done = sent<wire::Done>(durable(number));
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].second, (wire::Done{TermId{1}, RoundId{1}, AttemptId{1}, kMean}));
}

TEST_F(SiteAcceptor, AnAttemptInWhichNothingIsExchangedIsDoneOnceDurableToo) {
  static_cast<void>(s.step(Trigger{8, 4}));
  wire::StartAttempt idle = H::start(1, 1, 2);
  idle.slices.clear();
  for (wire::Participant& p : idle.participants) p.weight = 0;
  const auto started = s.hear(1, idle);
  EXPECT_THAT(sent<wire::Done>(started), IsEmpty());
  EXPECT_EQ(sent<wire::Done>(durable(asked(started))).size(), 1U);
}

TEST_F(SiteAcceptor, AnAttemptIsWrittenDownWithoutWaiting) {
  s.link_to(0, "paris", 2);
  static_cast<void>(s.step(Trigger{8, 4}));
  const auto started = s.hear(1, H::start(1, 1, 2));
  EXPECT_EQ(all<StartExchange>(started).size(), 1U);
  EXPECT_NE(asked(started), 0U);
  EXPECT_THAT(record.proposals, ElementsAre(wire::Proposal{H::start(1, 1, 2)}));
}

TEST_F(SiteAcceptor, TheLastOfSeveralWritesCoversTheEarlierOnes) {
  exchange();
  const std::uint64_t first = asked(complete());
  const std::uint64_t second = asked(s.hear(1, H::start(1, 2, 2)));
  ASSERT_GT(second, first);
  const std::uint64_t third = asked(complete(2));
  EXPECT_THAT(sent<wire::Done>(durable(second)), IsEmpty()) << "attempt 1 is given up";
  EXPECT_EQ(sent<wire::Done>(durable(third)).at(0).second.attempt, AttemptId{2});
}

TEST_F(SiteAcceptor, AcceptsASuccessorsDecisionOnceItIsDurable) {
  ask_again();
  static_cast<void>(durable(asked(s.hear(5, wire::Prepare{TermId{4}}))));
  const auto told = s.hear(5, wire::Accept{TermId{4}, {settled(4)}});
  EXPECT_THAT(sent<wire::Accepted>(told), IsEmpty());
  const std::uint64_t number = asked(told);
  EXPECT_THAT(record.proposals, ElementsAre(settled(4)));
  EXPECT_EQ(sent<wire::Accepted>(durable(number)).at(0).second, wire::Accepted{TermId{4}});
}

TEST_F(SiteAcceptor, WritesNothingIfNothingIsToBeSettled) {
  ask_again();
  static_cast<void>(durable(asked(s.hear(5, wire::Prepare{TermId{4}}))));
  const auto told = s.hear(5, wire::Accept{TermId{4}});
  EXPECT_THAT(all<Persist>(told), IsEmpty());
  EXPECT_EQ(sent<wire::Accepted>(told).size(), 1U);
}

TEST_F(SiteAcceptor, AcceptsNothingUnderAnUnpromisedTerm) {
  ask_again();
  static_cast<void>(durable(asked(s.hear(5, wire::Prepare{TermId{4}}))));
  for (const std::uint64_t term : {3, 5}) {
    const auto told = s.hear(5, wire::Accept{TermId{term}, {settled(term)}});
    EXPECT_THAT(sent<wire::Accepted>(told), IsEmpty());
    EXPECT_THAT(all<Persist>(told), IsEmpty());
  }
}

// What it was done with itself stays beside what was settled: it may hold the mean of it.
TEST_F(SiteAcceptor, ItReportsItsOwnAttemptAndTheSettledOne) {
  exchange();
  static_cast<void>(durable(asked(complete())));
  ask_again();
  const auto prepared = s.hear(5, wire::Prepare{TermId{4}});
  const auto promise = sent<wire::Promise>(durable(asked(prepared)));
  ASSERT_EQ(promise.size(), 1U);
  EXPECT_TRUE(promise[0].second.report.holds_mean);
  static_cast<void>(asked(s.hear(5, wire::Accept{TermId{4}, {settled(4)}})));
  EXPECT_THAT(record.proposals, ElementsAre(wire::Proposal{H::start(1, 1, 2), true, kMean}, settled(4)));
}

TEST_F(SiteAcceptor, RemembersWhatWasCommitted) {
  exchange();
  static_cast<void>(durable(asked(complete())));
  static_cast<void>(s.hear(1, wire::Commit{TermId{1}, RunId{7}, RoundId{1}, AttemptId{1}, {SiteId{0}, SiteId{1}}}));
  static_cast<void>(asked(s.step(Applied{RoundId{1}, kWrong})));
  EXPECT_EQ(record.anchor, (wire::Offer{RunId{7}, RoundId{1}, kWrong}));
  EXPECT_EQ(record.voters, voters_of(kTwo));
  EXPECT_THAT(record.proposals, IsEmpty());
  ASSERT_EQ(record.recent.size(), 1U);
  EXPECT_EQ(record.recent[0].contributors, kTwo);
  EXPECT_NE(record.recent[0].mean, Digest{});
  EXPECT_EQ(record.fingerprint, kModel);
}

// In shared memory and in state files: who found it there alone could take it for the anchor of a swarm of its own.
TEST_F(SiteAcceptor, TheAnchorThatACommitMakesIsKeptWithItsMembership) {
  exchange();
  static_cast<void>(durable(asked(complete())));
  const auto applies =
      all<ApplyCommit>(s.hear(1, wire::Commit{TermId{1}, RunId{7}, RoundId{1}, AttemptId{1}, {SiteId{0}, SiteId{1}}}));
  ASSERT_EQ(applies.size(), 1U);
  EXPECT_EQ(applies[0].membership.promised, TermId{1});
  EXPECT_EQ(applies[0].membership.voters, H::start(1, 1, 2).voters) << "that of the attempt";
}

TEST_F(SiteAcceptor, AnAttemptOfAnotherModelIsIgnored) {
  static_cast<void>(s.step(Trigger{8, 4}));
  wire::StartAttempt other = H::start(1, 1, 2);
  other.fingerprint = kWrong;
  EXPECT_THAT(notes(s.hear(1, other)), HasSubstr("it is for a model with the fingerprint " + to_hex(kWrong) +
                                                 ", and this site's has " + to_hex(kModel)));
  other = H::start(1, 1, 2);
  other.generation = 2;
  EXPECT_THAT(notes(s.hear(1, other)), HasSubstr("it is for model 2 of the script, and this site trains its model 1"));
  EXPECT_THAT(s.site.record().proposals, IsEmpty());
}

// ---- writes that fail, or are slow -----------------------------------------------------------------

TEST_F(SiteAcceptor, AWriteThatFailsEndsThatMemory) {
  exchange();
  const AcceptorId before = s.site.record().acceptor;
  const auto failed = durable(asked(complete()), unavailable("no space left on device"));
  EXPECT_THAT(sent<wire::Done>(failed), IsEmpty());
  ASSERT_EQ(all<CloseLink>(failed).size(), 1U);
  EXPECT_EQ(all<CloseLink>(failed)[0].link, LinkId{1});
  EXPECT_THAT(all<CloseLink>(failed)[0].why,
              HasSubstr("this site's record could not be written: no space left on device"));
  EXPECT_EQ(s.site.record().acceptor, next_of(before)) << "what is on the disk is no witness";
  static_cast<void>(s.pass(seconds(1)));
  const auto joins = sent<wire::Join>(s.step(CoordinatorConnected{LinkId{5}}));
  ASSERT_EQ(joins.size(), 1U);
  EXPECT_EQ(joins[0].second.report.record.acceptor, next_of(before));
}

TEST_F(SiteAcceptor, AWriteNobodyWaitsForMayFailToo) {
  s.link_to(0, "paris", 2);
  static_cast<void>(s.step(Trigger{8, 4}));
  const AcceptorId before = s.site.record().acceptor;
  const auto failed = durable(asked(s.hear(1, H::start(1, 1, 2))), unavailable("read-only"));
  EXPECT_EQ(all<CloseLink>(failed).size(), 1U);
  EXPECT_NE(s.site.record().acceptor, before);
}

TEST_F(SiteAcceptor, AWriteSlowerThanTheGraceIsGivenUp) {
  exchange();
  const std::uint64_t number = asked(complete());
  H::Actions waited;
  for (int second = 0; second < 61; ++second) {
    static_cast<void>(s.hear(1, wire::Heartbeat{}));
    for (auto& action : s.pass(seconds(1))) waited.push_back(std::move(action));
  }
  const auto hangups = all<CloseLink>(waited);
  ASSERT_FALSE(hangups.empty());
  EXPECT_EQ(hangups[0].link, LinkId{1});
  EXPECT_THAT(hangups[0].why, HasSubstr("this site's record was not written within 60 s (COLLAB_LINK_GRACE)"));
  EXPECT_THAT(sent<wire::Done>(durable(number)), IsEmpty()) << "others go on without it";
}

TEST_F(SiteAcceptor, AWriteNobodyWaitsForMayTakeItsTime) {
  s.link_to(0, "paris", 2);
  static_cast<void>(s.step(Trigger{8, 4}));
  EXPECT_NE(asked(s.hear(1, H::start(1, 1, 2))), 0U);
  for (int second = 0; second < 100; ++second) {
    static_cast<void>(s.hear(1, wire::Heartbeat{}));
    EXPECT_THAT(all<CloseLink>(s.pass(seconds(1))), IsEmpty());
  }
}

// ---- runs, and who has left ------------------------------------------------------------------------

// Another register: what it promised and accepted in this one it is no witness of any more.
TEST_F(SiteAcceptor, IsAnotherAcceptorInAnotherRun) {
  static_cast<void>(s.step(Trigger{8, 4}));
  const AcceptorId before = s.site.record().acceptor;
  std::vector<wire::Voter> voters = voters_of(kTwo);
  voters[1].acceptor = next_of(before);
  static_cast<void>(
      s.hear(1, wire::InstallAnchor{TermId{1}, RunId{8}, RoundId{0}, {SiteId{0}}, kRight, wire::Counted::kNo, voters}));
  const auto installed = s.step(AnchorInPlace{RunId{8}, RoundId{0}, kRight});
  static_cast<void>(asked(installed));
  EXPECT_EQ(record.acceptor, next_of(before));
  EXPECT_EQ(record.anchor.run, RunId{8});
  EXPECT_EQ(record.voters, voters);
  EXPECT_THAT(record.recent, IsEmpty());
  EXPECT_EQ(sent<wire::AnchorInstalled>(installed).at(0).second.acceptor, next_of(before));
}

TEST(SiteAcceptorOfAFreshSite, StaysTheSameInItsFirstRun) {
  SiteHarness s;
  s.become(1, kTwo);
  ASSERT_TRUE(s.durable);
  EXPECT_EQ(s.durable->acceptor, acceptor_of("tokyo"));
  EXPECT_EQ(s.durable->voters, voters_of(kTwo));
  EXPECT_EQ(s.durable->promised, TermId{1}) << "it follows the leader it has joined";
}

// A process that was killed before its newest record was durable is followed by one that starts from the older.
TEST(Acceptor, TwoProcessesThatStartFromOneRecordNeverShareAnIdentity) {
  wire::Record record;
  record.acceptor = AcceptorId{UINT64_MAX};
  std::set<AcceptorId> identities;
  for (const std::uint64_t process : {0xFEDC'BA98'7654'3210U, 0x0123'4567'89AB'CDEFU}) {
    Acceptor acceptor;
    acceptor.begin(record, process);
    for (int i = 0; i < 100; ++i) {
      acceptor.renounce();
      EXPECT_TRUE(identities.insert(acceptor.id()).second) << i;
    }
  }
}

TEST_F(SiteAcceptor, MarksSitesThatLeftInItsMembership) {
  static_cast<void>(asked(s.hear(1, wire::MemberLeft{TermId{1}, "paris", acceptor_of("paris")})));
  EXPECT_TRUE(record.voters.at(0).left);
  EXPECT_FALSE(record.voters.at(1).left);
}

TEST_F(SiteAcceptor, ADepartureReportedUnderAnOlderTermIsIgnored) {
  EXPECT_THAT(all<Persist>(s.hear(1, wire::MemberLeft{TermId{0}, "paris", acceptor_of("paris")})), IsEmpty());
  EXPECT_FALSE(s.site.record().voters.at(0).left);
}

// It left after the attempt was formed, and before its commit.
TEST_F(SiteAcceptor, MarksASiteThatLeavesDuringAnAttemptInTheNextMembership) {
  exchange();
  static_cast<void>(durable(asked(complete())));
  static_cast<void>(s.hear(1, wire::MemberLeft{TermId{1}, "paris", acceptor_of("paris")}));
  static_cast<void>(s.hear(1, wire::Commit{TermId{1}, RunId{7}, RoundId{1}, AttemptId{1}, {SiteId{0}, SiteId{1}}}));
  static_cast<void>(asked(s.step(Applied{RoundId{1}, kWrong})));
  EXPECT_EQ(record.anchor.round, RoundId{1});
  EXPECT_TRUE(record.voters.at(0).left);
}

// It left, came again, and is a voter of the run that begins: with another memory.
TEST_F(SiteAcceptor, ASiteBackInAnotherMembershipHasNotLeftThat) {
  static_cast<void>(s.step(Trigger{8, 4}));
  static_cast<void>(s.hear(1, wire::MemberLeft{TermId{1}, "paris", acceptor_of("paris")}));
  std::vector<wire::Voter> voters = voters_of(kTwo);
  voters[0].acceptor = acceptor_of("paris", 1);
  static_cast<void>(
      s.hear(1, wire::InstallAnchor{TermId{1}, RunId{8}, RoundId{0}, {SiteId{0}}, kRight, wire::Counted::kNo, voters}));
  static_cast<void>(asked(s.step(AnchorInPlace{RunId{8}, RoundId{0}, kRight})));
  EXPECT_EQ(record.anchor.run, RunId{8});
  EXPECT_EQ(record.voters, voters);
}

// It has ceded its vote: those who stay count on it, and those who do not know of that must not.
TEST_F(SiteAcceptor, ChangesItsIdentityBeforeItSendsItsLeave) {
  const AcceptorId before = s.site.record().acceptor;
  const auto departs = s.step(Depart{"trained to the end"});
  EXPECT_THAT(sent<wire::Leave>(departs), IsEmpty());
  const std::uint64_t number = asked(departs);
  ASSERT_NE(number, 0U);
  EXPECT_NE(record.acceptor, before);
  EXPECT_EQ(sent<wire::Leave>(durable(number)).size(), 1U);
  EXPECT_EQ(all<Left>(s.hear(1, wire::LeaveAck{})).size(), 1U);
}

// An anchor that was on its way would bring it back in, with the memory that it leaves with.
TEST_F(SiteAcceptor, InstallsNothingOnceItLeaves) {
  static_cast<void>(s.hear(1, wire::InstallAnchor{TermId{1}, RunId{7}, RoundId{0}, {SiteId{1}}, kRight}));
  static_cast<void>(s.step(Depart{"asked to leave"}));
  const auto in_place = s.step(AnchorInPlace{RunId{7}, RoundId{0}, kRight});
  EXPECT_THAT(sent<wire::AnchorInstalled>(in_place), IsEmpty());
  EXPECT_EQ(all<Left>(s.hear(1, wire::LeaveAck{})).size(), 1U);
}

// Then it is lost, for all the others know.
TEST_F(SiteAcceptor, LeavesSilentlyIfItCannotWriteThatDown) {
  for (const bool fails : {true, false}) {
    SiteHarness own;
    own.become(1, kTwo);
    own.writes_wait = true;
    const auto writes = all<Persist>(own.step(Depart{"trained to the end"}));
    ASSERT_EQ(writes.size(), 1U);
    const Status why = fails ? unavailable("full") : Status();
    if (fails) static_cast<void>(own.step(Persisted{writes[0].number, why}));
    const auto gone = own.pass(seconds(6));
    EXPECT_THAT(sent<wire::Leave>(gone), IsEmpty());
    EXPECT_EQ(all<Left>(gone).size(), 1U);
  }
}

}  // namespace
}  // namespace collab::protocol
