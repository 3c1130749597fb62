// Who is in the collective hub: rooms, links and what the ranks that come by them remember.
#include "core/protocol/collectives/collective_hub.h"

#include <algorithm>
#include <utility>

#include "core/protocol/collectives/hub_state.h"
#include "core/protocol/formatting.h"
#include "core/wire/byte_io.h"
#include "core/wire/limits.h"

namespace collab::protocol {

namespace {

// What no rank of this world can remember.
[[nodiscard]] std::string why_impossible(const HubWorld& room, const wire::Enter& message) {
  for (const wire::Epoch* epoch : {&message.chosen, &message.accepted}) {
    const std::vector<RankId>& gone = epoch->gone;
    if (!gone.empty() && gone.back().value >= room.ranks.size()) {
      return "rank " + std::to_string(gone.back().value) + " is said to be gone from a world of " +
             std::to_string(room.ranks.size());
    }
    if (epoch->number > gone.size()) {  // each leaves out one more at least
      return "a world cannot have come to membership " + std::to_string(epoch->number) + " without " +
             std::to_string(gone.size()) + " of its ranks";
    }
  }
  if (std::ranges::binary_search(message.chosen.gone, message.rank)) {
    return rank_text(room, message.rank) + " was left out of its world's collectives, as it says itself";
  }
  const std::uint64_t term = std::max(message.promised.term, message.accepted_under.term);
  if (term > room.epochs.ballot.term + wire::kMaxTermStep) {
    return "a promise under term " + std::to_string(term) + " is far above any of this world, which is at " +
           std::to_string(room.epochs.ballot.term);
  }
  return "";
}

}  // namespace

std::string rank_text(const HubWorld& room, RankId rank) {
  return "rank " + std::to_string(rank.value) + " of " + room.sites[room.site_of[rank.value]];
}

HubGroup* group_of(HubWorld& room, GroupId id) {
  const auto found = room.groups.find(id);
  return found == room.groups.end() ? nullptr : &found->second;
}

std::optional<std::uint32_t> member_of(const HubGroup& group, RankId rank) {
  const auto found = std::find(group.members.begin(), group.members.end(), rank);
  if (found == group.members.end()) return std::nullopt;
  return static_cast<std::uint32_t>(found - group.members.begin());
}

std::string left_out_text(const HubWorld& room, RankId rank) {
  const HubRank& each = room.ranks[rank.value];
  return rank_text(room, rank) +
         " was left out of its world's collectives: " + (each.left ? "it had left" : each.gone) +
         "; the others go on without it, so start it again as a new process [hub.left-out]";
}

CollectiveHub::CollectiveHub(HubConfig config) : state_(std::make_unique<State>()) {
  state_->config = std::move(config);
}
CollectiveHub::~CollectiveHub() = default;
CollectiveHub::CollectiveHub(CollectiveHub&&) noexcept = default;
CollectiveHub& CollectiveHub::operator=(CollectiveHub&&) noexcept = default;

bool CollectiveHub::knows(LinkId link) const { return state_->links.contains(link) || state_->hung_up.contains(link); }

std::vector<std::string> CollectiveHub::present() const {
  std::vector<std::string> names;
  for (const auto& [world, room] : state_->rooms) {
    for (std::uint32_t rank = 0; rank < room.ranks.size(); ++rank) {
      const HubRank& each = room.ranks[rank];
      if (each.entered && !each.away() && !room.suspects.contains(rank)) {
        names.push_back(rank_text(room, RankId(rank)));
      }
    }
  }
  return names;
}

std::size_t CollectiveHub::bytes_held() const {
  std::size_t bytes = 0;
  for (const auto& [world, room] : state_->rooms) {
    for (const auto& [id, group] : room.groups) {
      for (const auto& [number, step] : group.steps) {
        for (const auto& [member, part] : step.parts) bytes += part.payload.bytes;
      }
    }
  }
  return bytes;
}

std::vector<HubAction> CollectiveHub::step(TimePoint now, const HubEvent& event) {
  state_->now = now;
  state_->parts->worlds = state_->memory->worlds = state_->rooms.size();
  if (const auto* received = std::get_if<HubReceived>(&event)) {
    state_->received(*received);
  } else if (const auto* closed = std::get_if<Closed>(&event)) {
    state_->closed(closed->link);
  } else {
    state_->tick();
  }
  return std::exchange(state_->actions, {});
}

TimePoint CollectiveHub::next_deadline() const {
  TimePoint next = kNever;
  for (const auto& [world, room] : state_->rooms) {
    next = std::min(next, state_->deserted_at(room));
    for (std::uint32_t rank = 0; rank < room.ranks.size(); ++rank) {
      next = std::min(next, state_->judged_at(room, rank));
    }
    for (const auto& [id, group] : room.groups) {
      for (const auto& [number, step] : group.steps) {
        if (step.decided || step.late) continue;
        for (const auto& [member, part] : step.parts) next = std::min(next, part.deadline);
      }
    }
  }
  return next;
}

void CollectiveHub::State::send(LinkId link, wire::Message message, Payload payload) {
  if (link.value != 0) actions.emplace_back(HubSend{link, std::move(message), std::move(payload)});
}

void CollectiveHub::State::note(Note::Level level, const char* event, std::string text) {
  actions.emplace_back(make_note(level, event, wire::fit_sentence(text, wire::kMaxReasonBytes)));
}

void CollectiveHub::State::refuse(LinkId link, const std::string& why) {
  note(Note::Level::kWarning, "refused", "the world's collectives refuse a rank: " + why);
  send(link, wire::Refuse{why});
  hang_up(link, why);
}

// What is on its way by it is no longer heard: its rank may have entered by another link since.
void CollectiveHub::State::hang_up(LinkId link, const std::string& why) {
  if (link.value == 0) return;
  if (const auto found = links.find(link); found != links.end()) {
    HubRank& rank = rooms.at(found->second.first).ranks[found->second.second.value];
    rank.link = {};
    rank.in = false;
    links.erase(found);
  }
  hung_up.insert(link);
  actions.emplace_back(Hangup{link, why});
}

void CollectiveHub::State::received(const HubReceived& event) {
  if (hung_up.contains(event.link)) return;
  if (const auto* message = std::get_if<wire::Enter>(&event.message)) return enter(event.link, *message);
  const auto found = links.find(event.link);
  if (found == links.end()) return;
  const RankId rank = found->second.second;
  HubWorld& room = rooms.at(found->second.first);
  room.ranks[rank.value].heard = room.heard = now;
  if (const auto* beat = std::get_if<wire::Heartbeat>(&event.message)) {
    if (!beat->reply) send(event.link, wire::Heartbeat{beat->sequence, true});
    return;
  }
  if (const auto* m = std::get_if<wire::Leave>(&event.message)) return leave(room, rank, m->reason);
  if (const auto* m = std::get_if<wire::AcceptedEpoch>(&event.message)) return accepted(room, rank, *m);
  const bool in = room.ranks[rank.value].in;  // else it was said to an older ballot, and will be said again
  if (const auto* m = std::get_if<wire::Assemble>(&event.message)) return in ? assemble(room, rank, *m) : void();
  if (const auto* m = std::get_if<wire::Disband>(&event.message)) return in ? disband(room, rank, *m) : void();
  if (const auto* m = std::get_if<wire::Contribute>(&event.message)) {
    return in ? contribute(room, rank, *m, event.payload) : void();
  }
  if (const auto* m = std::get_if<wire::ResultAck>(&event.message)) return in ? taken(room, rank, *m) : void();
  if (const auto* m = std::get_if<wire::ResolveSender>(&event.message)) return in ? resolve(room, rank, *m) : void();
  refuse(event.link, "expected a message of a world's collectives, got one of another kind [hub.unexpected-message]");
}

// The room of this world, or null when this rank is refused.
HubWorld* CollectiveHub::State::room_for(LinkId link, const wire::Enter& message) {
  if (message.swarm != config.swarm) {
    refuse(link, "this coordinator serves the swarm " + config.swarm + ", this rank asks for " + message.swarm +
                     ": set COLLAB_RUN alike, or another COLLAB_COORDINATOR [hub.other-swarm]");
    return nullptr;
  }
  if (const auto own = links.find(link); own != links.end() && own->second != std::pair(message.world, message.rank)) {
    refuse(link, "this link is of rank " + std::to_string(own->second.second.value) +
                     " of another world or place; rank " + std::to_string(message.rank.value) +
                     " needs one of its own [hub.link-taken]");
    return nullptr;
  }
  if (!rooms.contains(message.world)) {
    if (const std::string why = make_room(message); !why.empty()) {
      refuse(link, why);
      return nullptr;
    }
  }
  const auto [place, fresh] = rooms.try_emplace(message.world);
  HubWorld& room = place->second;
  if (fresh) {
    room.sites = message.sites;
    room.site_of = message.site_of;
    room.ranks.resize(message.site_of.size());
    room.only_hub = message.candidates == 1;
    room.epochs.ballot = {++rooms_begun, config.hub};  // a ballot is never used for two rooms
    gather(room, message.returning);
  }
  const std::string why = why_refused(room, message);
  if (why.empty()) return &room;
  if (fresh) rooms.erase(place);
  refuse(link, why);
  return nullptr;
}

// Empty: there is room for one more world. Of those that nobody is linked to, the one that fewest have entered goes
// first.
std::string CollectiveHub::State::make_room(const wire::Enter& message) {
  const std::size_t ranks = message.site_of.size();
  for (;;) {
    std::size_t in_all = ranks;
    for (const auto& [world, room] : rooms) in_all += room.ranks.size();
    const bool too_long = ranks > kSmallWorld && in_all > kMaxWorldRanks;
    if (rooms.size() < kMaxWorlds && !too_long) return "";
    auto least = rooms.end();
    std::pair<std::ptrdiff_t, TimePoint> its{};
    for (auto room = rooms.begin(); room != rooms.end(); ++room) {
      if (deserted_at(room->second) == kNever) continue;
      const auto entered =
          std::ranges::count_if(room->second.ranks, [](const HubRank& rank) { return rank.acceptor.value != 0; });
      const std::pair mine(entered, room->second.heard);
      if (least != rooms.end() && its <= mine) continue;
      least = room;
      its = mine;
    }
    if (least != rooms.end()) {
      rooms.erase(least);
      continue;
    }
    return "this world has " + std::to_string(ranks) + " ranks, and this coordinator has " +
           std::to_string(rooms.size()) + " worlds of " + std::to_string(in_all - ranks) + " ranks: at most " +
           std::to_string(kMaxWorlds) + ", and " + std::to_string(kMaxWorldRanks) + " ranks where one has more than " +
           std::to_string(kSmallWorld) +
           "; end another, or start a coordinator of its own for this one [hub.too-many-worlds]";
  }
}

std::string CollectiveHub::State::why_refused(const HubWorld& room, const wire::Enter& message) const {
  if (room.sites != message.sites || room.site_of != message.site_of) {
    return "the ranks of this world are " + std::to_string(room.site_of.size()) + " at " +
           names_text(room.sites, message.sites) + "; this rank says " + std::to_string(message.site_of.size()) +
           " at " + names_text(message.sites, room.sites) + "; start all ranks of a world alike [hub.other-map]";
  }
  const HubRank& rank = room.ranks[message.rank.value];
  if (rank.away()) return left_out_text(room, message.rank);
  if (rank.acceptor.value != 0 && rank.acceptor != message.acceptor) {
    return rank_text(room, message.rank) +
           " has been in its world's collectives as another process, whose memory is lost; the world cannot take a new "
           "one in its place, so start a new world [hub.restarted]";
  }
  if (const std::string why = why_impossible(room, message); !why.empty()) return why + " [hub.bad-memory]";
  if (room.only_hub) return "";  // it decides alone
  const wire::Epoch& mine = room.epochs.chosen;
  const wire::Epoch& other = message.chosen;
  const wire::Epoch& newer = other.number > mine.number ? other : mine;
  const wire::Epoch& older = other.number > mine.number ? mine : other;
  const bool chained = std::ranges::includes(newer.gone, older.gone) && (newer.number != older.number || mine == other);
  // Under its ballot none but this hub can have one chosen: a word to the contrary counts for nothing.
  const bool known = other.number <= mine.number || !room.epochs.leads || message.promised > room.epochs.ballot;
  if (chained && known) return "";
  return rank_text(room, message.rank) +
         " has gone on with others of its world, apart from those that are here: they have left each other out for "
         "good "
         "[hub.parted]";
}

// Nobody is here: the others may take as long to come as for the first time.
void CollectiveHub::State::gather(HubWorld& room, bool returning) {
  // They looked for the old hub up to the grace, and need as long again when it does not answer at all.
  room.unseen = later(now, returning ? 2 * config.link_grace : std::max(config.join_timeout, config.link_grace));
  for (HubRank& rank : room.ranks) rank.entered = false;
  room.suspects.clear();
}

void CollectiveHub::State::enter(LinkId link, const wire::Enter& message) {
  HubWorld* const found = room_for(link, message);
  if (found == nullptr) return;
  HubWorld& room = *found;
  const bool empty = std::ranges::none_of(room.ranks, [](const HubRank& rank) { return rank.link.value != 0; });
  if (empty && !room.only_hub) gather(room, message.returning);
  if (message.returning) room.unseen = std::min(room.unseen, later(now, 2 * config.link_grace));
  if (message.promised > room.epochs.ballot) raise(room, message.promised.term);
  HubRank& rank = room.ranks[message.rank.value];
  if (rank.parts == nullptr) {
    parts->worlds = memory->worlds = rooms.size();
    rank.parts = std::make_shared<HubBudget>(HubBudget{parts, room.ranks.size()});
    rank.memory = std::make_shared<HubBudget>(HubBudget{memory, room.ranks.size()});
  }
  if (rank.link != link) hang_up(rank.link, "its rank has entered by another link");
  if (rank.link != link) rank.asked = false;
  rank.link = link;
  rank.acceptor = message.acceptor;
  rank.heard = room.heard = now;
  rank.entered = true;
  rank.in = false;
  links[link] = {message.world, message.rank};
  if (!is_named(room, message)) return;
  note_memory(room, message);
  rank.promised = room.only_hub || message.promised == room.epochs.ballot;
  if (!rank.promised && !std::exchange(rank.asked, true)) send(link, wire::PrepareWorld{room.epochs.ballot});
  if (rank.promised && room.epochs.proposal) {
    send(link, wire::AcceptEpoch{room.epochs.ballot, *room.epochs.proposal});
  }
  advance(room);
}

// Whether there is room for what it names; else it is refused.
bool CollectiveHub::State::is_named(HubWorld& room, const wire::Enter& message) {
  const auto fresh = static_cast<std::size_t>(std::ranges::count_if(
      message.completed, [&](const wire::Completed& each) { return !room.stood.contains(each.group); }));
  const std::size_t entries = message.completed.size() + message.held.size() + message.closed.size();
  const std::size_t before = room.ranks[message.rank.value].named.bytes();
  const std::size_t bytes = kEntryCost * (entries + fresh);
  return bytes <= before ||
         remembers(room, message.rank, bytes - before, std::to_string(entries) + " steps and groups that it names");
}

void CollectiveHub::State::note_closed(HubRank& rank) const {
  rank.named.set(kEntryCost * (rank.entered_with + rank.closed.size()));
}

// Whether the hub can remember so much more for this rank; else it is refused.
bool CollectiveHub::State::remembers(HubWorld& room, RankId rank, std::size_t bytes, const std::string& what) {
  const HubRank& each = room.ranks[rank.value];
  const HubBudget& share = *each.memory;
  if (share.fits(bytes)) return true;
  const bool own = share.held + bytes > share.all->each;
  refuse(each.link, rank_text(room, rank) + " asks this coordinator to remember " + what + ": that is " +
                        in_bytes(share.held + bytes) + " for it, and at most " +
                        in_bytes(own ? share.all->each : share.own()) +
                        (own ? " are kept for a rank" : " are its share while all together have too much") +
                        "; destroy process groups that are no longer used [hub.memory]");
  return false;
}

// What it says as an acceptor.
void CollectiveHub::State::note_memory(HubWorld& room, const wire::Enter& message) {
  HubRank& rank = room.ranks[message.rank.value];
  rank.completed.clear();
  rank.held.clear();
  for (const wire::Completed& each : message.completed) {
    rank.completed[each.group] = each.steps;
    const auto [place, fresh] = room.stood.try_emplace(each.group);
    if (fresh) place->second.charge = HubCharge(rank.memory, kEntryCost);
    place->second.step = std::max(place->second.step, each.steps);
  }
  for (const wire::Held& each : message.held) rank.held[each.group][each.step] = each.ballot;
  rank.closed = {message.closed.begin(), message.closed.end()};
  rank.entered_with = message.completed.size() + message.held.size();
  rank.named = HubCharge(rank.memory, 0);
  note_closed(rank);
  HubRegister& epochs = room.epochs;
  const auto older = [](const wire::Epoch& a, const wire::Ballot& under_a, const wire::Epoch& b,
                        const wire::Ballot& under_b) {
    return std::pair(a.number, under_a) < std::pair(b.number, under_b);
  };
  if (older(epochs.reported, epochs.reported_under, message.accepted, message.accepted_under)) {
    epochs.reported_under = message.accepted_under;
    epochs.reported = message.accepted;
  }
  if (message.chosen.number <= epochs.chosen.number) return;
  // The only hub decides alone: whom it hears is not gone because another says so.
  const bool here =
      std::ranges::any_of(message.chosen.gone, [&](RankId each) { return room.ranks[each.value].link.value != 0; });
  if (!room.only_hub || !here) choose(room, message.chosen);
}

void CollectiveHub::State::leave(HubWorld& room, RankId rank, const std::string& why) {
  hang_up(room.ranks[rank.value].link, "its rank has left");
  room.ranks[rank.value].left = true;
  note(Note::Level::kDebug, "meeting", rank_text(room, rank) + " has left: " + why);
  recheck(room);
  advance(room);
  const bool over = std::all_of(room.ranks.begin(), room.ranks.end(),
                                [](const HubRank& each) { return each.away() || !each.entered; });
  if (over) std::erase_if(rooms, [&](const auto& entry) { return &entry.second == &room; });
}

void CollectiveHub::State::closed(LinkId link) {
  hung_up.erase(link);
  const auto found = links.find(link);
  if (found == links.end()) return;
  HubRank& rank = rooms.at(found->second.first).ranks[found->second.second.value];
  rank.link = {};
  rank.in = false;
  links.erase(found);
}

void CollectiveHub::State::tick() {
  std::vector<std::uint64_t> worlds;
  for (const auto& [world, room] : rooms) worlds.push_back(world);
  for (const std::uint64_t world : worlds) {
    judge_silent(rooms.at(world));
    recheck(rooms.at(world));
    note_late(rooms.at(world));
    if (now >= deserted_at(rooms.at(world))) rooms.erase(world);
  }
}

// Who comes late is to be told that the others have gone on, or may yet meet them at another hub.
TimePoint CollectiveHub::State::deserted_at(const HubWorld& room) const {
  if (std::ranges::any_of(room.ranks, [](const HubRank& rank) { return rank.link.value != 0; })) return kNever;
  return later(room.heard, std::max(config.join_timeout, 2 * config.link_grace));
}

}  // namespace collab::protocol
