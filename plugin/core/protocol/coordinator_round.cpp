// Rounds: attempts are formed, watched, formed again, committed.
#include <algorithm>
#include <cmath>

#include "core/base/text.h"
#include "core/protocol/coordinator_state.h"
#include "core/protocol/slice_table.h"

namespace collab::protocol {
namespace {

std::string times_in_words(std::uint32_t times) { return times == 1 ? "once" : std::to_string(times) + " times"; }

}  // namespace

Digest majority(const std::map<SiteId, Digest>& said) {
  std::map<Digest, std::size_t> votes;
  for (const auto& [site, digest] : said) ++votes[digest];
  const Digest* right = nullptr;
  for (const auto& [site, digest] : said) {  // ascending: of equals, the lowest site's word stands
    if (right == nullptr || votes[digest] > votes[*right]) right = &digest;
  }
  COLLAB_CHECK(right != nullptr, "a majority needs voters");
  return *right;
}

bool Coordinator::State::in_attempt(AttemptId attempt, RoundId of) const {
  return round.attempt && round.attempt->attempt == attempt && round.attempt->round == of;
}

void Coordinator::State::on_ready(MemberRecord& member, const wire::Ready& ready) {
  const std::string who = member.name + " is ready for round " + std::to_string(ready.round.value);
  if (member.standing != Standing::kActive || ready.round != number()) {
    // It crossed an Adopt on its way, or is out of step; it will say so again once it holds the anchor.
    note(Note::Level::kDebug, "ignored", who + ", which is not the next round for it");
    return;
  }
  if (round.attempt) {
    note(Note::Level::kWarning, "ignored", who + " while an attempt at it is in flight");
    return;
  }
  member.ready = ready;
  if (!std::isfinite(ready.weight) || ready.weight < 0) {
    note(Note::Level::kWarning, "ignored", who + " with a weight that is no weight; it counts as 0");
    member.ready->weight = 0;
  }
  member.holds = wire::Adopted{anchor->run, anchor->round, ready.state};
  if (!round.waiting.running()) {
    round.waiting.start(now);
    round.limit = later(now, config.round_timeout);
  }
}

void Coordinator::State::on_done(MemberRecord& member, const wire::Done& done) {
  if (done.term != config.term || !in_attempt(done.attempt, done.round)) return;  // of an attempt given up since
  if (done.slices.size() != round.attempt->slices.size()) {
    return expel(member.id, "it sent " + std::to_string(done.slices.size()) + " digests for the " +
                                std::to_string(round.attempt->slices.size()) + " slices of round " +
                                std::to_string(done.round.value));
  }
  member.done = done.slices;
}

void Coordinator::State::on_decline(MemberRecord& member, const wire::Decline& decline) {
  if (!in_attempt(decline.attempt, decline.round)) return;
  round.declined.insert(member.id);
  note(Note::Level::kWarning, "declined",
       "round " + std::to_string(decline.round.value) + " goes on without the contribution of " + member.name + ": " +
           decline.reason);
  abandon_attempt();
}

void Coordinator::State::on_unreached(MemberRecord& member, const wire::Unreached& unreached) {
  if (!in_attempt(unreached.attempt, unreached.round)) return;
  const auto& in = round.attempt->participants;
  const bool known = std::any_of(in.begin(), in.end(), [&](const auto& p) { return p.site == unreached.peer; });
  if (!known) {
    note(Note::Level::kWarning, "ignored",
         member.name + " cannot reach site " + std::to_string(unreached.peer.value) +
             ", which has no part in the attempt");
    return;
  }
  const auto pair = std::minmax(member.id, unreached.peer);
  const std::uint32_t times = ++round.unreached[{pair.first, pair.second}];
  const std::string text = member.name + " cannot exchange with " + name_of(unreached.peer) + ": " + unreached.reason;
  if (times > kMaxRepeats) {
    return expel(unreached.peer,
                 text + " (" + times_in_words(times) + " in round " + std::to_string(unreached.round.value) + ")");
  }
  note(Note::Level::kWarning, "unreached", text + "; another attempt is formed");
  abandon_attempt();
}

void Coordinator::State::abandon_attempt() {
  round.attempt.reset();
  for (auto& [id, member] : members) member.done.reset();
}

bool Coordinator::State::ready_to_form() const {
  return anchor && std::all_of(members.begin(), members.end(), [](const auto& entry) {
           return entry.second.standing == Standing::kActive && entry.second.ready.has_value();
         });
}

// Before deltas to an anchor are averaged, all must hold the same one. A site that differs fetches it again, keeps its
// parameters, and says ready once more.
bool Coordinator::State::states_agree() {
  std::map<SiteId, Digest> said;
  for (const auto& [id, member] : members) said[id] = member.ready->state;
  const Digest right = majority(said);
  anchor->digest = right;
  std::vector<SiteId> wrong;
  std::vector<SiteId> sound;
  for (const auto& [id, digest] : said) (digest == right ? sound : wrong).push_back(id);
  for (const SiteId id : wrong) {
    MemberRecord& member = members.at(id);
    const std::uint32_t times = ++round.state_repairs[id];
    const bool tie = said.size() == 2;
    const std::string text = member.name + " holds another anchor of round " + std::to_string(anchor->round.value) +
                             " (digest " + to_hex(said[id]) + ") than " + name_of(sound.front()) + " (" +
                             to_hex(right) + ")" + (tie ? "; of two, the lower site is taken to be right" : "");
    if (times > kMaxRepeats) {
      expel(id, text + "; it was repaired " + times_in_words(kMaxRepeats) + " in vain");
      continue;
    }
    note(Note::Level::kError, "repair", text + "; it fetches the anchor again",
         {{"who", json_quote(name_of(id))}, {"round", std::to_string(anchor->round.value)}});
    send_adopt(member, sound.front());
  }
  return wrong.empty();
}

void Coordinator::State::form() {
  wire::Form form;
  form.term = config.term;
  form.run = anchor->run;
  form.round = number();
  bool contributes = false;
  const bool any_address =
      std::any_of(members.begin(), members.end(), [](const auto& entry) { return !entry.second.address.empty(); });
  std::vector<Share> shares;
  for (const auto& [id, member] : members) {
    const double weight = round.declined.count(id) != 0 ? 0 : member.ready->weight;
    contributes = contributes || weight > 0;
    form.participants.push_back({id, weight});
    // A site that cannot be dialled cannot be reached by another such site, so it owns nothing.
    shares.push_back({id, any_address && member.address.empty() ? 0.0 : 1.0});
  }
  round.formed = now;
  if (!contributes) return commit(AttemptId{0}, {});
  form.attempt = AttemptId{attempt_base + ++round.attempts};
  highest_attempt = std::max(highest_attempt, form.attempt.value);
  form.slices = make_slices(reference->elements, shares);
  for (const auto& [id, member] : members) send(member, form);
  round.attempt = std::move(form);
}

void Coordinator::State::finish_attempt() {
  const wire::Form& form = *round.attempt;
  for (const wire::Participant& p : form.participants) {
    if (!members.at(p.site).done) return;
  }
  std::set<SiteId> wrong;
  for (std::size_t i = 0; i < form.slices.size(); ++i) {
    std::map<SiteId, Digest> said;
    for (const wire::Participant& p : form.participants) said[p.site] = (*members.at(p.site).done)[i];
    const Digest right = majority(said);
    for (const auto& [site, digest] : said) {
      if (digest != right) wrong.insert(site);
    }
  }
  if (wrong.empty()) {
    std::vector<SiteId> contributors;
    for (const wire::Participant& p : form.participants) {
      if (p.weight > 0) contributors.push_back(p.site);
    }
    return commit(form.attempt, contributors);
  }
  const std::string what =
      " has another mean of round " + std::to_string(form.round.value) + " than " +
      (form.participants.size() == 2 ? "the lower site, which of two is taken to be right" : "most");
  const RoundId number_formed = form.round;
  abandon_attempt();
  changed = true;
  for (const SiteId id : wrong) {
    const std::uint32_t times = ++round.mean_repairs[id];
    if (times > kMaxRepeats) {
      expel(id, name_of(id) + what + " (" + times_in_words(times) + ")");
    } else {
      note(Note::Level::kError, "repair", name_of(id) + what + "; another attempt is formed",
           {{"who", json_quote(name_of(id))}, {"round", std::to_string(number_formed.value)}});
    }
  }
}

void Coordinator::State::commit(AttemptId attempt, const std::vector<SiteId>& contributors) {
  const RoundId committed = number();
  std::vector<std::string> names;
  for (const SiteId id : contributors) names.push_back(name_of(id));
  for (auto& [id, member] : members) {
    if (member.standing != Standing::kActive || !member.ready) continue;
    send(member, wire::Commit{config.term, committed, attempt, contributors});
    member.ready.reset();
    member.done.reset();
  }
  const double seconds = static_cast<double>((now - round.formed).count()) / 1e6;
  note(Note::Level::kInfo, "round",
       "round " + std::to_string(committed.value) +
           (names.empty() ? ": nobody had anything to contribute, the anchor stands" : ": " + join_words(names)),
       {{"round", std::to_string(committed.value)},
        {"attempt", std::to_string(attempt.value)},
        {"members", json_list(member_list())},
        {"contributors", json_list(names)},
        {"seconds", json_number(seconds)}});
  anchor->round = committed;
  if (!contributors.empty()) anchor->digest.reset();
  round = RoundRecord{};
}

void Coordinator::State::on_round_tick() {
  std::vector<SiteId> slow;
  for (const auto& [id, member] : members) {
    if (member.standing == Standing::kAdopting && now - member.adopting_since >= config.round_timeout)
      slow.push_back(id);
  }
  for (const SiteId id : slow) {
    expel(id, "the anchor was not in place there " + in_seconds(config.round_timeout) +
                  " after it was offered (COLLAB_ROUND_TIMEOUT)");
  }
  if (!round.waiting.running()) return;
  if (now >= round.limit) return on_round_limit();
  const auto waited = round.waiting.due(now);
  const std::string whom = waiting_for();
  if (waited && !whom.empty()) note(Note::Level::kInfo, "waiting", whom + " (" + in_seconds(*waited) + ")");
}

// Nothing waits without limit: those for whom the others have waited too long are let go, by name.
void Coordinator::State::on_round_limit() {
  const std::string limit = in_seconds(config.round_timeout) + " (COLLAB_ROUND_TIMEOUT)";
  const std::string which = "round " + std::to_string(number().value);
  round.limit = later(now, config.round_timeout);
  const std::vector<SiteId> late = waited_for();
  if (round.attempt && late.size() == round.attempt->participants.size() && !round.stalled) {
    // Nobody has finished, so nobody can be blamed: once more from the start.
    round.stalled = true;
    note(Note::Level::kWarning, "waiting",
         which + ": no site finished its exchange within " + limit + "; it is tried once more");
    return abandon_attempt();
  }
  const std::string reason = round.attempt ? which + ": its exchange was not done within " + limit
                                           : which + ": it was not ready within " + limit;
  for (const SiteId id : late) {
    if (members.count(id) != 0) expel(id, reason);
  }
}

}  // namespace collab::protocol
