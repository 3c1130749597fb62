// Generations: who trains another model of the run than those who are here waits, or is told to train alone.
#include <algorithm>
#include <utility>

#include "core/base/text.h"
#include "core/protocol/coordinator/coordinator_state.h"

namespace collab::protocol {
namespace {

constexpr const char* kAnotherModel = "the swarm goes on to another model";

std::string generation_text(std::uint32_t generation) { return "generation " + std::to_string(generation); }

}  // namespace

std::size_t Coordinator::State::trainers_here() const { return sites_here() + election.trainers(); }

std::string Coordinator::State::trainers_text() const {
  std::vector<std::string> names = member_list();
  for (std::string& name : election.names()) names.push_back(std::move(name));
  return join_words(names);
}

// A helper fits any generation: it has no model.
bool Coordinator::State::fits_generation(const wire::Join& join) const {
  if (join.helper) return true;
  if (join.generation != generations.current()) return false;
  const std::uint32_t next = generations.expected_generation(now);
  return trains_here() || next == 0 || next == join.generation;
}

void Coordinator::State::settle_generations() {
  if (generations.waiting().empty()) return;
  if (!trains_here()) {
    if (const auto next = generations.may_begin(now, config.link_grace, ended)) begin_generation(*next);
  } else if (const std::uint32_t trained = generations.proven(trainers_here()); trained > generations.current()) {
    begin_generation(trained);
  }
  if (!trains_here()) return tell_who_waits();
  for (const auto& [link, join] : generations.take_earlier_than(generations.current())) tell_stale(link, join.site);
  tell_who_waits();
}

// Nothing of the model before counts: not its anchor, its membership nor its rounds.
void Coordinator::State::begin_generation(std::uint32_t generation) {
  const std::uint32_t before = generations.current();
  generations.begin(generation, now);
  if (before != 0 && generation != before) {
    std::vector<SiteId> here;
    for (const auto& [id, member] : members) here.push_back(id);
    for (const SiteId id : here) {
      const MemberRecord member = members.at(id);
      if (!member.helper) {
        tell_stale(member.link, member.name);
        remove(id, "the swarm goes on to " + generation_text(generation) + " of the model");
      } else if (member.phase == MemberPhase::kActive) {
        expel(id, kAnotherModel);
      } else {  // one that has not adopted yet would take a refusal for its end
        out.emplace_back(Hangup{member.link, kAnotherModel});
        remove(id, kAnotherModel);
      }
    }
    for (const auto& [link, join] : election.dismiss()) {
      if (join.helper) {
        out.emplace_back(Hangup{link, kAnotherModel});
      } else {
        tell_stale(link, join.site);
      }
    }
    forget_everything();
    ended = false;
    note(Note::Level::kInfo, "generation", "the swarm begins " + generation_text(generation) + " of the model",
         {{"generation", std::to_string(generation)}});
  }
  for (const auto& [link, join] : generations.take(generation)) on_join(link, join);
}

void Coordinator::State::tell_stale(LinkId link, const std::string& who) {
  const std::string reason = "the swarm trains " + generation_text(generations.current()) +
                             " of the model, a later one than this site (each model that a script trains after "
                             "another is a generation; a script that is started again begins with the first)";
  out.emplace_back(Send{link, wire::Refuse{reason, true}});
  out.emplace_back(Hangup{link, reason});
  note(Note::Level::kWarning, "behind", who + " trains alone until it is there too: " + reason,
       {{"who", json_quote(who)}, {"generation", std::to_string(generations.current())}});
}

void Coordinator::State::tell_who_waits() {
  const bool here = trains_here();
  for (auto& [link, waiting] : generations.waiting()) {
    if (now < waiting.tell) continue;
    waiting.tell = later(now, config.heartbeat);  // it hears that we are there
    const std::string own = generation_text(waiting.join.generation);
    const std::string others = here ? trainers_text() + " still at " + generation_text(generations.current())
                                    : "those who may train another one and come back";
    const std::string limit = here ? in_seconds(config.join_timeout) + " (COLLAB_JOIN_TIMEOUT)"
                                   : in_seconds(config.link_grace) + " (COLLAB_LINK_GRACE)";
    const std::string reason =
        "this site is at " + own + " of the model and waits for " + others + ", at most " + limit;
    out.emplace_back(Send{link, wire::Hold{reason}});
    if (std::exchange(waiting.announced, true)) continue;
    note(Note::Level::kInfo, "waiting", waiting.join.site + ": " + reason, {{"who", json_quote(waiting.join.site)}});
  }
}

// Who is ahead waits for so long. Then those who are ahead go on, if they are half of all, or if one of them is who the
// others miss: it has left them for good, and nobody leads them any more. Else they are too few.
void Coordinator::State::on_generation_tick() {
  const auto late = [&](const auto& entry) { return now >= later(entry.second.since, config.join_timeout); };
  auto& waiting = generations.waiting();
  if (std::none_of(waiting.begin(), waiting.end(), late)) return;
  std::uint32_t next = UINT32_MAX;
  for (const auto& [link, one] : waiting) next = std::min(next, one.join.generation);
  const auto ahead = static_cast<std::size_t>(
      std::count_if(waiting.begin(), waiting.end(), [&](const auto& w) { return w.second.join.generation == next; }));
  const std::vector<std::string> missing = leads ? std::vector<std::string>() : election.missing();
  const bool missed = std::ranges::any_of(waiting, [&](const auto& entry) {
    return late(entry) && std::ranges::find(missing, entry.second.join.site) != missing.end();
  });
  if (ahead >= trainers_here() || missed) return begin_generation(next);
  std::vector<std::pair<LinkId, std::string>> refused;
  for (const auto& entry : waiting) {
    if (late(entry)) refused.emplace_back(entry.first, entry.second.join.site);
  }
  for (const auto& [link, who] : refused) {
    generations.drop(link);
    refuse_link(link, who,
                trainers_text() + " have not come to this site's generation of the model within " +
                    in_seconds(config.join_timeout) + " (COLLAB_JOIN_TIMEOUT), they train generation " +
                    std::to_string(generations.current()) +
                    ": train the same models in the same order everywhere, or raise COLLAB_JOIN_TIMEOUT");
  }
}

}  // namespace collab::protocol
