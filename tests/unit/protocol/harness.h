// Drives one machine by hand: events in, actions by type out. The coordinator's steps go through the invariants.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "core/protocol/coordinator.h"
#include "core/protocol/invariants.h"
#include "core/protocol/site.h"

namespace collab::protocol {

inline constexpr Digest kRight{1, 1};
inline constexpr Digest kWrong{2, 2};

inline Duration seconds(double s) { return Duration(static_cast<Duration::rep>(s * 1e6)); }

inline wire::Join join_of(const std::string& name, std::uint32_t expected = 1) {
  wire::Join join;
  join.swarm = "swarm";
  join.site = name;
  join.expected_sites = expected;
  join.address = name + ":1";
  join.elements = 4096;
  join.offer = {RunId{0}, RoundId{0}, kRight};
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
inline wire::Adopt without_voters(wire::Adopt adopt) {
  adopt.voters.clear();
  adopt.remembers = false;
  return adopt;
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
  Actions hear(std::uint64_t link, wire::Message message) { return step(Received{LinkId{link}, std::move(message)}); }
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
      static_cast<void>(hear(i + 1, wire::Adopted{RunId{7}, RoundId{0}, kRight}));
  }
  static wire::Ready ready(std::uint64_t round, double weight = 1, Digest state = kRight) {
    return {RoundId{round}, weight, static_cast<std::uint64_t>(weight), 1, state};
  }
  static wire::Done done(const wire::Form& form, Digest digest = {5, 5}) {
    return {form.term, form.round, form.attempt, std::vector<Digest>(form.slices.size(), digest)};
  }
  // All of links 1..n are ready; the Form they get.
  wire::Form form(std::uint64_t round, std::uint64_t links) {
    Actions last;
    for (std::uint64_t link = 1; link <= links; ++link) last = hear(link, ready(round));
    const auto forms = sent<wire::Form>(last);
    EXPECT_EQ(forms.size(), links);
    return forms.empty() ? wire::Form{} : forms.front().second;
  }

  TimePoint now{};
  Invariants invariants;
  Coordinator coordinator;
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
  Actions step(const SiteEvent& event) { return site.step(now, event); }
  Actions hear(std::uint64_t link, wire::Message message) { return step(Received{LinkId{link}, std::move(message)}); }
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
    static_cast<void>(hear(1, wire::Adopt{TermId{1}, RunId{7}, RoundId{0}, {SiteId{id}}, kRight}));
    static_cast<void>(step(AnchorInPlace{RunId{7}, RoundId{0}, kRight}));
  }
  static wire::Form form(std::uint64_t round, std::uint32_t attempt, std::uint32_t sites) {
    wire::Form form{TermId{1}, RunId{7}, RoundId{round}, AttemptId{attempt}, {}, {}};
    for (std::uint32_t i = 0; i < sites; ++i) {
      form.participants.push_back({SiteId{i}, 1.0});
      form.slices.push_back({SiteId{i}, {i * kBlockElements, (i + 1) * kBlockElements}});
    }
    return form;
  }
  // A usable link to a lower site, dialled by us.
  void link_to(std::uint32_t peer, const std::string& name, std::uint64_t link) {
    static_cast<void>(step(PeerConnected{SiteId{peer}, LinkId{link}}));
    static_cast<void>(hear(link, wire::Hello{"swarm", TermId{1}, SiteId{peer}, name}));
  }

  TimePoint now{};
  int ticks = 0;
  Site site;
};

// Three that train.
class ThreeSites : public testing::Test {
 protected:
  ThreeSites() { c.gather({"paris", "tokyo", "lima"}); }
  // The attempt that follows.
  static wire::Form reformed(const CoordinatorHarness::Actions& actions) {
    const auto forms = sent<wire::Form>(actions);
    EXPECT_FALSE(forms.empty()) << notes(actions);
    return forms.empty() ? wire::Form{} : forms[0].second;
  }
  CoordinatorHarness c;
};

}  // namespace collab::protocol
