// Who is in the meeting: links, ranks that are silent, ranks that are gone.
#include "core/protocol/meeting.h"

#include <algorithm>
#include <utility>

#include "core/protocol/meeting_state.h"
#include "core/protocol/words.h"

namespace collab::protocol {

std::string rank_in_words(const MeetingRoom& room, RankId rank) {
  return "rank " + std::to_string(rank.value) + " of " + room.sites[room.site_of[rank.value]];
}

MeetingGroup* group_of(MeetingRoom& room, GroupId id) {
  const auto found = room.groups.find(id);
  return found == room.groups.end() ? nullptr : &found->second;
}

std::optional<std::uint32_t> member_of(const MeetingGroup& group, RankId rank) {
  const auto found = std::find(group.members.begin(), group.members.end(), rank);
  if (found == group.members.end()) return std::nullopt;
  return static_cast<std::uint32_t>(found - group.members.begin());
}

Meeting::Meeting(MeetingConfig config) : state_(std::make_unique<State>()) { state_->config = std::move(config); }
Meeting::~Meeting() = default;
Meeting::Meeting(Meeting&&) noexcept = default;
Meeting& Meeting::operator=(Meeting&&) noexcept = default;

bool Meeting::knows(LinkId link) const { return state_->links.contains(link); }

std::vector<std::string> Meeting::present() const {
  std::vector<std::string> names;
  for (const auto& [world, room] : state_->rooms) {
    for (std::uint32_t rank = 0; rank < room.ranks.size(); ++rank) {
      const MeetingRank& each = room.ranks[rank];
      if (each.entered && !each.away()) names.push_back(rank_in_words(room, RankId(rank)));
    }
  }
  return names;
}

std::size_t Meeting::bytes_held() const {
  std::size_t bytes = 0;
  for (const auto& [world, room] : state_->rooms) {
    for (const auto& [id, group] : room.groups) {
      for (const auto& [number, step] : group.steps) {
        for (const auto& [member, part] : step.parts) bytes += part.payload.bytes;
        for (const auto& [member, payload] : step.loose) bytes += payload.bytes;
      }
    }
  }
  return bytes;
}

std::vector<MeetingAction> Meeting::step(TimePoint now, const MeetingEvent& event) {
  state_->now = now;
  if (const auto* received = std::get_if<MeetingReceived>(&event)) {
    state_->received(*received);
  } else if (const auto* closed = std::get_if<Closed>(&event)) {
    state_->closed(closed->link);
  } else {
    state_->tick();
  }
  return std::exchange(state_->actions, {});
}

TimePoint Meeting::next_deadline() const {
  TimePoint next = kNever;
  for (const auto& [world, room] : state_->rooms) {
    for (const MeetingRank& rank : room.ranks) {
      if (rank.away()) continue;
      const TimePoint limit = rank.entered ? later(rank.heard, state_->config.link_grace) : room.unseen;
      if (limit > state_->now) {
        next = std::min(next, limit);
      } else if (room.minority.empty()) {  // a minority leaves nobody out: it looks again when something comes
        next = std::min(next, room.hold == kNever ? limit : room.hold);
      }
    }
    for (const auto& [id, group] : room.groups) {
      for (const auto& [number, step] : group.steps) {
        if (step.complete) continue;
        for (const auto& [member, part] : step.parts) next = std::min(next, part.deadline);
      }
    }
  }
  return next;
}

void Meeting::State::send(LinkId link, wire::Message message, Payload payload) {
  if (link.value != 0) actions.emplace_back(MeetingSend{link, std::move(message), std::move(payload)});
}

void Meeting::State::note(Note::Level level, const char* event, std::string text) {
  actions.emplace_back(make_note(level, event, std::move(text)));
}

void Meeting::State::refuse(LinkId link, const std::string& why) {
  note(Note::Level::kWarning, "refused", "the meeting refuses a rank: " + why);
  send(link, wire::Refuse{why});
  actions.emplace_back(Hangup{link, why});
}

void Meeting::State::received(const MeetingReceived& event) {
  if (const auto* message = std::get_if<wire::Enter>(&event.message)) return enter(event.link, *message);
  const auto found = links.find(event.link);
  if (found == links.end()) return;  // it was refused, or has entered anew by another link
  const RankId rank = found->second.second;
  MeetingRoom& room = rooms.at(found->second.first);
  room.ranks[rank.value].heard = now;
  if (const auto* beat = std::get_if<wire::Heartbeat>(&event.message)) {
    if (!beat->reply) send(event.link, wire::Heartbeat{beat->sequence, true});
    return;
  }
  if (const auto* m = std::get_if<wire::Assemble>(&event.message)) return assemble(room, rank, *m);
  if (const auto* m = std::get_if<wire::Disband>(&event.message)) return disband(room, rank, *m);
  if (const auto* m = std::get_if<wire::Bring>(&event.message)) return bring(room, rank, *m, event.payload);
  if (const auto* m = std::get_if<wire::Piece>(&event.message)) return piece(room, rank, *m, event.payload);
  if (const auto* m = std::get_if<wire::Outcome>(&event.message)) return recalled(room, rank, *m);
  if (const auto* m = std::get_if<wire::Taken>(&event.message)) return taken(room, rank, *m);
  if (const auto* m = std::get_if<wire::Seek>(&event.message)) return seek(room, rank, *m);
  if (const auto* m = std::get_if<wire::Leave>(&event.message)) {
    links.erase(found);
    actions.emplace_back(Hangup{event.link, "its rank has left"});
    return leave(room, rank, m->reason);
  }
  refuse(event.link, "expected a message of the meeting, got one of another kind");
}

void Meeting::State::enter(LinkId link, const wire::Enter& message) {
  if (message.swarm != config.swarm) {
    return refuse(link, "this is the swarm " + config.swarm + ", you look for " + message.swarm + " (COLLAB_RUN)");
  }
  const auto [place, fresh] = rooms.try_emplace(message.world);
  MeetingRoom& room = place->second;
  if (fresh) {
    room.sites = message.sites;
    room.site_of = message.site_of;
    room.ranks.resize(message.site_of.size());
    room.only_hub = message.candidates == 1;
    room.unseen = later(now, std::max(config.join_timeout, config.link_grace));
  } else if (room.sites != message.sites || room.site_of != message.site_of) {
    return refuse(link, "the ranks of this world are " + std::to_string(room.site_of.size()) + " at " +
                            join_words(room.sites) + "; you say " + std::to_string(message.site_of.size()) + " at " +
                            join_words(message.sites));
  }
  // They looked for the old hub up to the grace, and need as long again when it does not answer at all.
  if (message.returning) room.unseen = std::min(room.unseen, later(now, 2 * config.link_grace));
  MeetingRank& rank = room.ranks[message.rank.value];
  for (const RankId gone : message.gone) {
    if (gone.value < room.ranks.size()) mark_gone(room, gone, "an earlier hub has left it out");
  }
  if (!message.gone.empty()) recheck(room);
  if (rank.away()) {
    return refuse(link, rank_in_words(room, message.rank) +
                            " was left out of its world's collectives: " + (rank.left ? "it had left" : rank.gone) +
                            "; the others go on without it, so start it again as a new process");
  }
  if (rank.link.value != 0 && rank.link != link) {
    links.erase(rank.link);
    actions.emplace_back(Hangup{rank.link, "its rank has entered by another link"});
  }
  rank.link = link;
  rank.heard = now;
  rank.entered = true;
  links[link] = {message.world, message.rank};
  const auto in_ms = [](Duration time) {
    return static_cast<std::uint32_t>(std::min<std::int64_t>(time.count() / 1000, 24 * 3600 * 1000));
  };
  send(link, wire::Entered{in_ms(config.heartbeat), in_ms(config.link_grace)});
}

void Meeting::State::leave(MeetingRoom& room, RankId rank, const std::string& why) {
  room.ranks[rank.value].left = true;
  room.ranks[rank.value].link = {};
  note(Note::Level::kDebug, "meeting", rank_in_words(room, rank) + " has left: " + why);
  recheck(room);
  const bool over = std::all_of(room.ranks.begin(), room.ranks.end(),
                                [](const MeetingRank& each) { return each.away() || !each.entered; });
  if (over) std::erase_if(rooms, [&](const auto& entry) { return &entry.second == &room; });
}

void Meeting::State::mark_gone(MeetingRoom& room, RankId rank, const std::string& why) {
  MeetingRank& each = room.ranks[rank.value];
  if (each.away()) return;
  each.gone = why;
  if (each.link.value != 0) {
    links.erase(each.link);
    actions.emplace_back(Hangup{each.link, why});
    each.link = {};
  }
  note(Note::Level::kWarning, "meeting", rank_in_words(room, rank) + " is gone from the world's collectives: " + why);
}

void Meeting::State::closed(LinkId link) {
  const auto found = links.find(link);
  if (found == links.end()) return;
  rooms.at(found->second.first).ranks[found->second.second.value].link = {};
  links.erase(found);
}

void Meeting::State::tick() {
  std::vector<std::uint64_t> worlds;
  for (const auto& [world, room] : rooms) worlds.push_back(world);
  for (const std::uint64_t world : worlds) {
    look_for_silent(rooms.at(world));
    time_out(rooms.at(world));
    const auto living = [](const MeetingRank& rank) { return rank.entered && !rank.away(); };
    if (std::ranges::none_of(rooms.at(world).ranks, living)) rooms.erase(world);
  }
}

void Meeting::State::look_for_silent(MeetingRoom& room) {
  std::vector<RankId> silent;
  std::set<std::uint32_t> here;
  std::set<std::uint32_t> lost;
  bool others_falter = false;  // silent, too, within a heartbeat
  for (std::uint32_t i = 0; i < room.ranks.size(); ++i) {
    const MeetingRank& rank = room.ranks[i];
    if (rank.away()) continue;
    const TimePoint limit = rank.entered ? later(rank.heard, config.link_grace) : room.unseen;
    if (now >= limit) {
      silent.emplace_back(i);
      lost.insert(room.site_of[i]);
    } else {
      here.insert(room.site_of[i]);
      others_falter = others_falter || (rank.entered && later(now, config.heartbeat) >= limit);
    }
  }
  if (silent.empty()) room.hold = kNever;
  if (!silent.empty() && others_falter && room.hold == kNever) room.hold = later(now, config.heartbeat);
  if (room.hold != kNever && now < room.hold) return;
  room.hold = kNever;
  std::erase_if(lost, [&](std::uint32_t site) { return here.contains(site); });
  const std::string before = std::exchange(room.minority, "");
  if (silent.empty()) return;
  // With another hub to go to, the others may be there.
  if (!room.only_hub && 2 * here.size() < here.size() + lost.size()) {
    room.minority = "only " + std::to_string(here.size()) + " of " + std::to_string(here.size() + lost.size()) +
                    " sites can reach this coordinator, so the others may go on elsewhere";
    if (before != room.minority) note(Note::Level::kWarning, "meeting", room.minority);
    return recheck(room);
  }
  for (const RankId rank : silent) {
    const bool came = room.ranks[rank.value].entered;
    mark_gone(room, rank,
              came ? "nothing heard from it for " + in_seconds(config.link_grace) + " (COLLAB_LINK_GRACE)"
                   : std::string("it has never come to this coordinator"));
  }
  recheck(room);
}

}  // namespace collab::protocol
