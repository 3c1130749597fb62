// A minority that waits: which sites are told what they wait for, and what the operator's word (collab forget) changes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/protocol/coordinator/coordinator.h"
#include "core/protocol/formatting.h"
#include "core/protocol/site/site.h"

namespace collab::protocol {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr LinkId kOperator{99};
constexpr RunId kOldRun{7};
constexpr RunId kFreshRun{100};
constexpr Duration kSecond = std::chrono::seconds(1);

// The sites that agreed on round 3 of run 7: number, name and acceptor of each follow from its place.
std::vector<wire::Voter> membership(const std::vector<std::string>& names) {
  std::vector<wire::Voter> voters;
  for (std::uint32_t i = 0; i < names.size(); ++i) voters.push_back({SiteId{i}, names[i], AcceptorId{1000 + i}});
  return voters;
}

wire::Join join_of(const std::string& name, const std::vector<wire::Voter>& voters) {
  wire::Join join;
  join.swarm = "swarm";
  join.site = name;
  join.address = name + ":1";
  join.elements = 4096;
  join.offer = {kOldRun, RoundId{3}, Digest{1, 1}};
  wire::Record& record = join.report.record;
  record.promised = TermId{5};
  record.anchor = join.offer;
  record.voters = voters;
  for (const wire::Voter& voter : voters) {
    if (voter.name == name) record.acceptor = voter.acceptor;
  }
  return join;
}

// A candidate, and sites that answer it as sites do.
class Candidate {
 public:
  explicit Candidate(Duration forget_after = Duration::max()) : coordinator_(config(forget_after)) {}

  static CoordinatorConfig config(Duration forget_after) {
    CoordinatorConfig config;
    config.swarm = "swarm";
    config.fresh_run = kFreshRun;
    config.forget_after = forget_after;
    return config;
  }

  // What came of an event, until nobody has anything left to say.
  std::vector<CoordinatorAction> step(const CoordinatorEvent& event) {
    std::vector<CoordinatorAction> all = coordinator_.step(now, event);
    for (std::size_t i = 0; i < all.size(); ++i) {
      std::vector<Received> answers;
      each_sent(all[i], [&](LinkId link, const wire::Message& message) {
        const auto site = joins.find(link);
        if (site == joins.end()) return true;
        if (const auto* prepare = std::get_if<wire::Prepare>(&message)) {
          wire::Join& join = site->second;
          join.report.record.promised = prepare->term;
          answers.push_back({link, wire::Promise{prepare->term, join.offer, join.report}});
        } else if (const auto* accept = std::get_if<wire::Accept>(&message)) {
          answers.push_back({link, wire::Accepted{accept->term}});
        }
        return true;
      });
      for (const Received& answer : answers) {
        for (CoordinatorAction& action : coordinator_.step(now, answer)) all.push_back(std::move(action));
      }
    }
    return all;
  }

  std::vector<CoordinatorAction> come(std::uint64_t link, const wire::Join& join) {
    joins[LinkId{link}] = join;
    return step(Received{LinkId{link}, join});
  }
  std::vector<CoordinatorAction> go(std::uint64_t link) {
    joins.erase(LinkId{link});
    return step(Closed{LinkId{link}, unavailable("reset")});
  }

  // Says so as `collab forget` does: what was answered.
  wire::Notice forget(const std::vector<std::string>& sites) {
    for (const CoordinatorAction& action : last = step(Received{kOperator, wire::Forget{sites}})) {
      const auto* send = std::get_if<Send>(&action);
      if (send != nullptr && send->link == kOperator) return std::get<wire::Notice>(send->message);
    }
    ADD_FAILURE() << "no answer";
    return {};
  }

  std::vector<CoordinatorAction> pass(Duration time) {
    std::vector<CoordinatorAction> all;
    const TimePoint end = now + time;
    while (now < end) {
      now = std::clamp(coordinator_.next_deadline(), now + Duration(1), std::min(end, now + kSecond));
      for (const auto& [link, join] : joins) {
        for (CoordinatorAction& action : step(Received{link, wire::Heartbeat{1, false}})) {
          all.push_back(std::move(action));
        }
      }
      for (CoordinatorAction& action : step(Tick{})) all.push_back(std::move(action));
    }
    return all;
  }

  [[nodiscard]] std::string status() const { return coordinator_.status_json(now); }

  TimePoint now{std::chrono::hours(1)};
  std::map<LinkId, wire::Join> joins;
  std::vector<CoordinatorAction> last;

 private:
  Coordinator coordinator_;
};

// The last message of that type to the link.
template <typename M>
std::optional<M> told(const std::vector<CoordinatorAction>& actions, std::uint64_t link) {
  std::optional<M> found;
  for (const CoordinatorAction& action : actions) {
    each_sent(action, [&](LinkId to, const wire::Message& any) {
      if (const auto* message = std::get_if<M>(&any); message != nullptr && to == LinkId{link}) found = *message;
      return true;
    });
  }
  return found;
}

TEST(Forget, AMinorityGoesOnAsAnotherRunOnceTheMissingAreForgotten) {
  Candidate candidate;
  const auto voters = membership({"a", "b", "c"});
  EXPECT_FALSE(told<wire::Welcome>(candidate.come(1, join_of("a", voters)), 1));
  const wire::Notice answer = candidate.forget({"b", "c"});
  EXPECT_EQ(answer.event, kForget);
  EXPECT_EQ(answer.text, "a go on without b, c, as another run");
  ASSERT_TRUE(told<wire::Welcome>(candidate.last, 1));
  const auto install = told<wire::InstallAnchor>(candidate.last, 1);
  ASSERT_TRUE(install);
  EXPECT_GE(install->run, kFreshRun);
  EXPECT_EQ(install->round, RoundId{3});
  ASSERT_EQ(install->voters.size(), 1U);
  EXPECT_EQ(install->voters[0].name, "a");
  EXPECT_EQ(install->voters[0].acceptor, AcceptorId{1001}) << "in another run it is another acceptor";
}

// The coordinator's clock is behind that of the one that began the run.
TEST(Forget, TheContinuingRunIsTheLaterOneDespiteAClockThatIsBehind) {
  Candidate candidate;
  wire::Join a = join_of("a", membership({"a", "b", "c"}));
  a.offer.run = a.report.record.anchor.run = RunId{kFreshRun.value + 1000};
  candidate.come(1, a);
  candidate.forget({"b", "c"});
  const auto install = told<wire::InstallAnchor>(candidate.last, 1);
  ASSERT_TRUE(install);
  EXPECT_GT(install->run, a.offer.run);
}

// Its record is gone, as it ended in good order; those who were forgotten come back with theirs.
TEST(Forget, ForgottenSitesThatReturnBringTheNewerAnchor) {
  Candidate candidate;
  candidate.come(1, join_of("a", membership({"a", "b"})));
  wire::Join b = join_of("b", {});
  b.offer = {RunId{kOldRun.value + 1}, RoundId{24}, Digest{2, 2}};
  b.report.record = {};
  b.report.record.acceptor = AcceptorId{77};
  const auto actions = candidate.come(2, b);
  const auto install = told<wire::InstallAnchor>(actions, 2);
  ASSERT_TRUE(install);
  EXPECT_EQ(install->round, RoundId{24});
  EXPECT_EQ(install->digest, b.offer.digest);
  EXPECT_GT(install->run, b.offer.run);
}

// a and b went on without the others; b is gone for good, and d and e, with whom c had agreed on more.
TEST(Forget, TheNewestAnchorOfTwoRunsThatMeetIsContinuedFrom) {
  for (const std::uint64_t held : {200, 190}) {  // its newest, or what its state file has
    Candidate candidate;
    wire::Join a = join_of("a", membership({"a", "b"}));
    a.offer = {RunId{kOldRun.value + 1}, RoundId{60}, Digest{2, 2}};
    a.report.record.anchor = a.offer;
    a.report.record.acceptor = AcceptorId{1001};
    wire::Join c = join_of("c", membership({"a", "b", "c", "d", "e"}));
    c.report.record.anchor.round = RoundId{200};
    c.offer.round = RoundId{held};
    candidate.come(1, a);
    candidate.come(3, c);
    EXPECT_EQ(candidate.forget({"b", "d", "e"}).event, kForget);
    const auto install = told<wire::InstallAnchor>(candidate.last, 1);
    ASSERT_TRUE(install);
    EXPECT_EQ(install->round, RoundId{held});
    EXPECT_EQ(install->digest, c.offer.digest);
    EXPECT_GT(install->run, a.offer.run);
  }
}

TEST(Forget, ForgettingOneSiteLeavesTheOthersMissing) {
  Candidate candidate;
  candidate.come(1, join_of("a", membership({"a", "b", "c"})));
  const wire::Notice first = candidate.forget({"b"});
  EXPECT_EQ(first.event, kForget);
  EXPECT_THAT(first.text, HasSubstr("others are: c"));
  EXPECT_FALSE(told<wire::Welcome>(candidate.last, 1));
  EXPECT_THAT(candidate.status(), HasSubstr(R"("missing":["b","c"])"));
  EXPECT_THAT(candidate.status(), HasSubstr("collab forget c"));
  EXPECT_THAT(candidate.status(), Not(HasSubstr("collab forget b")));
  EXPECT_EQ(candidate.forget({"c"}).event, kForget);
  EXPECT_TRUE(told<wire::Welcome>(candidate.last, 1));
}

TEST(Forget, ANameThatNoSiteMissesIsRefused) {
  Candidate candidate;
  candidate.come(1, join_of("a", membership({"a", "b", "c"})));
  const wire::Notice misspelt = candidate.forget({"b", "x"});
  EXPECT_EQ(misspelt.event, kRefused);
  EXPECT_EQ(
      misspelt.text,
      "no site was forgotten: no site here is waiting for x; here: a; missing: b, c [coordinator.forget-not-missed]");
  EXPECT_EQ(candidate.forget({"a"}).event, kRefused) << "it is here";
  EXPECT_EQ(candidate.forget({}).event, kRefused);
  EXPECT_EQ(candidate.forget({"c"}).event, kForget);
  EXPECT_FALSE(told<wire::Welcome>(candidate.last, 1)) << "nothing of what was refused counts";
}

TEST(Forget, KeepsNothingIfNoSiteWaits) {
  Candidate candidate;
  const wire::Notice answer = candidate.forget({"b", "c"});
  EXPECT_EQ(answer.event, kRefused);
  EXPECT_EQ(answer.text, "no site is waiting at this coordinator [coordinator.forget-nobody-waits]");
  EXPECT_FALSE(told<wire::Welcome>(candidate.come(1, join_of("a", membership({"a", "b", "c"}))), 1));
}

TEST(Forget, ASiteThatReturnsIsForgottenNoMore) {
  Candidate candidate;
  const auto voters = membership({"a", "b", "c", "d", "e"});
  candidate.come(1, join_of("a", voters));
  candidate.forget({"b", "c", "d"});
  candidate.come(2, join_of("b", voters));
  candidate.go(2);
  EXPECT_THAT(candidate.forget({"e"}).text, HasSubstr("others are: b"));
  EXPECT_FALSE(told<wire::Welcome>(candidate.last, 1));
}

TEST(Forget, SurvivesAVisitElsewhereButNotTheGrace) {
  for (const bool soon : {true, false}) {
    Candidate candidate;
    const auto voters = membership({"a", "b", "c"});
    candidate.come(1, join_of("a", voters));
    candidate.forget({"b"});
    candidate.go(1);
    candidate.now += soon ? 15 * kSecond : 61 * kSecond;
    candidate.come(2, join_of("a", voters));
    candidate.forget({"c"});
    EXPECT_EQ(told<wire::Welcome>(candidate.last, 2).has_value(), soon);
  }
}

TEST(Forget, AMajorityWaitsForNobody) {
  Candidate candidate;
  const auto voters = membership({"a", "b", "c"});
  candidate.come(1, join_of("a", voters));
  ASSERT_TRUE(told<wire::Welcome>(candidate.come(2, join_of("b", voters)), 2));
  const wire::Notice answer = candidate.forget({"c"});
  EXPECT_EQ(answer.event, kForget);
  EXPECT_THAT(answer.text, HasSubstr("no site is waited for: a, b go on by themselves"));
  for (const CoordinatorAction& action : candidate.last) {
    EXPECT_FALSE(std::holds_alternative<CloseLink>(action)) << "it leads on";
  }
}

TEST(Forget, ALeaderLeftWithAMinorityContinuesAtOnce) {
  Candidate candidate;
  const auto voters = membership({"a", "b", "c"});
  candidate.come(1, join_of("a", voters));
  ASSERT_TRUE(told<wire::Welcome>(candidate.come(2, join_of("b", voters)), 1));
  candidate.go(2);
  EXPECT_EQ(candidate.forget({"x"}).event, kRefused);
  EXPECT_EQ(candidate.forget({"b", "c"}).event, kForget);
  ASSERT_TRUE(std::ranges::any_of(candidate.last, [](const CoordinatorAction& action) {
    const auto* hangup = std::get_if<CloseLink>(&action);
    return hangup != nullptr && hangup->link == LinkId{1};
  }));
  candidate.joins.erase(LinkId{1});
  EXPECT_TRUE(told<wire::Welcome>(candidate.come(3, join_of("a", voters)), 3)) << "it comes back and finds a leader";
}

TEST(Forget, AForgottenSiteThatComesBackIsAReturner) {
  Candidate candidate;
  const auto voters = membership({"a", "b", "c"});
  candidate.come(1, join_of("a", voters));
  candidate.forget({"b", "c"});
  const RunId run = told<wire::InstallAnchor>(candidate.last, 1)->run;
  candidate.step(Received{LinkId{1}, wire::AnchorInstalled{run, RoundId{3}, Digest{1, 1}, AcceptorId{1001}}});
  const auto actions = candidate.come(2, join_of("b", voters));
  EXPECT_TRUE(told<wire::Welcome>(actions, 2));
  const auto install = told<wire::InstallAnchor>(actions, 2);
  ASSERT_TRUE(install);
  EXPECT_EQ(install->run, run);
}

TEST(Forget, HappensByItselfAfterTheSetTime) {
  Candidate candidate(90 * kSecond);
  candidate.come(1, join_of("a", membership({"a", "b", "c"})));
  EXPECT_THAT(candidate.status(), HasSubstr("else they are forgotten in 90 s, COLLAB_FORGET_AFTER"));
  EXPECT_FALSE(told<wire::Welcome>(candidate.pass(89 * kSecond), 1));
  EXPECT_TRUE(told<wire::Welcome>(candidate.pass(2 * kSecond), 1));
}

// ---- who waits is told -----------------------------------------------------------------------------

TEST(Forget, WaitingSitesAreToldWhichSitesAreMissingAndWhatToDo) {
  Candidate candidate;
  const auto voters = membership({"a", "b", "c", "d"});
  candidate.come(1, join_of("a", voters));
  EXPECT_FALSE(told<wire::Notice>(candidate.pass(9 * kSecond), 1));
  candidate.come(2, join_of("d", voters));
  const auto actions = candidate.pass(2 * kSecond);
  for (const std::uint64_t link : {1, 2}) {
    const auto notice = told<wire::Notice>(actions, link);
    ASSERT_TRUE(notice);
    EXPECT_EQ(notice->event, kWait);
    EXPECT_EQ(notice->text,
              "waiting for more than half of the sites that agreed last: 2 of the 4 sites that agreed on round 3 are "
              "here; missing: b, c; if they will not come back, say so where the others can hear it: collab forget b c "
              "(10 s)");
  }
}

TEST(Forget, TheStatusNamesWhoIsMissingAndWhoHasLostItsRecord) {
  Candidate candidate;
  const auto voters = membership({"a", "b", "c", "d"});
  EXPECT_THAT(candidate.status(), HasSubstr(R"("leads":false,"voters":[],"recovering":[],"missing":[])"));
  wire::Join forgetful = join_of("d", voters);
  forgetful.report.record = {AcceptorId{77}};
  candidate.come(1, join_of("a", voters));
  candidate.come(4, forgetful);
  EXPECT_THAT(candidate.status(), HasSubstr(R"("missing":["b","c"],"applicants":["a","d"])"));
  candidate.come(2, join_of("b", voters));
  EXPECT_THAT(candidate.status(),
              HasSubstr(R"("leads":true,"voters":["a","b","c","d"],"recovering":["d"],"missing":["c"])"));
}

// The membership of an attempt that may have been committed has to be there, too; a site that left it is not missed.
TEST(Forget, TheMissingIncludeSitesOfAnAttemptThatMayBeCommitted) {
  Candidate candidate;
  auto voters = membership({"a", "b"});
  wire::Proposal proposal;
  proposal.start.term = TermId{5};
  proposal.start.run = kOldRun;
  proposal.start.round = RoundId{4};
  proposal.start.attempt = AttemptId{1};
  proposal.start.participants = {{SiteId{0}, "a"}, {SiteId{1}, "b"}};
  proposal.start.voters = membership({"a", "b", "c"});
  proposal.accepted = true;
  voters[1].left = true;
  wire::Join join = join_of("a", voters);
  join.report.record.proposals = {proposal};
  candidate.come(1, join);
  EXPECT_THAT(candidate.status(), HasSubstr(R"("missing":["c"])"));
}

TEST(Forget, AWaitingSiteNamesTheMissingSites) {
  SiteConfig config;
  config.coordinators = {"x:1"};
  config.join_timeout = 300 * kSecond;
  Site site(config);
  TimePoint now{std::chrono::hours(1)};
  static_cast<void>(site.step(now, Begin{join_of("a", membership({"a", "b"}))}));
  static_cast<void>(site.step(now, CoordinatorConnected{LinkId{1}}));
  EXPECT_THAT(site.waiting_for(now), HasSubstr("waiting to be let in"));
  const auto actions = site.step(now, Received{LinkId{1}, wire::Notice{std::string(kWait), "waiting for b"}});
  const bool noted = std::ranges::any_of(actions, [](const SiteAction& action) {
    const auto* note = std::get_if<Note>(&action);
    return note != nullptr && note->level == Note::Level::kInfo && note->text == "waiting for b";
  });
  EXPECT_TRUE(noted);
  EXPECT_EQ(site.waiting_for(now), "waiting for b");
  std::string why;
  for (const TimePoint end = now + 400 * kSecond; now < end && why.empty(); now += kSecond) {
    for (const SiteAction& action : site.step(now, Tick{})) {
      if (const auto* failed = std::get_if<Failed>(&action)) why = failed->why.message();
      if (std::holds_alternative<DialCoordinator>(action)) {
        static_cast<void>(site.step(now, CoordinatorConnected{LinkId{2}}));
      }
    }
  }
  EXPECT_THAT(why, HasSubstr("not let in within 300 s (COLLAB_JOIN_TIMEOUT) by the coordinator at x:1, which is "
                             "waiting for b"));
}

}  // namespace
}  // namespace collab::protocol
