// Sites and candidates whose messages are delayed, whose links break and whose processes die at any moment, drawn from
// a seed. That is far worse than any network, and takes no time. Nothing is exchanged: each round is committed without
// a contribution, so only the agreement is left.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/base/prng.h"
#include "core/protocol/agreement/attempt.h"
#include "core/protocol/coordinator/coordinator.h"
#include "core/protocol/site/site.h"
#include "tests/unit/protocol/harness.h"
#include "tests/unit/protocol/invariants.h"

namespace collab::protocol {

class AgreementWorld {
 public:
  AgreementWorld(std::uint64_t seed, std::uint32_t sites, std::uint32_t candidates) : prng_(seed) {
    faults_ = kFaults[prng_.below(std::size(kFaults))];
    std::vector<std::string> names;
    for (std::uint32_t i = 0; i < sites; ++i) names.push_back("site" + std::to_string(i));
    for (std::uint32_t i = 0; i < candidates; ++i) addresses_.push_back("candidate" + std::to_string(i));
    sites_.resize(sites);
    candidates_.resize(candidates);
    for (std::uint32_t i = 0; i < candidates; ++i) start_candidate(i);
    for (std::uint32_t i = 0; i < sites; ++i) {
      sites_[i].name = names[i];
      sites_[i].disk = member_of(names[i], {RunId{7}, RoundId{0}, kRight}, voters_of(names)).report.record;
      sites_[i].anchor = sites_[i].disk;
      start_site(i);
    }
  }

  // One thing that may happen.
  void step() {
    if (!prng_.chance(faults_)) {
      const std::uint64_t dice = prng_.below(100);
      if (dice < 60) return deliver();
      if (dice < 92) return finish_a_write();
      return pass(Duration{static_cast<Duration::rep>(prng_.below(500'000))});
    }
    const std::uint64_t dice = prng_.below(50);
    if (dice < 4) return pass(seconds(70));
    if (dice < 20) return break_a_link();
    if (dice < 30) return crash(pick(sites_), prng_.chance(0.6));
    if (dice < 34) return crash_candidate(static_cast<std::uint32_t>(prng_.below(candidates_.size())));
    if (dice < 40) return cut();
    if (dice < 46) return depart(pick(sites_));
    if (dice < 48) forget(pick(sites_));
  }
  // From here on everything works, and time passes.
  void heal(Duration time) {
    cuts_.clear();
    healed_ = true;
    for (const TimePoint end = now_ + time; now_ < end;) {
      for (int i = 0; i < 10'000 && settle(); ++i) {
      }
      pass(Duration{500'000});
    }
  }

  [[nodiscard]] const Invariants& invariants() const { return invariants_; }
  [[nodiscard]] std::size_t commits() const { return commits_.size(); }
  // The anchor all sites have agreed on; none: they have not.
  [[nodiscard]] std::optional<wire::Offer> anchor() const {
    std::set<std::pair<RunId, RoundId>> anchors;
    wire::Offer offer;
    for (const Process& site : sites_) {
      offer = site.machine ? site.machine->record().anchor : wire::Offer{};
      anchors.insert({offer.run, offer.round});
    }
    return anchors.size() == 1 ? std::optional(offer) : std::nullopt;
  }
  [[nodiscard]] std::string story() const {
    std::string text;
    for (const Process& site : sites_) {
      text += site.name + (site.machine ? ": " + site.machine->waiting_for(now_) : ": down") + "\n";
    }
    for (const Candidate& candidate : candidates_) text += candidate.machine->status_json(now_) + "\n";
    for (const std::string& line : lines_) text += line + "\n";
    return text;
  }
  [[nodiscard]] std::uint64_t below(std::uint64_t n) { return prng_.below(n); }

 protected:
  static constexpr double kFaults[] = {0.002, 0.01, 0.05};  // of what happens, so many are faults

  struct Process {
    std::string name;
    std::uint32_t life = 0;
    std::unique_ptr<Site> machine{};
    wire::Record disk{};
    wire::Record anchor{};  // what lies beside the anchor, and outlives the record at times
    std::deque<Persist> writes{};
    bool training = false;
    TimePoint down_until{};
    [[nodiscard]] std::string id() const { return name + "." + std::to_string(life); }
  };
  struct Candidate {
    std::uint32_t life = 0;
    std::unique_ptr<Coordinator> machine{};
  };
  struct Link {
    std::uint32_t site = 0;
    std::uint32_t candidate = 0;
    std::uint32_t site_life = 0;
    std::uint32_t candidate_life = 0;
    bool inquiry = false;
    std::deque<std::optional<wire::Message>> up{};  // nothing: closed
    std::deque<std::optional<wire::Message>> down{};
    bool up_open = true;    // the site may send
    bool down_open = true;  // the candidate may
  };

  Process& pick(std::vector<Process>& all) { return all[prng_.below(all.size())]; }
  std::uint32_t index_of(const Process& site) const { return static_cast<std::uint32_t>(&site - sites_.data()); }
  void say(const std::string& line) {
    lines_.push_back(std::to_string(static_cast<double>(now_.time_since_epoch().count()) / 1e6) + " " + line);
    if (lines_.size() > 150) lines_.pop_front();
  }

  // ---- processes

  void start_site(std::uint32_t i) {
    Process& site = sites_[i];
    ++site.life;
    site.training = false;
    site.writes.clear();
    SiteConfig config;
    config.coordinators = addresses_;
    site.machine = std::make_unique<Site>(config);
    wire::Join join = join_of(site.name, static_cast<std::uint32_t>(sites_.size()));
    take_membership(site.disk, site.anchor, site.anchor.anchor);
    if (site.disk.acceptor.value == 0) site.disk.acceptor = AcceptorId{prng_.next() | 1};
    join.process += 2ULL * site.life;  // drawn by each: two of them come to no acceptor that is the same
    join.report.record = site.disk;
    join.offer = site.disk.anchor;
    join.offer.digest = kRight;
    say(site.id() + " begins");
    tell(i, Begin{join});
  }
  void start_candidate(std::uint32_t i) {
    Candidate& candidate = candidates_[i];
    ++candidate.life;
    CoordinatorConfig config = CoordinatorHarness::defaults();
    config.fresh_run = RunId{1000 * (++births_)};
    candidate.machine = std::make_unique<Coordinator>(config);
  }
  void crash(Process& site, bool with_its_disk) {
    if (!site.machine) return;
    say(site.id() + " dies" + (with_its_disk ? "" : ", and its record is lost"));
    while (!site.writes.empty() && prng_.chance(0.5)) {  // done, though it was not told
      site.disk = site.writes.front().record;
      site.writes.pop_front();
    }
    end(site);
    if (with_its_disk) return;
    site.disk = wire::Record{};
    if (prng_.chance(0.5)) site.anchor = wire::Record{};
  }
  void end(Process& site) {
    invariants_.site_lost(site.id());
    site.machine.reset();
    site.down_until = now_ + Duration{static_cast<Duration::rep>(prng_.below(5'000'000))};
    for (auto& [id, link] : links_) {
      if (link.site != index_of(site) || link.site_life != site.life) continue;
      link.up_open = link.down_open = false;
      link.up.emplace_back(std::nullopt);
      link.down.clear();
    }
  }
  void crash_candidate(std::uint32_t i) {
    say("candidate " + std::to_string(i) + " dies");
    invariants_.coordinator_lost(id_of(i));
    for (auto& [id, link] : links_) {
      if (link.candidate != i || link.candidate_life != candidates_[i].life) continue;
      link.up_open = link.down_open = false;
      link.down.emplace_back(std::nullopt);
      link.up.clear();
    }
    start_candidate(i);
  }
  void depart(Process& site) {
    if (!site.machine || prng_.chance(0.5)) return;
    say(site.id() + " leaves");
    tell(index_of(site), Depart{"trained to the end"});
  }
  void forget(const Process& site) {
    const auto i = static_cast<std::uint32_t>(prng_.below(candidates_.size()));
    say("candidate " + std::to_string(i) + " is to forget " + site.name);
    tell_candidate(i, Received{LinkId{1'000'000'000}, wire::Forget{{site.name}}});
  }
  std::string id_of(std::uint32_t candidate) const {
    return addresses_[candidate] + "." + std::to_string(candidates_[candidate].life);
  }

  // ---- the machines

  void tell(std::uint32_t i, const SiteEvent& event) {
    Process& site = sites_[i];
    if (!site.machine) return;
    const std::vector<SiteAction> actions = site.machine->step(now_, event);
    invariants_.site_step(site.id(), event, actions);
    const std::uint32_t life = site.life;
    for (const SiteAction& action : actions) {
      if (site.machine && site.life == life) act(i, action);
    }
  }
  void put(std::uint32_t i, const wire::Offer& anchor, const KnownMembership& membership) {
    sites_[i].anchor.promised = membership.promised;
    sites_[i].anchor.anchor = anchor;
    sites_[i].anchor.voters = membership.voters;
  }
  void act(std::uint32_t i, const SiteAction& action) {
    Process& site = sites_[i];
    if (const auto* send = std::get_if<Send>(&action)) {
      Link& link = links_.at(send->link);
      if (link.up_open) link.up.emplace_back(send->message);
    } else if (const auto* hangup = std::get_if<CloseLink>(&action)) {
      Link& link = links_.at(hangup->link);
      if (std::exchange(link.up_open, false)) link.up.emplace_back(std::nullopt);
      link.down_open = false;
      link.down.clear();
    } else if (const auto* dial = std::get_if<DialCoordinator>(&action)) {
      dials_.push_back({i, site.life, *dial});
    } else if (const auto* persist = std::get_if<Persist>(&action)) {
      site.writes.push_back(*persist);
    } else if (const auto* keep = std::get_if<KeepAnchor>(&action)) {
      put(i, {keep->run, keep->round, keep->digest}, keep->membership);
      tell(i, AnchorInPlace{keep->run, keep->round, keep->digest});
    } else if (const auto* receive = std::get_if<ReceiveAnchor>(&action)) {
      put(i, {receive->run, receive->round, receive->digest}, receive->membership);
      tell(i, AnchorInPlace{receive->run, receive->round, receive->digest});
    } else if (const auto* apply = std::get_if<ApplyCommit>(&action)) {
      put(i, {apply->commit.run, apply->commit.round, kRight}, apply->membership);
      tell(i, Applied{apply->commit.round, kRight});
    } else if (std::holds_alternative<JoinDone>(action) || std::holds_alternative<RoundDone>(action) ||
               std::holds_alternative<RoundSkipped>(action)) {
      site.training = true;
    } else if (std::holds_alternative<Left>(action) || std::holds_alternative<Failed>(action)) {
      const auto* failed = std::get_if<Failed>(&action);
      say(site.id() + (failed != nullptr ? " fails: " + failed->why.message() : " has left"));
      end(site);
    }
  }
  void tell_candidate(std::uint32_t i, const CoordinatorEvent& event) {
    const auto actions = candidates_[i].machine->step(now_, event);
    invariants_.coordinator_step(id_of(i), event, actions);
    for (const CoordinatorAction& action : actions) {
      each_sent(action, [&](LinkId id, const wire::Message& message) {
        if (const auto* commit = std::get_if<wire::Commit>(&message)) commits_.insert({commit->run, commit->round});
        const auto link = links_.find(id);
        if (link != links_.end() && link->second.down_open) link->second.down.emplace_back(message);
        return true;
      });
      if (const auto* hangup = std::get_if<CloseLink>(&action)) {
        const auto link = links_.find(hangup->link);
        if (link == links_.end()) continue;
        if (std::exchange(link->second.down_open, false)) link->second.down.emplace_back(std::nullopt);
        link->second.up_open = false;
        link->second.up.clear();
      }
      if (const auto* note = std::get_if<Note>(&action)) say(id_of(i) + ": [" + note->event + "] " + note->text);
    }
  }

  // ---- what happens

  // Some link with something on its way, or a dial; false: there is none.
  bool settle() {
    bool any = !dials_.empty();
    if (any) connect(0);
    for (auto link = links_.begin(); link != links_.end(); ++link) {
      if (link->second.up.empty() && link->second.down.empty()) continue;
      any = true;
      carry(link->first, link->second, !link->second.up.empty());
    }
    for (Process& site : sites_) {
      if (site.writes.empty()) continue;
      any = true;
      write(site);
    }
    std::erase_if(links_, [](const auto& entry) {
      return !entry.second.up_open && !entry.second.down_open && entry.second.up.empty() && entry.second.down.empty();
    });
    return any;
  }
  void deliver() {
    std::vector<LinkId> busy;
    for (const auto& [id, link] : links_) {
      if (!link.up.empty() || !link.down.empty()) busy.push_back(id);
    }
    const std::size_t choice = prng_.below(busy.size() + dials_.size() + 1);
    if (choice < busy.size()) {
      Link& link = links_.at(busy[choice]);
      carry(busy[choice], link, link.down.empty() || (!link.up.empty() && prng_.chance(0.5)));
    } else if (choice < busy.size() + dials_.size()) {
      connect(choice - busy.size());
    } else {
      train();
    }
  }
  void carry(LinkId id, Link& link, bool upwards) {
    auto& queue = upwards ? link.up : link.down;
    const std::optional<wire::Message> message = std::move(queue.front());
    queue.pop_front();
    const Status lost = unavailable("reset");
    if (!message) link.up_open = link.down_open = false;
    if (upwards) {
      if (link.candidate_life != candidates_[link.candidate].life) return;
      tell_candidate(link.candidate, message ? CoordinatorEvent(Received{id, *message}) : Closed{id, lost});
    } else {
      if (link.site_life != sites_[link.site].life) return;
      tell(link.site, message ? SiteEvent(Received{id, *message}) : Closed{id, lost});
    }
  }
  void connect(std::size_t which) {
    const auto [i, life, dial] = dials_[which];
    dials_.erase(dials_.begin() + static_cast<std::ptrdiff_t>(which));
    if (sites_[i].life != life || !sites_[i].machine) return;
    if (cuts_.count({i, dial.candidate}) != 0) {
      return tell(i, DialFailed{std::nullopt, unavailable("no route"), dial.inquiry, dial.candidate});
    }
    const LinkId id{++last_link_};
    links_[id] = Link{i, dial.candidate, life, candidates_[dial.candidate].life, dial.inquiry};
    tell(i, CoordinatorConnected{id, dial.inquiry, dial.candidate});
  }
  void train() {
    for (std::uint32_t i = 0; i < sites_.size(); ++i) {
      if (!sites_[i].training || prng_.chance(0.3)) continue;
      sites_[i].training = false;
      tell(i, Trigger{});
    }
  }
  void finish_a_write() {
    Process& site = pick(sites_);
    if (!site.writes.empty()) write(site);
  }
  void write(Process& site) {
    const Persist persist = site.writes.front();
    site.writes.pop_front();
    if (!healed_ && prng_.chance(0.02)) return tell(index_of(site), Persisted{persist.number, unavailable("no space")});
    site.disk = persist.record;
    tell(index_of(site), Persisted{persist.number, {}});
  }
  void pass(Duration time) {
    now_ += time;
    for (std::uint32_t i = 0; i < candidates_.size(); ++i) {
      if (candidates_[i].machine->next_deadline() <= now_) tell_candidate(i, Tick{});
    }
    for (std::uint32_t i = 0; i < sites_.size(); ++i) {
      if (!sites_[i].machine && now_ >= sites_[i].down_until) start_site(i);
      if (sites_[i].machine && sites_[i].machine->next_deadline() <= now_) tell(i, Tick{});
    }
    train();
  }
  void break_a_link() {
    if (links_.empty()) return;
    auto link = links_.begin();
    std::advance(link, static_cast<std::ptrdiff_t>(prng_.below(links_.size())));
    link->second.up_open = link->second.down_open = false;
    link->second.up.emplace_back(std::nullopt);
    link->second.down.emplace_back(std::nullopt);
  }
  void cut() {
    const std::pair pair(static_cast<std::uint32_t>(prng_.below(sites_.size())),
                         static_cast<std::uint32_t>(prng_.below(candidates_.size())));
    if (cuts_.erase(pair) != 0) return;
    cuts_.insert(pair);
    for (auto& [id, link] : links_) {
      if (std::pair(link.site, link.candidate) != pair || !link.up_open) continue;
      link.up_open = link.down_open = false;
      link.up.emplace_back(std::nullopt);
      link.down.emplace_back(std::nullopt);
    }
  }

  struct Dial {
    std::uint32_t site = 0;
    std::uint32_t life = 0;
    DialCoordinator dial{};
  };
  Prng prng_;
  TimePoint now_{};
  Invariants invariants_;
  std::vector<std::string> addresses_;
  std::vector<Process> sites_;
  std::vector<Candidate> candidates_;
  std::map<LinkId, Link> links_;
  std::vector<Dial> dials_;
  std::set<std::pair<std::uint32_t, std::uint32_t>> cuts_;
  std::set<std::pair<RunId, RoundId>> commits_;
  std::uint64_t last_link_ = 0;
  std::uint64_t births_ = 0;
  bool healed_ = false;
  double faults_ = 0;
  std::deque<std::string> lines_;
};

}  // namespace collab::protocol
