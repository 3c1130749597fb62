// Single histories of several leaders, step by step, which random runs seldom find.
#include <gmock/gmock.h>

#include "tests/unit/protocol/agreement_world.h"

namespace collab::protocol {
namespace {

using testing::IsEmpty;

class History : public AgreementWorld {
 public:
  enum : std::uint32_t { kX, kP, kF, kD, kE };

  History() : AgreementWorld(1, 5, 2) {
    healed_ = true;  // writes succeed
    only({kX, kP, kF, kD, kE}, 0);
    pass_by(5);
  }
  void settle_all() {
    for (int i = 0; i < 20'000 && settle(); ++i) {
    }
  }
  // Nobody comes to a trigger by itself.
  void pass_by(double time) {
    for (const TimePoint end = now_ + seconds(time); now_ < end;) {
      now_ += seconds(0.5);
      for (std::uint32_t i = 0; i < candidates_.size(); ++i) tell_candidate(i, Tick{});
      for (std::uint32_t i = 0; i < sites_.size(); ++i) {
        if (!sites_[i].machine && now_ >= sites_[i].down_until) start_site(i);
        tell(i, Tick{});
      }
      settle_all();
    }
  }
  // These can reach that candidate alone; with 2, none.
  void only(const std::vector<std::uint32_t>& sites, std::uint32_t candidate) {
    for (const std::uint32_t site : sites) {
      for (std::uint32_t c = 0; c < 2; ++c) {
        cuts_.erase({site, c});
        if (c == candidate) continue;
        cuts_.insert({site, c});
        for (auto& [id, link] : links_) {
          if (link.site == site && link.candidate == c && link.up_open) close(link);
        }
      }
    }
  }
  void trigger(const std::vector<std::uint32_t>& sites) {
    for (const std::uint32_t site : sites) {
      sites_[site].training = false;
      tell(site, Trigger{});
    }
  }
  void leaves(std::uint32_t site) {
    tell(site, Depart{"done"});
    settle_all();
    sites_[site].down_until = kNever;
  }
  // What is left of it: its anchor, and this record.
  void begins_again(std::uint32_t site, std::uint32_t candidate, const wire::Record& record) {
    sites_[site].writes.clear();
    end(sites_[site]);
    sites_[site].disk = record;
    sites_[site].down_until = now_;
    only({site}, candidate);
  }
  [[nodiscard]] bool is_committed(RunId run, std::uint64_t round) const {
    return commits_.count({run, RoundId{round}}) != 0;
  }
  [[nodiscard]] wire::Record disk(std::uint32_t site) const { return sites_[site].disk; }
  void lose_leader() {
    crash_candidate(0);
    settle_all();
    pass_by(3);
  }
  // Until that round's commit is on its way from the second candidate, of which these do not hear.
  void commits(std::uint64_t round, const std::set<std::uint32_t>& not_heard_by) {
    for (int i = 0; i < 2000 && commits_.count({RunId{7}, RoundId{round}}) == 0; ++i) {
      if (settle()) continue;
      now_ += seconds(0.5);
      tell_candidate(1, Tick{});
    }
    for (auto& [id, link] : links_) {
      if (not_heard_by.count(link.site) == 0) continue;
      link.down.clear();
      close(link);
    }
    settle_all();
  }

 private:
  static void close(Link& link) {
    link.up_open = link.down_open = false;
    link.up.emplace_back(std::nullopt);
    link.down.emplace_back(std::nullopt);
  }
};
using H = History;

// Round 1 by x, p and f; then they have promised term 3, of which d and e, who are behind, know from its leader only.
void take_up_to_term_3(History& h) {
  h.trigger({H::kX, H::kP, H::kF});
  h.pass_by(130);  // the straggler's grace
  h.only({H::kD, H::kE}, 2);
  h.lose_leader();
  h.lose_leader();
}

// A membership is led by the leader whose commit made it, and half of it may never have promised that one's term. A
// site that tells another candidate of that membership tells of the term as well.
TEST(Succession, KnowingAMembershipIsAPromiseOfItsLeadersTerm) {
  History h;
  take_up_to_term_3(h);
  h.leaves(H::kX);
  h.only({H::kD, H::kE}, 0);
  h.pass_by(10);
  h.trigger({H::kP, H::kF});  // with x, which has left, they are a majority: round 2 makes p, f, d and e the members
  h.pass_by(3);
  h.begins_again(H::kP, 1, {});  // it has lost its record, and has the anchor of round 2
  for (const std::uint32_t site : {H::kD, H::kE}) h.begins_again(site, 1, h.disk(site));
  h.pass_by(10);
  h.trigger({H::kP, H::kD, H::kE});
  h.commits(3, {H::kD, H::kE});
  h.only({H::kD, H::kE}, 0);  // where f still has the leader of term 3
  h.pass_by(12);
  h.trigger({H::kF});
  h.pass_by(125);
  EXPECT_THAT(h.invariants().broken(), IsEmpty()) << h.story();
}

TEST(Succession, KnowingAMembershipIsAPromiseOfItsLeadersTermDespiteAnOlderRecord) {
  History h;
  take_up_to_term_3(h);
  h.leaves(H::kX);
  h.leaves(H::kF);
  h.only({H::kD, H::kE}, 0);
  h.pass_by(10);
  h.trigger({H::kP});
  h.pass_by(3);
  const wire::Record of_d = h.disk(H::kD);
  const wire::Record of_e = h.disk(H::kE);
  h.trigger({H::kD, H::kE});  // they take the anchor of round 2; the writes of their records come to nothing
  h.settle_all();
  h.begins_again(H::kD, 1, of_d);
  h.begins_again(H::kE, 1, of_e);
  h.pass_by(10);
  h.trigger({H::kD, H::kE});
  h.commits(3, {H::kD});
  h.only({H::kD}, 0);
  h.pass_by(12);
  h.trigger({H::kP});
  h.pass_by(125);
  EXPECT_THAT(h.invariants().broken(), IsEmpty()) << h.story();
}

// Three have lost their records, so they go on under another name. Its leader is lost before anything is agreed on
// there.
TEST(Succession, ASiteThatJustBeganARunIsKnownByItsRecord) {
  History h;
  const std::vector<std::uint32_t> all{H::kX, H::kP, H::kF, H::kD, H::kE};
  for (const std::uint32_t site : {H::kX, H::kP, H::kF}) h.begins_again(site, 0, {});
  h.pass_by(80);  // the grace
  const RunId run = h.disk(H::kD).anchor.run;
  EXPECT_GT(run, RunId{7}) << h.story();
  h.only(all, 1);
  h.pass_by(20);
  h.trigger(all);
  h.pass_by(5);
  EXPECT_TRUE(h.is_committed(run, 1)) << h.story();
  EXPECT_THAT(h.invariants().broken(), IsEmpty());
}

}  // namespace
}  // namespace collab::protocol
