#include "core/protocol/collectives/hub_membership.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

#include "core/protocol/collectives/hub_parts.h"
#include "core/protocol/formatting.h"
#include "core/protocol/mutants.h"
#include "core/wire/limits.h"

namespace collab::protocol {

namespace {

// Several raises at once, then one per grace. Ranks do not move between living hubs more often, and one raise serves
// all of them.
constexpr double kRaisesOfSite = 4;
constexpr double kRaisesOfWorld = 8;

[[nodiscard]] RateLimit raises(double at_once, Duration grace) {
  return {at_once, 1 / std::chrono::duration<double>(grace).count()};
}

}  // namespace

HubMembership::HubMembership(HubWorld& world, const wire::Ballot& ballot)
    : world_(world),
      ballot_(ballot),
      votes_(world.ranks.size()),
      raises_(raises(kRaisesOfWorld, world.hub.config.link_grace)) {}

bool HubMembership::is_gone(RankId rank) const { return std::ranges::binary_search(chosen_.gone, rank); }

// ---- what a rank says when it enters

// Why no rank of this world can have this state. Empty: a rank can.
std::string HubMembership::why_impossible(const wire::Enter& message) const {
  for (const wire::Epoch* epoch : {&message.chosen, &message.accepted}) {
    const std::vector<RankId>& gone = epoch->gone;
    if (!gone.empty() && !world_.ranks.has(gone.back())) {
      return "rank " + std::to_string(gone.back().value) + " is said to be gone from a world of " +
             std::to_string(world_.ranks.size());
    }
    if (epoch->number > gone.size()) {  // each epoch leaves out at least one more rank
      return "a world cannot have come to membership " + std::to_string(epoch->number) + " without " +
             std::to_string(gone.size()) + " of its ranks";
    }
  }
  if (std::ranges::binary_search(message.chosen.gone, message.rank)) {
    return world_.ranks.text(message.rank) + " was left out of its world's collectives, as it says itself";
  }
  std::map<GroupId, std::size_t> held;
  for (const wire::Held& each : message.held) {
    if (++held[each.group] > kMaxHeldOfGroup + 1) {
      return world_.ranks.text(message.rank) + " says that it holds more than " + std::to_string(kMaxHeldOfGroup + 1) +
             " results of one group";
    }
  }
  const std::uint64_t term = std::max(message.promised.term, message.accepted_under.term);
  if (term <= ballot_.term + wire::kMaxTermStep) return "";
  return "a promise under term " + std::to_string(term) + " is far above any of this world, which is at " +
         std::to_string(ballot_.term);
}

std::string HubMembership::why_refused(const wire::Enter& message) const {
  if (const std::string why = why_impossible(message); !why.empty()) return why + " [hub.bad-memory]";
  if (world_.only_hub) return "";  // it decides alone
  const wire::Epoch& theirs = message.chosen;
  const wire::Epoch& newer = theirs.number > chosen_.number ? theirs : chosen_;
  const wire::Epoch& older = theirs.number > chosen_.number ? chosen_ : theirs;
  const bool chained =
      std::ranges::includes(newer.gone, older.gone) && (newer.number != older.number || chosen_ == theirs);
  // Under this hub's ballot, only this hub can have an epoch chosen. A claim to the contrary counts for nothing.
  const bool known = theirs.number <= chosen_.number || !leads_ || message.promised > ballot_;
  if (chained && known) return "";
  return world_.ranks.text(message.rank) +
         " has gone on with others of its world, apart from the ranks here: each side has left the other out for good "
         "[hub.split]";
}

bool HubMembership::may_raise(RankId rank) {
  const HubParts& hub = world_.hub;
  RateLimit& of_site =
      raises_of_site_.try_emplace(world_.ranks.site_index(rank), raises(kRaisesOfSite, hub.config.link_grace))
          .first->second;
  if (!of_site.would_allow(hub.now, 1) || !raises_.would_allow(hub.now, 1)) return false;
  of_site.spend(1);
  raises_.spend(1);
  return true;
}

// From now on nothing under an older ballot counts. Every rank promises again, and reports again what it holds.
void HubMembership::raise_above(const wire::Enter& message) {
  if (message.promised <= ballot_ || !may_raise(message.rank)) return;
  ballot_ = {message.promised.term + 1, world_.hub.config.hub};
  proposal_.reset();
  accepted_by_.clear();
  leads_ = false;
  world_.groups.clear();
  world_.ranks.readmit_all();
  for (std::uint32_t i = 0; i < votes_.size(); ++i) {
    votes_[i] = {world_.ranks[RankId(i)].linked(), false};
    world_.send(RankId(i), wire::PrepareWorld{ballot_});
  }
}

void HubMembership::on_enter(LinkId link, const wire::Enter& message) {
  Vote& vote = votes_[message.rank.value];
  if (message.promised > ballot_) {
    vote.promised = false;
    if (!std::exchange(vote.asked, true)) world_.hub.send(link, wire::PrepareWorld{ballot_});
    return;
  }
  learn(message);
  const bool missed_one = message.chosen.number < chosen_.number && !mutant(Mutant::kMembershipNotTold);
  if (missed_one) world_.hub.send(link, wire::ChosenEpoch{chosen_});
  vote.promised = world_.only_hub || message.promised == ballot_;
  if (!vote.promised && !std::exchange(vote.asked, true)) world_.hub.send(link, wire::PrepareWorld{ballot_});
  if (vote.promised && proposal_) world_.hub.send(link, wire::AcceptEpoch{ballot_, *proposal_});
  advance();
}

// Takes what the rank reports as an acceptor.
void HubMembership::learn(const wire::Enter& message) {
  if (std::pair(reported_.number, reported_under_) < std::pair(message.accepted.number, message.accepted_under)) {
    reported_under_ = message.accepted_under;
    reported_ = message.accepted;
  }
  if (message.chosen.number <= chosen_.number) return;
  // An only hub decides alone: a rank that is linked is not gone because another rank says so.
  const bool here = std::ranges::any_of(message.chosen.gone, [&](RankId rank) { return world_.ranks[rank].linked(); });
  if (!world_.only_hub || !here) choose(message.chosen);
}

// ---- the agreement

void HubMembership::advance() {
  leads_ = leads_ || world_.only_hub;
  for (;;) {
    if (leads_) admit();
    if (!is_promised()) return;
    if (proposal_) {
      if (!is_accepted()) return;
      choose(*proposal_);
    } else if (!world_.only_hub && reported_under_.term != 0 && reported_.number == chosen_.number + 1 &&
               !mutant(Mutant::kReportedMembershipIgnored)) {
      propose(reported_);
    } else if (!leads_) {
      leads_ = true;
    } else {
      const wire::Epoch next = next_epoch();
      if (next.gone.size() == chosen_.gone.size()) return;
      world_.only_hub ? choose(next) : propose(next);
    }
  }
}

void HubMembership::admit() {
  const auto in_ms = [](Duration time) {
    return static_cast<std::uint32_t>(std::min<std::int64_t>(time.count() / 1000, wire::kMaxIntervalMs));
  };
  const HubConfig& config = world_.hub.config;
  for (std::uint32_t i = 0; i < votes_.size(); ++i) {
    const HubRank& rank = world_.ranks[RankId(i)];
    if (rank.in || !may_accept(RankId(i)) || rank.away()) continue;
    world_.ranks.admit(RankId(i));
    world_.send(RankId(i), wire::Entered{in_ms(config.heartbeat), in_ms(config.link_grace), ballot_, chosen_});
    world_.groups.catch_up(RankId(i));
  }
}

// The next epoch leaves out silent ranks. It also leaves out ranks that have left, because a later hub could not know
// that they have.
wire::Epoch HubMembership::next_epoch() const {
  wire::Epoch next{chosen_.number + 1, {}};
  for (std::uint32_t i = 0; i < votes_.size(); ++i) {
    const RankId id(i);
    const HubRank& rank = world_.ranks[id];
    const bool left = rank.left && !world_.only_hub;
    const bool silent = !rank.away() && world_.ranks.is_suspect(id) && world_.ranks.is_silent(id);
    if (!rank.gone.empty() || left || silent || is_gone(id)) next.gone.push_back(id);
  }
  return next;
}

void HubMembership::propose(const wire::Epoch& epoch) {
  proposal_ = epoch;
  accepted_by_.clear();
  for (std::uint32_t i = 0; i < votes_.size(); ++i) {
    if (may_accept(RankId(i))) world_.send(RankId(i), wire::AcceptEpoch{ballot_, epoch});
  }
}

void HubMembership::on_accepted(RankId rank, const wire::AcceptedEpoch& message) {
  if (!proposal_ || message.ballot != ballot_ || message.number != proposal_->number) return;
  accepted_by_.insert(rank.value);
  advance();
}

void HubMembership::choose(const wire::Epoch& epoch) {
  chosen_ = epoch;
  proposal_.reset();
  accepted_by_.clear();
  std::vector<RankId> left_out;
  std::vector<RankId> silent;
  std::vector<RankId> never_came;
  for (std::uint32_t i = 0; i < votes_.size(); ++i) world_.send(RankId(i), wire::ChosenEpoch{chosen_});
  for (const RankId id : chosen_.gone) {
    const HubRank& rank = world_.ranks[id];
    if (rank.away()) continue;
    (!world_.ranks.is_suspect(id) ? left_out : rank.entered ? silent : never_came).push_back(id);
  }
  world_.ranks.mark_gone(left_out, "an earlier coordinator has left it out");
  world_.ranks.mark_gone(
      silent, "nothing heard from it for " + in_seconds(world_.hub.config.link_grace) + " (COLLAB_LINK_GRACE)");
  world_.ranks.mark_gone(never_came, "it has never reached this coordinator");
  world_.groups.settle();
}

// ---- quorums

// The lowest rank of each site that is not gone.
std::vector<wire::Voter> HubMembership::voters() const {
  std::vector<wire::Voter> voters;
  std::set<std::uint32_t> seen;
  for (std::uint32_t i = 0; i < votes_.size(); ++i) {
    const RankId id(i);
    if (is_gone(id) || !seen.insert(world_.ranks.site_index(id)).second) continue;
    const HubRank& rank = world_.ranks[id];
    voters.push_back({SiteId(i), world_.ranks.site(id), rank.acceptor, rank.left});
  }
  return voters;
}

std::vector<wire::Voter> HubMembership::missing() const {
  std::vector<wire::Voter> missing = voters();
  std::erase_if(missing, [&](const wire::Voter& voter) {
    const RankId rank(voter.site.value);
    return voter.left || !world_.ranks.is_suspect(rank) || !world_.ranks.is_silent(rank);
  });
  return missing;
}

template <typename F>
Quorum HubMembership::count(F counts) const {
  return quorum_of(voters(), [&](const wire::Voter& voter) {
    return counts(voter.site.value) ? Presence::kWithRecord : Presence::kAbsent;
  });
}

// One of two voters is silent. Two voters are a majority only together, and waiting for ever is useless: this one goes
// on alone. So does the other, if it lives. Each then leaves the other out.
bool HubMembership::is_lone() const { return voters().size() <= 2 && missing().size() == 1; }

bool HubMembership::may_accept(RankId rank) const { return votes_[rank.value].promised && world_.ranks[rank].linked(); }

bool HubMembership::is_promised() const {
  if (!world_.only_hub && !is_lone()) {
    // A rank that promised and then left here keeps its promise for good: it can leave at one hub only.
    std::vector<wire::Voter> all = voters();
    for (wire::Voter& voter : all) {
      const bool promised = votes_[voter.site.value].promised && !mutant(Mutant::kLeaverHasNotPromised);
      voter.left = voter.left && !promised;
    }
    return quorum_of(all,
                     [&](const wire::Voter& voter) {
                       return votes_[voter.site.value].promised ? Presence::kWithRecord : Presence::kAbsent;
                     })
        .can_promise();
  }
  for (std::uint32_t i = 0; i < votes_.size(); ++i) {
    if (may_accept(RankId(i))) return true;
  }
  return false;
}

bool HubMembership::is_accepted() const {
  if (is_lone() || mutant(Mutant::kOneAcceptsMembership)) return !accepted_by_.empty();
  return count([&](std::uint32_t i) { return accepted_by_.contains(i); }).can_accept();
}

void HubMembership::judge_quorum() {
  std::set<std::uint32_t> silent;
  std::vector<std::string> names;
  for (const wire::Voter& voter : missing()) {
    silent.insert(voter.site.value);
    names.push_back(voter.name);
  }
  const Quorum rest = count([&](std::uint32_t i) { return !silent.contains(i); });
  const bool enough = rest.can_accept() && (is_promised() || rest.can_promise());
  if (enough || is_lone() || mutant(Mutant::kMinorityNotTold)) return;
  leads_ = false;
  for (Vote& vote : votes_) vote.promised = false;
  world_.ranks.disconnect_all("only " + std::to_string(rest.with_record) + " of " + std::to_string(rest.voters) +
                              " sites can reach this coordinator; the other sites may go on without " +
                              (rest.with_record == 1 ? "this one" : "these") + "; missing: " + names_text(names, {}));
}

}  // namespace collab::protocol
