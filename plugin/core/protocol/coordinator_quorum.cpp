// Quorums: whether enough of the newest membership are here to agree on a round, what they do where they are not (a run
// of their own, a branch), and which rounds a member that comes back has counted in.
#include <algorithm>
#include <tuple>

#include "core/base/text.h"
#include "core/protocol/coordinator_state.h"

namespace collab::protocol {

bool Coordinator::State::is_quorum(std::size_t here, std::size_t remember) const {
  const Presence presence{voters.size(), here, remember};
  return voters.empty() || (presence.most() && presence.knows());
}

bool Coordinator::State::has_quorum(const std::set<SiteId>& present) const {
  std::size_t here = 0;
  std::size_t remember = 0;
  for (const auto& [id, name] : voters) {
    if (present.count(id) == 0) continue;
    ++here;
    remember += members.at(id).remembers ? 1 : 0;
  }
  return is_quorum(here, remember);
}

// Under another name what they agree on cannot be taken for what others did.
bool Coordinator::State::may_begin() const {
  if (branches) return true;
  if (!forks) return has_quorum(all_members());
  const auto here =
      std::count_if(voters.begin(), voters.end(), [this](const auto& v) { return members.count(v.first) != 0; });
  return voters.empty() || 2 * static_cast<std::size_t>(here) > voters.size();
}

// Most are here, but too few of them remember what was promised; those who may know had the grace to come back.
void Coordinator::State::fork() {
  vague_since = kNever;
  if (!anchor->digest) return recess("nobody has told the anchor's digest yet");
  const std::string why = quorum_in_words(ready_crew());
  go_on_as(next_run());
  note(Note::Level::kWarning, "anchor",
       why + "; after " + in_seconds(config.link_grace) + " (COLLAB_LINK_GRACE) they go on as run " +
           std::to_string(anchor->run.value));
}

// What is agreed on from here is no longer what the majority has; it joins that again when it is heard of.
void Coordinator::State::branch_off() {
  minority_since = kNever;
  if (!anchor->digest) return recess("nobody has told the anchor's digest yet");
  const std::string why = quorum_in_words(ready_crew());
  const RunId run = next_run();
  trunk = anchor->run;
  anchor->branch = {{run, anchor->run, 0}};
  voters.clear();
  for (const auto& [id, member] : members) voters[id] = member.name;
  go_on_as(run);
  tell_of_branch(why + "; after " + in_seconds(config.quorum_timeout) + " (COLLAB_QUORUM_TIMEOUT) ");
}

void Coordinator::State::tell_of_branch(const std::string& why) {
  note(Note::Level::kWarning, "branch",
       why + join_words(member_list()) + " go on as a branch, run " + std::to_string(anchor->run.value),
       {{"run", std::to_string(anchor->run.value)}, {"round", std::to_string(anchor->round.value)}});
}

void Coordinator::State::go_on_as(RunId run) {
  for (auto& [id, member] : members) {
    if (member.holds && member.holds->run == anchor->run && member.holds->round == anchor->round)
      member.holds->run = run;
    member.standing = Standing::kJoined;
    member.remembers = true;
    member.ready.reset();
  }
  anchor->run = run;
  begin_round_again();
  changed = true;
}

std::string Coordinator::State::quorum_in_words(const std::set<SiteId>& present) const {
  std::vector<std::string> missing;
  for (const auto& [site, name] : voters) {
    if (present.count(site) == 0) missing.push_back(name);
  }
  const std::size_t here = voters.size() - missing.size();
  const std::string why = 2 * here > voters.size() ? ", and too few of them have not been restarted since; missing: "
                                                   : ", which is no majority; missing: ";
  return std::to_string(here) + " of the " + std::to_string(voters.size()) + " sites that agreed on round " +
         std::to_string(anchor ? anchor->round.value : 0) + why + join_words(missing);
}

std::set<SiteId> Coordinator::State::all_members() const {
  std::set<SiteId> sites;
  for (const auto& [id, member] : members) sites.insert(id);
  return sites;
}

void Coordinator::State::remember(RunId run, RoundId of, AttemptId attempt, const std::vector<SiteId>& contributors) {
  std::vector<Digest> slices;
  if (const auto known = history.find(of); known != history.end() && known->second.attempt == attempt) {
    slices = std::move(known->second.slices);
  }
  history[of] = PastRound{run, attempt, {contributors.begin(), contributors.end()}, std::move(slices)};
  while (history.size() > kRememberedRounds) {  // rounds of another run first: their numbers may be higher
    const auto other = std::find_if(history.begin(), history.end(), [&](const auto& e) { return e.second.run != run; });
    history.erase(other == history.end() ? history.begin() : other);
  }
}

// Of the round after the anchor it holds: no other can hold a contribution of it.
wire::Counted Coordinator::State::counted(const MemberRecord& member) const {
  const wire::Offer held = brought_by(member);
  if (held.run.value == 0 || std::tuple(held.run, held.round) == std::tuple(anchor->run, anchor->round))
    return wire::Counted::kNo;
  const auto past = history.find(RoundId{held.round.value + 1});
  if (past == history.end() || past->second.run != held.run) return wire::Counted::kUnknown;
  // It may have had another number when it contributed.
  SiteId then = member.id;
  for (const wire::Prepared& prepared : member.report.prepared) {
    const wire::Form& form = prepared.form;
    if (form.run != held.run || form.round.value != held.round.value + 1) continue;
    for (const wire::Voter& voter : form.voters) {
      if (voter.name == member.name) then = voter.site;
    }
  }
  return past->second.contributors.count(then) != 0 ? wire::Counted::kYes : wire::Counted::kNo;
}

}  // namespace collab::protocol
