#include "core/protocol/coordinator/generation_gate.h"

#include <algorithm>
#include <utility>

#include "core/base/text.h"
#include "core/protocol/coordinator/coordinator_parts.h"

namespace collab::protocol {
namespace {

constexpr const char* kAnotherModel = "the swarm goes on to another model [join.next-model]";

std::string generation_text(std::uint32_t generation) { return "generation " + std::to_string(generation); }

bool holds(const wire::Join& helper) {
  return helper.offer.run.value != 0 || helper.report.record.anchor.run.value != 0;
}

}  // namespace

std::size_t GenerationGate::trainers_here() const {
  return all_->membership.sites_here() + all_->leadership.election().trainers();
}

std::string GenerationGate::trainers_text() const {
  std::vector<std::string> names = all_->membership.names();
  for (std::string& name : all_->leadership.election().names()) names.push_back(std::move(name));
  return join_words(names);
}

bool GenerationGate::fits(const wire::Join& join) const {
  if (join.helper) return generations_.current() == 0 || join.generation == generations_.current() || !holds(join);
  if (join.generation != generations_.current()) return false;
  const std::uint32_t next = generations_.expected_generation(all_->now);
  return trainers_here() > 0 || next == 0 || next == join.generation;
}

void GenerationGate::settle() {
  if (generations_.waiting().empty()) return;
  if (trainers_here() == 0) {
    if (const auto next = generations_.may_begin(all_->now, all_->config.link_grace, ended_)) begin(*next);
  } else if (const std::uint32_t trained = generations_.proven(trainers_here()); trained > generations_.current()) {
    begin(trained);
  }
  if (trainers_here() == 0) return report_waiting_sites();
  for (const auto& [link, join] : generations_.take_earlier_than(generations_.current())) refuse_stale(link, join.site);
  report_waiting_sites();
}

// Nothing of the previous model counts: not its anchor, its membership or its rounds.
void GenerationGate::begin(std::uint32_t generation) {
  const std::uint32_t before = generations_.current();
  generations_.begin(generation, all_->now);
  if (before != 0 && generation != before) {
    for (const SiteId id : all_->membership.ids()) {
      const Member member = all_->members().at(id);
      if (!member.helper) {
        refuse_stale(member.link, member.name);
        all_->membership.remove(id, "the swarm goes on to " + generation_text(generation) + " of the model");
      } else if (member.phase() == MemberPhase::kActive) {
        all_->membership.expel(id, kAnotherModel);
      } else {  // a helper without an anchor would take a refusal for its end
        all_->membership.close_link(id, kAnotherModel);
      }
    }
    for (const auto& [link, join] : all_->leadership.dismiss()) {
      if (join.helper) {
        all_->out.emplace_back(CloseLink{link, kAnotherModel});
      } else {
        refuse_stale(link, join.site);
      }
    }
    all_->forget_swarm();
    ended_ = false;
    all_->note(Note::Level::kInfo, "generation", "the swarm begins " + generation_text(generation) + " of the model",
               {{"generation", std::to_string(generation)}});
  }
  for (const auto& [link, join] : generations_.take(generation)) all_->admission.on_join(link, join);
}

void GenerationGate::refuse_stale(LinkId link, const std::string& who) {
  refuse_and_close(link, who,
                   "the swarm trains " + generation_text(generations_.current()) +
                       " of the model, a later one than this site (each model that a script trains after another is a "
                       "generation; a script that is started again begins with the first) [join.stale-generation]");
}

void GenerationGate::refuse_and_close(LinkId link, const std::string& who, const std::string& reason) {
  all_->out.emplace_back(Send{link, wire::Refuse{reason, true}});
  all_->out.emplace_back(CloseLink{link, reason});
  all_->note(Note::Level::kWarning, "stale", who + " is refused: " + reason,
             {{"who", json_quote(who)}, {"generation", std::to_string(generations_.current())}});
}

void GenerationGate::report_waiting_sites() {
  const bool here = trainers_here() > 0;
  std::string trainers;  // all their names; built once, and only if needed
  for (const auto& [link, waiting] : generations_.waiting()) {
    if (all_->now < waiting.tell) continue;
    generations_.told(link, later(all_->now, all_->config.heartbeat));  // so it hears from the coordinator
    const std::string own = generation_text(waiting.join.generation);
    if (here && trainers.empty()) trainers = trainers_text();
    const std::string others = here ? trainers + " still at " + generation_text(generations_.current())
                                    : "sites that may still train another one and come back";
    const std::string limit = here ? in_seconds(all_->config.join_timeout) + " (COLLAB_JOIN_TIMEOUT)"
                                   : in_seconds(all_->config.link_grace) + " (COLLAB_LINK_GRACE)";
    const std::string reason =
        "this site is at " + own + " of the model and waits for " + others + ", for at most " + limit;
    all_->out.emplace_back(Send{link, wire::Hold{reason}});
    if (!generations_.announce(link)) continue;
    all_->note(Note::Level::kInfo, "waiting", waiting.join.site + ": " + reason,
               {{"who", json_quote(waiting.join.site)}});
  }
}

// Sites that are ahead wait for COLLAB_JOIN_TIMEOUT. Then they go on if they are half of all, or if one of them is a
// site that the others miss: it has left them for good, and no candidate leads them any more. Otherwise the sites ahead
// are too few, and are refused.
void GenerationGate::on_tick() {
  const auto late = [&](const auto& entry) {
    return all_->now >= later(entry.second.since, all_->config.join_timeout);
  };
  const auto& waiting = generations_.waiting();
  if (std::none_of(waiting.begin(), waiting.end(), late)) return;
  std::uint32_t next = UINT32_MAX;
  for (const auto& [link, one] : waiting) next = std::min(next, one.join.generation);
  const auto ahead = static_cast<std::size_t>(
      std::count_if(waiting.begin(), waiting.end(), [&](const auto& w) { return w.second.join.generation == next; }));
  const std::vector<std::string> missing =
      all_->leadership.leads() ? std::vector<std::string>() : all_->leadership.election().missing();
  const bool missed = std::ranges::any_of(waiting, [&](const auto& entry) {
    return late(entry) && std::ranges::find(missing, entry.second.join.site) != missing.end();
  });
  if (ahead >= trainers_here() || missed) return begin(next);
  std::vector<std::pair<LinkId, std::string>> refused;
  for (const auto& entry : waiting) {
    if (late(entry)) refused.emplace_back(entry.first, entry.second.join.site);
  }
  for (const auto& [link, who] : refused) {
    generations_.drop(link);
    all_->admission.refuse_link(link, who,
                                trainers_text() + " have not reached this site's generation of the model within " +
                                    in_seconds(all_->config.join_timeout) +
                                    " (COLLAB_JOIN_TIMEOUT); they train generation " +
                                    std::to_string(generations_.current()) +
                                    ": train the same models in the same order everywhere, or raise "
                                    "COLLAB_JOIN_TIMEOUT [join.early-generation]");
  }
}

TimePoint GenerationGate::next_deadline() const {
  return generations_.next_deadline(all_->now, all_->config.link_grace, all_->config.join_timeout);
}

void GenerationGate::learn(const wire::Join& join) {
  if (generations_.current() == 0 && join.helper && holds(join)) generations_.begin(join.generation, all_->now);
}

void GenerationGate::wait(LinkId link, const wire::Join& join) {
  if (join.helper) {  // it comes back without an anchor
    return refuse_and_close(link, join.site,
                            "the swarm trains " + generation_text(generations_.current()) +
                                " of the model, but this helper holds an anchor of " +
                                generation_text(join.generation) + " [join.helper-generation]");
  }
  if (generations_.full()) {
    return all_->admission.refuse_link(link, join.site,
                                       "too many sites wait for another model; try again [join.too-many-wait]");
  }
  if (const auto replaced = generations_.wait(link, join, all_->now)) {
    all_->out.emplace_back(CloseLink{*replaced, "replaced by a new link of " + join.site});
  }
  all_->changed = true;  // the wait is judged once this event is handled
}

void GenerationGate::forget(LinkId link) { generations_.forget(link, all_->now); }

void GenerationGate::left_for(const std::string& site, std::uint32_t generation) {
  if (generation <= generations_.current()) return;
  generations_.left_for(site, generation, all_->now, later(all_->now, all_->config.link_grace));
}

void GenerationGate::somebody_trained() { generations_.seen(all_->now); }

}  // namespace collab::protocol
