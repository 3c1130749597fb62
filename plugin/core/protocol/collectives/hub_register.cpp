// Who is gone: a chain of memberships, one instance of Paxos each. The hub proposes, the sites' lowest living ranks
// accept.
#include <algorithm>
#include <utility>

#include "core/protocol/collectives/hub_state.h"
#include "core/protocol/formatting.h"
#include "core/wire/limits.h"

namespace collab::protocol {
namespace {

// Of each site the lowest rank that is not gone: whoever decides on the next membership.
[[nodiscard]] std::vector<wire::Voter> acceptors_of(const HubWorld& room) {
  std::vector<wire::Voter> voters;
  std::set<std::uint32_t> seen;
  for (std::uint32_t i = 0; i < room.ranks.size(); ++i) {
    if (std::ranges::binary_search(room.epochs.chosen.gone, RankId(i)) || !seen.insert(room.site_of[i]).second)
      continue;
    const HubRank& rank = room.ranks[i];
    voters.push_back({SiteId(i), room.sites[room.site_of[i]], rank.acceptor, rank.left});
  }
  return voters;
}

template <typename F>
[[nodiscard]] Quorum count(const HubWorld& room, F counts) {
  return quorum_of(acceptors_of(room), [&](const wire::Voter& voter) {
    return counts(voter.site.value) ? Presence::kWithRecord : Presence::kAbsent;
  });
}

}  // namespace

// From here on nothing under an older ballot counts. Everybody promises anew and says again what it holds.
void CollectiveHub::State::raise(HubWorld& room, std::uint64_t term) {
  HubRegister& epochs = room.epochs;
  epochs.ballot = {term + 1, config.hub};
  epochs.proposal.reset();
  epochs.accepted_by.clear();
  epochs.leads = false;
  room.groups.clear();
  room.resolving.clear();
  for (HubRank& rank : room.ranks) {
    rank.promised = rank.in = false;
    rank.asked = rank.link.value != 0;
    send(rank.link, wire::PrepareWorld{epochs.ballot});
  }
}

// Does what those who are here allow: leads, completes what an older ballot may have chosen, leaves out who is gone.
void CollectiveHub::State::advance(HubWorld& room) {
  HubRegister& epochs = room.epochs;
  epochs.leads = epochs.leads || room.only_hub;
  for (;;) {
    if (epochs.leads) admit(room);
    if (!is_promised(room)) return;
    if (epochs.proposal) {
      if (!is_accepted(room)) return;
      choose(room, *epochs.proposal);
    } else if (!room.only_hub && epochs.reported_under.term != 0 &&
               epochs.reported.number == epochs.chosen.number + 1) {
      propose(room, epochs.reported);
    } else if (!epochs.leads) {
      epochs.leads = true;
    } else {
      const wire::Epoch next = next_epoch(room);
      if (next.gone.size() == epochs.chosen.gone.size()) return;
      room.only_hub ? choose(room, next) : propose(room, next);
    }
  }
}

bool CollectiveHub::State::is_promised(const HubWorld& room) const {
  const auto promised = [](const HubRank& rank) { return rank.promised && rank.link.value != 0; };
  if (room.only_hub || is_lone(room)) return std::ranges::any_of(room.ranks, promised);
  return count(room, [&](std::uint32_t i) { return room.ranks[i].promised; }).can_promise();
}

bool CollectiveHub::State::is_accepted(const HubWorld& room) const {
  const std::set<std::uint32_t>& by = room.epochs.accepted_by;
  return is_lone(room) ? !by.empty() : count(room, [&](std::uint32_t i) { return by.contains(i); }).can_accept();
}

std::vector<wire::Voter> CollectiveHub::State::missing(const HubWorld& room) const {
  std::vector<wire::Voter> voters = acceptors_of(room);
  std::erase_if(voters, [&](const wire::Voter& voter) {
    return voter.left || !room.suspects.contains(voter.site.value) || !is_silent(room, voter.site.value);
  });
  return voters;
}

// Of two one is silent. Two have no majority but both, and one that waited for ever would be of no use: it goes on
// alone. So does the other, if it lives; each has left the other out.
bool CollectiveHub::State::is_lone(const HubWorld& room) const {
  return acceptors_of(room).size() <= 2 && missing(room).size() == 1;
}

void CollectiveHub::State::admit(HubWorld& room) {
  const auto in_ms = [](Duration time) {
    return static_cast<std::uint32_t>(std::min<std::int64_t>(time.count() / 1000, wire::kMaxIntervalMs));
  };
  const HubRegister& epochs = room.epochs;
  for (std::uint32_t i = 0; i < room.ranks.size(); ++i) {
    HubRank& rank = room.ranks[i];
    if (rank.in || !rank.promised || rank.link.value == 0 || rank.away()) continue;
    rank.in = true;
    send(rank.link, wire::Entered{in_ms(config.heartbeat), in_ms(config.link_grace), epochs.ballot, epochs.chosen});
    catch_up(room, RankId(i));
  }
}

// Who is silent, and who has left: what a later hub could not know.
wire::Epoch CollectiveHub::State::next_epoch(const HubWorld& room) const {
  wire::Epoch next{room.epochs.chosen.number + 1, {}};
  for (std::uint32_t i = 0; i < room.ranks.size(); ++i) {
    const HubRank& rank = room.ranks[i];
    const bool left = rank.left && !room.only_hub;
    const bool silent = !rank.away() && room.suspects.contains(i) && is_silent(room, i);
    if (!rank.gone.empty() || left || silent || std::ranges::binary_search(room.epochs.chosen.gone, RankId(i))) {
      next.gone.emplace_back(i);
    }
  }
  return next;
}

void CollectiveHub::State::propose(HubWorld& room, const wire::Epoch& epoch) {
  room.epochs.proposal = epoch;
  room.epochs.accepted_by.clear();
  for (const HubRank& rank : room.ranks) {
    if (rank.promised && rank.link.value != 0) send(rank.link, wire::AcceptEpoch{room.epochs.ballot, epoch});
  }
}

void CollectiveHub::State::accepted(HubWorld& room, RankId rank, const wire::AcceptedEpoch& message) {
  HubRegister& epochs = room.epochs;
  if (!epochs.proposal || message.ballot != epochs.ballot || message.number != epochs.proposal->number) return;
  epochs.accepted_by.insert(rank.value);
  advance(room);
}

void CollectiveHub::State::choose(HubWorld& room, const wire::Epoch& epoch) {
  const wire::Epoch chosen = epoch;  // it may be our proposal
  HubRegister& epochs = room.epochs;
  epochs.chosen = chosen;
  epochs.proposal.reset();
  epochs.accepted_by.clear();
  for (const HubRank& rank : room.ranks) {
    if (rank.link.value != 0) send(rank.link, wire::ChosenEpoch{chosen});
  }
  std::vector<RankId> left_out;
  std::vector<RankId> silent;
  std::vector<RankId> unseen;
  for (const RankId each : chosen.gone) {
    const HubRank& rank = room.ranks[each.value];
    if (rank.away()) continue;
    (!room.suspects.contains(each.value) ? left_out : rank.entered ? silent : unseen).push_back(each);
  }
  mark_gone(room, left_out, "an earlier coordinator has left it out");
  mark_gone(room, silent, "nothing heard from it for " + in_seconds(config.link_grace) + " (COLLAB_LINK_GRACE)");
  mark_gone(room, unseen, "it has never come to this coordinator");
  recheck(room);
}

// One line for all of them.
void CollectiveHub::State::mark_gone(HubWorld& room, const std::vector<RankId>& ranks, const std::string& why) {
  if (ranks.empty()) return;
  std::vector<std::string> names;
  for (const RankId rank : ranks) {
    HubRank& each = room.ranks[rank.value];
    each.gone = why;
    names.push_back(rank_text(room, rank));
    if (each.link.value == 0) continue;
    const std::string reason = left_out_text(room, rank);
    send(each.link, wire::Refuse{reason});
    hang_up(each.link, reason);
  }
  note(Note::Level::kWarning, "meeting",
       names_text(names, {}) + (names.size() == 1 ? " is" : " are") + " gone from the world's collectives: " + why +
           " [hub.rank-gone]");
}

// ---- silence ---------------------------------------------------------------------------------------

bool CollectiveHub::State::is_silent(const HubWorld& room, std::uint32_t rank) const {
  const HubRank& each = room.ranks[rank];
  return now >= (each.entered ? later(each.heard, config.link_grace) : room.unseen);
}

// When a rank is to be looked at; never again, once it has been judged.
TimePoint CollectiveHub::State::judged_at(const HubWorld& room, std::uint32_t rank) const {
  const HubRank& each = room.ranks[rank];
  if (each.away()) return kNever;
  const TimePoint limit = each.entered ? later(each.heard, config.link_grace) : room.unseen;
  const TimePoint due = room.hold == kNever ? limit : std::max(limit, room.hold);
  return due > now || !room.suspects.contains(rank) ? due : kNever;
}

void CollectiveHub::State::judge_silent(HubWorld& room) {
  std::set<std::uint32_t> silent;
  bool others_falter = false;  // silent, too, within a heartbeat
  for (std::uint32_t i = 0; i < room.ranks.size(); ++i) {
    const HubRank& rank = room.ranks[i];
    if (rank.away()) continue;
    if (is_silent(room, i)) {
      silent.insert(i);
    } else {
      others_falter =
          others_falter || (rank.entered && later(now, config.heartbeat) >= later(rank.heard, config.link_grace));
    }
  }
  const bool fresh = !std::ranges::includes(room.suspects, silent);
  if (fresh && others_falter && room.hold == kNever) room.hold = later(now, config.heartbeat);
  if (room.hold != kNever && now < room.hold) return;
  room.hold = kNever;
  room.suspects = std::move(silent);
  if (room.suspects.empty()) return;
  if (!room.only_hub) judge_quorum(room);
  advance(room);
}

// Whether those who are not silent can agree on anything.
void CollectiveHub::State::judge_quorum(HubWorld& room) {
  std::set<std::uint32_t> silent;
  std::vector<std::string> names;
  for (const wire::Voter& voter : missing(room)) {
    silent.insert(voter.site.value);
    names.push_back(voter.name);
  }
  const Quorum rest = count(room, [&](std::uint32_t i) { return !silent.contains(i); });
  if (rest.can_accept() || is_lone(room)) return;
  dismiss(room, "only " + std::to_string(rest.by_name) + " of " + std::to_string(rest.voters) +
                    " sites can reach this coordinator; the others may go on without " +
                    (rest.by_name == 1 ? "this one" : "these") + ": missing are " + names_text(names, {}));
}

// They try another hub, where the others may be.
void CollectiveHub::State::dismiss(HubWorld& room, const std::string& why) {
  bool told = false;
  room.epochs.leads = false;
  for (HubRank& rank : room.ranks) {
    rank.entered = rank.promised = false;
    if (rank.link.value == 0) continue;
    told = true;
    send(rank.link, wire::Notice{std::string(kMinority), why});
    hang_up(rank.link, why);
  }
  room.unseen = kNever;
  room.suspects.clear();
  if (told) note(Note::Level::kWarning, "meeting", why + " [hub.dismissed]");
}

}  // namespace collab::protocol
