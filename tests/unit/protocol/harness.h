// Drives one machine by hand: events in, actions by type out. The coordinator's steps go through the invariants.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/protocol/agreement/acceptor_id.h"
#include "core/protocol/coordinator/coordinator.h"
#include "core/protocol/site/site.h"
#include "tests/unit/protocol/invariants.h"

namespace collab::protocol {

inline constexpr Digest kRight{1, 1};
inline constexpr Digest kWrong{2, 2};

inline constexpr Digest kModel{7, 7};  // the fingerprint of its description

inline Duration seconds(double s) { return Duration(static_cast<Duration::rep>(s * 1e6)); }

// The memory of the site of that name, from the first on; `lost`: how many it has lost.
inline AcceptorId acceptor_of(const std::string& name, std::uint64_t lost = 0) {
  std::uint64_t id = 1000 * (1 + lost);
  for (const char c : name) id = 131 * id + static_cast<unsigned char>(c);
  return AcceptorId{id};
}
// As the process that begins with that memory has it in another run.
inline AcceptorId renounced(const std::string& name) {
  return acceptor_after(acceptor_of(name), acceptor_of(name).value);
}
inline std::vector<wire::Voter> voters_of(const std::vector<std::string>& names) {
  std::vector<wire::Voter> voters;
  for (std::uint32_t i = 0; i < names.size(); ++i) voters.push_back({SiteId{i}, names[i], acceptor_of(names[i])});
  return voters;
}

inline wire::Join join_of(const std::string& name, std::uint32_t expected = 1) {
  wire::Join join;
  join.swarm = "swarm";
  join.site = name;
  join.expected_sites = expected;
  join.address = name + ":1";
  join.elements = 4096;
  join.fingerprint = kModel;
  join.offer = {RunId{0}, RoundId{0}, kRight};
  join.report.record.acceptor = acceptor_of(name);
  join.process = acceptor_of(name).value;
  join.settings = {{"codec", "fp16"}, {"outer", "average"}};
  join.model = {{"wte.weight", "float32", {32, 128}, TensorKind::kAveraged, {}},
                {"mask", "float32", {4}, TensorKind::kFrozen, {9, 9}}};
  return join;
}

// All Sends of one message type, in order.
template <typename M, typename Action>
std::vector<std::pair<LinkId, M>> sent(const std::vector<Action>& actions) {
  std::vector<std::pair<LinkId, M>> found;
  const auto keep = [&](LinkId link, const wire::Message& any) {
    if (const auto* message = std::get_if<M>(&any)) found.emplace_back(link, *message);
    return true;
  };
  for (const Action& action : actions) {
    if constexpr (std::is_same_v<Action, CoordinatorAction>) {
      each_sent(action, keep);
    } else if (const auto* send = std::get_if<Send>(&action)) {
      keep(send->link, send->message);
    }
  }
  return found;
}

inline std::vector<std::string> refused_by(const std::vector<CoordinatorAction>& actions) {
  std::vector<std::string> reasons;
  for (const auto& [link, refuse] : sent<wire::Refuse>(actions)) reasons.push_back(refuse.reason);
  return reasons;
}

inline wire::Join holding(wire::Join join, const wire::Offer& offer) {
  join.offer = offer;
  return join;
}

template <typename A, typename Action>
std::vector<A> all(const std::vector<Action>& actions) {
  std::vector<A> found;
  for (const Action& action : actions) {
    if (const auto* a = std::get_if<A>(&action)) found.push_back(*a);
  }
  return found;
}

template <typename Action>
std::string notes(const std::vector<Action>& actions) {
  std::string text;
  for (const Note& note : all<Note>(actions)) text += "[" + note.event + "] " + note.text + "\n";
  return text;
}

// For comparisons in which the membership does not matter.
inline wire::InstallAnchor without_voters(wire::InstallAnchor install) {
  install.voters.clear();
  return install;
}

// A join of a site that holds that anchor and remembers its membership.
inline wire::Join member_of(const std::string& name, const wire::Offer& anchor, std::vector<wire::Voter> voters) {
  wire::Join join = join_of(name, static_cast<std::uint32_t>(voters.size()));
  join.offer = anchor;
  wire::Record& record = join.report.record;
  record.generation = join.generation;
  record.fingerprint = join.fingerprint;
  record.anchor = anchor;
  record.voters = std::move(voters);
  return join;
}

class CoordinatorHarness {
 public:
  explicit CoordinatorHarness(const CoordinatorConfig& config = defaults()) : coordinator(config) {
    invariants.names_first(config.init_from);
  }
  ~CoordinatorHarness() {
    for (const std::string& broken : invariants.broken()) ADD_FAILURE() << broken;
  }

  static CoordinatorConfig defaults() {
    CoordinatorConfig config;
    config.swarm = "swarm";
    config.fresh_run = RunId{7};
    return config;
  }

  using Actions = std::vector<CoordinatorAction>;
  Actions step(const CoordinatorEvent& event) {
    Actions actions = coordinator.step(now, event);
    invariants.coordinator_step("coordinator", event, actions);
    return actions;
  }
  // An AnchorInstalled that names no acceptor comes from the one that the site joined with, or is in another run.
  Actions hear(std::uint64_t link, wire::Message message) {
    if (const auto* join = std::get_if<wire::Join>(&message)) said[link] = *join;
    if (auto* installed = std::get_if<wire::AnchorInstalled>(&message); installed != nullptr && said.count(link) != 0) {
      const wire::Record& record = said.at(link).report.record;
      const bool another = record.anchor.run.value != 0 && record.anchor.run != installed->run;
      if (installed->acceptor.value == 0) {
        installed->acceptor = another ? acceptor_after(record.acceptor, said.at(link).process) : record.acceptor;
      }
    }
    return step(Received{LinkId{link}, std::move(message)});
  }
  // As the sites do that are asked for a promise, or to accept what is settled; but for those who are mute.
  Actions elect(Actions actions) {
    Actions seen;
    const auto answer = [&](std::uint64_t link, wire::Message message, Actions& more) {
      for (auto& action : hear(link, std::move(message))) more.push_back(std::move(action));
    };
    while (!actions.empty()) {
      Actions more;
      for (const auto& [link, prepare] : sent<wire::Prepare>(actions)) {
        wire::Join& join = said.at(link.value);
        if (no_promise.count(link.value) != 0 || prepare.term <= join.report.record.promised) continue;
        join.report.record.promised = prepare.term;
        answer(link.value, wire::Promise{prepare.term, join.offer, join.report}, more);
      }
      for (const auto& [link, accept] : sent<wire::Accept>(actions)) {
        std::vector<wire::Proposal>& proposals = said.at(link.value).report.record.proposals;
        std::erase_if(proposals, [&](const auto& p) { return p.settled.value != 0 && !accept.proposals.empty(); });
        proposals.insert(proposals.end(), accept.proposals.begin(), accept.proposals.end());
        if (no_accept.count(link.value) == 0) answer(link.value, wire::Accepted{accept.term}, more);
      }
      for (auto& action : actions) seen.push_back(std::move(action));
      actions = std::move(more);
    }
    return seen;
  }
  Actions come(std::uint64_t link, const wire::Join& join) { return elect(hear(link, join)); }
  Actions close(std::uint64_t link) { return step(Closed{LinkId{link}, unavailable("reset")}); }

  // Ticks at every deadline until `until` has passed, with a heartbeat from `alive` every second.
  Actions pass(Duration time, const std::vector<std::uint64_t>& alive = {}) {
    Actions all_actions;
    const auto collect = [&](Actions more) {
      for (auto& action : more) all_actions.push_back(std::move(action));
    };
    const TimePoint end = now + time;
    while (now < end) {
      now = std::min(end, now + seconds(0.5));
      for (const std::uint64_t link : alive) collect(hear(link, wire::Heartbeat{1, false}));
      if (coordinator.next_deadline() <= now) collect(step(Tick{}));
    }
    return all_actions;
  }

  // Sites on links 1..n, all holding the anchor of (run 7, round 0).
  void gather(const std::vector<std::string>& names) {
    const auto count = static_cast<std::uint32_t>(names.size());
    for (std::uint32_t i = 0; i < count; ++i) static_cast<void>(hear(i + 1, join_of(names[i], count)));
    for (std::uint32_t i = 0; i < count; ++i)
      static_cast<void>(hear(i + 1, wire::AnchorInstalled{RunId{7}, RoundId{0}, kRight}));
  }
  static wire::Ready ready(std::uint64_t round, double weight = 1, Digest state = kRight) {
    return {RoundId{round}, weight, static_cast<std::uint64_t>(weight), 1, state};
  }
  static wire::Done done(const wire::StartAttempt& start, Digest digest = {5, 5}) {
    return {start.term, start.round, start.attempt, std::vector<Digest>(start.slices.size(), digest)};
  }
  // All of links 1..n are ready; the StartAttempt they get.
  wire::StartAttempt start(std::uint64_t round, std::uint64_t links) {
    Actions last;
    for (std::uint64_t link = 1; link <= links; ++link) last = hear(link, ready(round));
    const auto starts = sent<wire::StartAttempt>(last);
    EXPECT_EQ(starts.size(), links);
    return starts.empty() ? wire::StartAttempt{} : starts.front().second;
  }

  TimePoint now{};
  Invariants invariants;
  Coordinator coordinator;
  std::map<std::uint64_t, wire::Join> said;  // on each link; in an election with what they have promised since
  std::set<std::uint64_t> no_promise{};
  std::set<std::uint64_t> no_accept{};
};

class SiteHarness {
 public:
  explicit SiteHarness(SiteConfig config = defaults()) : site(std::move(config)) {}
  static SiteConfig defaults() {
    SiteConfig config;
    config.coordinators = {"first:1", "second:2"};
    return config;
  }

  using Actions = std::vector<SiteAction>;
  // Records are durable at once, and other candidates lead nothing, unless a test wants to see to that itself.
  Actions step(const SiteEvent& event) {
    Actions actions = site.step(now, event);
    if (!writes_wait) make_durable(actions);
    if (!shows_inquiries) {
      const auto is_inquiry = [](const SiteAction& action) {
        const auto* dial = std::get_if<DialCoordinator>(&action);
        return dial != nullptr && dial->inquiry;
      };
      for (auto n = std::erase_if(actions, is_inquiry); n > 0; --n) {
        for (auto& action : site.step(now, DialFailed{std::nullopt, unavailable("refused"), true})) {
          actions.push_back(std::move(action));
        }
      }
    }
    return actions;
  }
  // The records that are asked for, as written; what was held back until then follows.
  void make_durable(Actions& actions) {
    for (std::size_t i = 0; i < actions.size();) {
      const auto* persist = std::get_if<Persist>(&actions[i]);
      if (persist == nullptr) {
        ++i;
        continue;
      }
      durable = persist->record;
      const Persisted written{persist->number, {}};
      actions.erase(actions.begin() + static_cast<std::ptrdiff_t>(i));
      for (auto& action : site.step(now, written)) actions.push_back(std::move(action));
    }
  }
  // Whom the roster lists has the key of a Hello that gives none.
  Actions hear(std::uint64_t link, wire::Message message) {
    if (const auto* roster = std::get_if<wire::Roster>(&message); roster != nullptr && !tells_keys) {
      wire::Keys keys;
      for (const wire::Member& member : roster->members) keys.keys.push_back({member.site, {}});
      static_cast<void>(step(Received{LinkId{link}, std::move(keys)}));
    }
    return step(Received{LinkId{link}, std::move(message)});
  }
  Actions tick(Duration after) {
    now += after;
    return step(Tick{});
  }
  // Ticks at each deadline within `time`.
  Actions pass(Duration time) {
    Actions all_actions;
    const TimePoint end = now + time;
    while (site.next_deadline() <= end) {
      now = std::max(now, site.next_deadline());
      for (auto& action : step(Tick{})) all_actions.push_back(std::move(action));
      if (++ticks > 100'000) {
        ADD_FAILURE() << "the machine asks for ticks without end";
        break;
      }
    }
    now = end;
    return all_actions;
  }

  static wire::Roster roster(const std::vector<std::string>& names, const std::string& hidden = "") {
    wire::Roster roster{TermId{1}, {}};
    for (std::uint32_t i = 0; i < names.size(); ++i) {
      const std::string address = names[i] == hidden ? "" : names[i] + ":1";
      roster.members.push_back({SiteId{i}, names[i], address, wire::MemberState::kActive});
    }
    return roster;
  }
  // With the coordinator on link 1, up to the roster: what the site has to do for the anchor comes next.
  void join_as(std::uint32_t id, const std::vector<std::string>& names, wire::Join join,
               const std::string& hidden = "") {
    static_cast<void>(step(Begin{std::move(join)}));
    static_cast<void>(step(CoordinatorConnected{LinkId{1}}));
    static_cast<void>(hear(1, wire::Welcome{TermId{1}, SiteId{id}, 1000, 60000}));
    static_cast<void>(hear(1, roster(names, hidden)));
  }
  // The same with another anchor than the swarm's.
  void join_with_another(std::uint32_t id, const std::vector<std::string>& names) {
    wire::Join join = join_of(names[id]);
    join.offer.digest = kWrong;
    join_as(id, names, std::move(join));
  }
  // A member of that number, with the coordinator on link 1, holding (run 7, round 0).
  void become(std::uint32_t id, const std::vector<std::string>& names, const std::string& hidden = "") {
    wire::Join join = join_of(names[id]);
    if (names[id] == hidden) join.address.clear();
    join_as(id, names, std::move(join), hidden);
    static_cast<void>(
        hear(1, wire::InstallAnchor{
                    TermId{1}, RunId{7}, RoundId{0}, {SiteId{id}}, kRight, wire::Counted::kNo, voters_of(names)}));
    static_cast<void>(step(AnchorInPlace{RunId{7}, RoundId{0}, kRight}));
  }
  static wire::StartAttempt start(std::uint64_t round, std::uint32_t attempt, std::uint32_t sites) {
    const std::vector<std::string> names{"paris", "tokyo", "lima", "oslo"};
    wire::StartAttempt start{TermId{1}, 1, kModel, RunId{7}, RoundId{round}, AttemptId{attempt}, {}, {}, {}};
    start.voters = voters_of({names.begin(), names.begin() + sites});
    for (std::uint32_t i = 0; i < sites; ++i) {
      start.participants.push_back({SiteId{i}, names.at(i), 1.0});
      start.slices.push_back({SiteId{i}, {i * kBlockElements, (i + 1) * kBlockElements}});
    }
    start.slices.back().range.end = join_of("paris").elements;
    return start;
  }
  // A usable link to a lower site, dialled by us.
  void link_to(std::uint32_t peer, const std::string& name, std::uint64_t link) {
    static_cast<void>(step(PeerConnected{SiteId{peer}, LinkId{link}}));
    static_cast<void>(hear(link, wire::Hello{"swarm", TermId{1}, SiteId{peer}, name}));
  }

  TimePoint now{};
  int ticks = 0;
  Site site;
  bool writes_wait = false;      // Persist is left to the test
  bool shows_inquiries = false;  // so are questions to other candidates
  bool tells_keys = false;       // so are keys
  std::optional<wire::Record> durable{};
};

// Three that train.
class ThreeSites : public testing::Test {
 protected:
  ThreeSites() { c.gather({"paris", "tokyo", "lima"}); }
  // The attempt that follows.
  static wire::StartAttempt reformed(const CoordinatorHarness::Actions& actions) {
    const auto starts = sent<wire::StartAttempt>(actions);
    EXPECT_FALSE(starts.empty()) << notes(actions);
    return starts.empty() ? wire::StartAttempt{} : starts[0].second;
  }
  CoordinatorHarness c;
};

}  // namespace collab::protocol
