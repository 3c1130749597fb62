#include "core/protocol/meeting_client.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "core/protocol/words.h"

namespace collab::protocol {
namespace {

constexpr Duration kRetry = std::chrono::milliseconds(200);
constexpr int kDialsEach = 2;  // that come to nothing, before the next candidate

struct Pending {
  MeetingRequest request;
  std::uint64_t step = 0;
  TimePoint deadline = kNever;
  std::map<std::uint32_t, Payload> pieces;
};

// The last completed step, for a hub that does not know it.
struct Held {
  wire::Bring bring;
  Payload payload;
  std::map<std::uint32_t, Payload> pieces;
  wire::Outcome outcome;
};

struct Group {
  OpenGroup open;
  std::uint64_t completed = 0;
  std::optional<Pending> pending;
  std::deque<MeetingRequest> queue;
  std::optional<Held> held;
  Status broken;  // this rank has given up a step the others may have completed
};

struct Seeking {
  SeekSender seek;
  TimePoint deadline = kNever;
};

enum class Phase : std::uint8_t { kNotBegun, kWaiting, kDialling, kEntering, kIn, kLeft };

}  // namespace

struct MeetingClient::State {
  MeetingClientConfig config;
  TimePoint now{};
  Phase phase = Phase::kNotBegun;
  std::uint32_t candidate = 0;
  int failed_dials = 0;
  bool entered_once = false;
  std::string last_problem = "not tried yet";
  LinkId link{};
  TimePoint heard{};
  TimePoint next_beat = kNever;
  TimePoint retry_at = kNever;
  TimePoint give_up = kNever;
  std::uint64_t beats = 0;
  Status broken;
  std::map<GroupId, Group> groups;
  std::map<std::uint64_t, Seeking> seeks;
  std::set<RankId> gone;
  std::vector<MeetingClientAction> actions;

  void send(wire::Message message, Payload payload = {}) {
    actions.emplace_back(MeetingSend{link, std::move(message), std::move(payload)});
  }

  void on(const MeetingBegin&) { begin(); }
  void on(const OpenGroup& event) { open(event); }
  void on(const CloseGroup& event) { close(event.group); }
  void on(const MeetingRequest& event) { exchange(event); }
  void on(const SeekSender& event) { seek(event); }
  void on(const MeetingLeave& event) { leave(event); }
  void on(const HubConnected& event) { connected(event.link); }
  void on(const HubDialFailed& event) {
    if (phase != Phase::kDialling) return;
    is_final(event.why) ? break_down(event.why) : lost(event.why.message(), true);
  }
  void on(const MeetingReceived& event) { received(event); }
  void on(const Closed& event) { closed(event); }
  void on(const Tick&) { tick(); }

  // ---- the hub
  void dial() {
    phase = Phase::kDialling;
    retry_at = kNever;
    actions.emplace_back(DialHub{candidate});
  }

  // A wrong key does not become right by trying again.
  [[nodiscard]] bool is_final(const Status& why) const { return why.code() == StatusCode::kRefused && !entered_once; }

  // `unanswered`: nobody is there. A hub that was reached and lost again is still the one the others are with.
  void lost(const std::string& why, bool unanswered = false) {
    last_problem = why;
    if (phase == Phase::kIn) {
      actions.emplace_back(make_note(Note::Level::kWarning, "meeting",
                                     "the link to the coordinator at " + config.hubs[candidate] + " is lost: " + why));
      const auto rounds = config.hubs.size() > 1 ? 2 : 1;
      give_up = later(now, rounds * config.link_grace);
      failed_dials = 0;
    } else if (unanswered && ++failed_dials >= kDialsEach) {
      failed_dials = 0;
      candidate = (candidate + 1) % static_cast<std::uint32_t>(config.hubs.size());
    }
    phase = Phase::kWaiting;
    link = {};
    next_beat = kNever;
    retry_at = later(now, kRetry);
  }

  void hang_up(const std::string& why) {
    if (link.value != 0) actions.emplace_back(Hangup{link, why});
    lost(why, phase == Phase::kEntering);
  }

  void break_down(Status why) {
    if (!broken.ok()) return;
    broken = std::move(why);
    if (link.value != 0) actions.emplace_back(Hangup{link, broken.message()});
    link = {};
    phase = Phase::kLeft;
    next_beat = retry_at = give_up = kNever;
    fail_everything(broken);
    actions.emplace_back(MeetingBroken{broken});
  }

  void fail_everything(const Status& why) {
    for (auto& [id, group] : groups) fail_group(group, why);
    for (const auto& [id, seeking] : seeks) actions.emplace_back(SenderFound{id, why, 0});
    seeks.clear();
  }

  void fail_group(Group& group, const Status& why) {
    if (group.pending) actions.emplace_back(MeetingExchanged{group.pending->request.id, why, {}, {}});
    for (const MeetingRequest& request : group.queue) actions.emplace_back(MeetingExchanged{request.id, why, {}, {}});
    group.pending.reset();
    group.queue.clear();
  }

  void connected(LinkId new_link) {
    if (phase != Phase::kDialling) {
      actions.emplace_back(Hangup{new_link, "not wanted any more"});
      return;
    }
    phase = Phase::kEntering;
    link = new_link;
    heard = now;
    wire::Enter enter = config.self;
    enter.candidates = static_cast<std::uint32_t>(config.hubs.size());
    enter.returning = entered_once;
    enter.gone.assign(gone.begin(), gone.end());
    send(std::move(enter));
  }

  void entered(const wire::Entered& message) {
    if (phase != Phase::kEntering) return;
    phase = Phase::kIn;
    give_up = kNever;
    failed_dials = 0;
    config.heartbeat = std::chrono::milliseconds(std::max(message.heartbeat_ms, 1U));
    config.link_grace = std::chrono::milliseconds(std::max(message.grace_ms, 1U));
    next_beat = later(now, config.heartbeat);
    if (!std::exchange(entered_once, true)) actions.emplace_back(MeetingEntered{});
    for (const auto& [id, group] : groups) {
      assemble(group);
      if (group.pending) bring(group);
      if (!group.broken.ok()) send(wire::Disband{id});
    }
    for (const auto& [id, seeking] : seeks) send(wire::Seek{seeking.seek.group, seeking.seek.tag});
  }

  void received(const MeetingReceived& event) {
    if (event.link != link) return;
    heard = now;
    if (const auto* m = std::get_if<wire::Entered>(&event.message)) return entered(*m);
    if (const auto* m = std::get_if<wire::Refuse>(&event.message)) return break_down(refused(m->reason));
    if (const auto* m = std::get_if<wire::Piece>(&event.message)) return piece(*m, event.payload);
    if (const auto* m = std::get_if<wire::Outcome>(&event.message)) return outcome(*m);
    if (const auto* m = std::get_if<wire::Recall>(&event.message)) return recall(*m);
    if (const auto* m = std::get_if<wire::Found>(&event.message)) return found(*m);
    if (std::holds_alternative<wire::Heartbeat>(event.message)) return;
    hang_up("it sent a message of another kind");
  }

  void closed(const Closed& event) {
    if (event.link != link || phase == Phase::kLeft) return;
    if (is_final(event.why)) return break_down(event.why);
    lost(event.why.ok() ? "it was closed" : event.why.message());
  }

  // ---- groups
  void assemble(const Group& group) {
    send(wire::Assemble{group.open.group, group.open.members, group.completed, group.open.parent, group.open.tag});
  }

  [[nodiscard]] static wire::Bring bring_of(const Group& group) {
    const MeetingRequest& r = group.pending->request;
    const auto ms = std::min<std::int64_t>(r.timeout.count() / 1000, 24 * 3600 * 1000);
    return {r.group,  group.pending->step,
            r.call,   r.operation,
            r.shape,  r.absence,
            r.root,   r.wants,
            r.absent, static_cast<std::uint32_t>(ms),
            r.splits};
  }
  void bring(const Group& group) { send(bring_of(group), group.pending->request.payload); }

  void open(const OpenGroup& event) {
    const auto [place, fresh] = groups.try_emplace(event.group);
    if (!fresh) return;
    place->second.open = event;
    if (phase == Phase::kIn) assemble(place->second);
  }

  void close(GroupId id) {
    const auto found_group = groups.find(id);
    if (found_group == groups.end()) return;
    fail_group(found_group->second, cancelled("the group was closed"));
    groups.erase(found_group);
    for (auto entry = seeks.begin(); entry != seeks.end();) {
      if (entry->second.seek.group != id) {
        ++entry;
        continue;
      }
      actions.emplace_back(SenderFound{entry->first, cancelled("the group was closed"), 0});
      entry = seeks.erase(entry);
    }
    if (phase == Phase::kIn) send(wire::Disband{id});
  }

  void exchange(const MeetingRequest& request) {
    const auto found_group = groups.find(request.group);
    Status why = broken;
    if (why.ok() && phase == Phase::kLeft) why = cancelled("this rank has left its world's collectives");
    if (why.ok() && found_group == groups.end()) why = invalid_argument("this group has been closed");
    if (why.ok()) why = found_group->second.broken;
    if (!why.ok()) {
      actions.emplace_back(MeetingExchanged{request.id, why, {}, {}});
      return;
    }
    found_group->second.queue.push_back(request);
    begin_next(found_group->second);
  }

  void begin_next(Group& group) {
    if (group.pending || group.queue.empty()) return;
    group.pending = Pending{std::move(group.queue.front()), group.completed + 1, kNever, {}};
    group.queue.pop_front();
    const Duration timeout = group.pending->request.timeout;
    // The hub gives up first, and knows for whom it waited.
    if (timeout.count() > 0) group.pending->deadline = later(now, timeout + config.link_grace + config.heartbeat);
    if (phase == Phase::kIn) bring(group);
  }

  [[nodiscard]] Group* group_at(GroupId id, std::uint64_t step) {
    const auto found_group = groups.find(id);
    if (found_group == groups.end() || !found_group->second.pending) return nullptr;
    return found_group->second.pending->step == step ? &found_group->second : nullptr;
  }

  void piece(const wire::Piece& message, const BufferPtr& payload) {
    Group* group = group_at(message.group, message.step);
    if (group != nullptr && message.from < group->open.members.size()) {
      group->pending->pieces[message.from] = whole(payload);
    }
  }

  void outcome(const wire::Outcome& message) {
    gone.insert(message.gone.begin(), message.gone.end());
    Group* group = group_at(message.group, message.step);
    if (group == nullptr) return;
    // Of an earlier hub, which died before it could say that they count.
    for (const std::uint32_t member : message.absent) group->pending->pieces.erase(member);
    MeetingExchanged done{group->pending->request.id, {}, {}, message.absent};
    std::erase_if(done.absent, [&](std::uint32_t member) { return member >= group->open.members.size(); });
    if (!message.error.empty()) {
      done.status = unavailable(message.error);
    } else {
      done.parts.resize(group->open.members.size());
      for (const auto& [from, payload] : group->pending->pieces) done.parts[from] = payload;
    }
    if (config.hubs.size() > 1) {
      group->held = Held{bring_of(*group), group->pending->request.payload, group->pending->pieces, message};
    }
    group->completed = message.step;
    group->pending.reset();
    send(wire::Taken{message.group, message.step});
    actions.emplace_back(std::move(done));
    begin_next(*group);
  }

  void recall(const wire::Recall& message) {
    const auto found_group = groups.find(message.group);
    const Held* held = nullptr;
    if (found_group != groups.end() && found_group->second.held) held = &*found_group->second.held;
    if (held == nullptr || held->bring.step != message.step) {
      const std::string error = "rank " + std::to_string(config.self.rank.value) +
                                " has gone on and does not hold step " + std::to_string(message.step) +
                                " of this group any more; this rank fell too far behind";
      return send(wire::Outcome{message.group, message.step, {}, {gone.begin(), gone.end()}, error});
    }
    send(held->bring, held->payload);
    for (const auto& [from, payload] : held->pieces) send(wire::Piece{message.group, message.step, from}, payload);
    send(held->outcome);
  }

  // ---- sends to whoever asks
  void seek(const SeekSender& event) {
    Status why = broken;
    if (why.ok() && phase == Phase::kLeft) why = cancelled("this rank has left its world's collectives");
    if (!why.ok()) {
      actions.emplace_back(SenderFound{event.id, why, 0});
      return;
    }
    seeks[event.id] = {event, event.timeout.count() > 0 ? later(now, event.timeout) : kNever};
    if (phase == Phase::kIn) send(wire::Seek{event.group, event.tag});
  }

  void found(const wire::Found& message) {
    const auto match = std::ranges::find_if(seeks, [&](const auto& entry) {
      return entry.second.seek.group == message.group && entry.second.seek.tag == message.tag;
    });
    if (match == seeks.end()) return;
    actions.emplace_back(SenderFound{match->first, {}, message.from});
    seeks.erase(match);
  }

  // ---- time
  void tick() {
    if (phase == Phase::kIn && now - heard >= config.link_grace) {
      hang_up("nothing heard from it for " + in_seconds(config.link_grace) + " (COLLAB_LINK_GRACE)");
    } else if (phase == Phase::kEntering && now - heard >= config.link_grace / 2) {
      hang_up("it does not answer");
    }
    if (now >= give_up) {
      const Duration waited = entered_once ? (config.hubs.size() > 1 ? 2 : 1) * config.link_grace : config.join_timeout;
      break_down(unavailable("no coordinator answers at " + join_words(config.hubs) + " for " + in_seconds(waited) +
                             (entered_once ? " (COLLAB_LINK_GRACE): " : " (COLLAB_JOIN_TIMEOUT): ") + last_problem));
    }
    if (phase == Phase::kWaiting && now >= retry_at) dial();
    if (phase == Phase::kIn && now >= next_beat) {
      send(wire::Heartbeat{++beats, false});
      next_beat = later(now, config.heartbeat);
    }
    for (auto& [id, group] : groups) {
      if (!group.pending || now < group.pending->deadline) continue;
      group.broken = timed_out(group.pending->request.operation + " was given up after " +
                               in_seconds(group.pending->request.timeout) + " and the grace: the coordinator at " +
                               config.hubs[candidate] + " does not answer (" + last_problem + ")");
      fail_group(group, group.broken);
      if (phase == Phase::kIn) send(wire::Disband{id});  // the others need not wait for what will not come
    }
    for (auto entry = seeks.begin(); entry != seeks.end();) {
      if (now < entry->second.deadline) {
        ++entry;
        continue;
      }
      actions.emplace_back(
          SenderFound{entry->first,
                      timed_out("nobody has sent anything with tag " + std::to_string(entry->second.seek.tag) +
                                " within " + in_seconds(entry->second.seek.timeout)),
                      0});
      entry = seeks.erase(entry);
    }
  }

  void begin() {
    if (phase != Phase::kNotBegun) return;
    give_up = later(now, config.join_timeout);
    dial();
  }

  void leave(const MeetingLeave& event) {
    if (phase == Phase::kLeft) return;
    if (phase == Phase::kIn) {
      send(wire::Leave{event.reason});
      actions.emplace_back(Hangup{link, event.reason});
    }
    phase = Phase::kLeft;
    link = {};
    next_beat = retry_at = give_up = kNever;
    fail_everything(cancelled("this rank has left its world's collectives"));
  }
};

MeetingClient::MeetingClient(MeetingClientConfig config) : state_(std::make_unique<State>()) {
  state_->config = std::move(config);
}
MeetingClient::~MeetingClient() = default;
MeetingClient::MeetingClient(MeetingClient&&) noexcept = default;
MeetingClient& MeetingClient::operator=(MeetingClient&&) noexcept = default;

std::vector<MeetingClientAction> MeetingClient::step(TimePoint now, const MeetingClientEvent& event) {
  State& state = *state_;
  state.now = now;
  std::visit([&](const auto& each) { state.on(each); }, event);
  return std::exchange(state.actions, {});
}

TimePoint MeetingClient::next_deadline() const {
  const State& state = *state_;
  TimePoint next = std::min({state.next_beat, state.retry_at, state.give_up});
  if (state.phase == Phase::kIn) next = std::min(next, later(state.heard, state.config.link_grace));
  if (state.phase == Phase::kEntering) next = std::min(next, later(state.heard, state.config.link_grace / 2));
  for (const auto& [id, group] : state.groups) {
    if (group.pending) next = std::min(next, group.pending->deadline);
  }
  for (const auto& [id, seeking] : state.seeks) next = std::min(next, seeking.deadline);
  return next;
}

}  // namespace collab::protocol
