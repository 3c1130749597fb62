// The end of an attempt: what follows from `Done`.
//
//   Done of another term, attempt or site                    ignored
//   Done with another number of digests than slices          its sender is expelled [round.digest-count]
//   Done                                                     kept; until all participants that are here have said it,
//                                                            nothing follows
//   all are done, every digest alike                         commit(): `Commit` to them; the anchor is the next one
//   all are done, a site has another digest of a slice       average_again(): the attempt is given up, nothing of its
//                                                            exchange stands, and another one is formed
//
// The right digest is the one that most sites say, of the voters that train (if any do); among equals, the one
// that includes the lowest site (right_of).
// Each of the other sites is
//
//   the first three times                                    named: event `repair`, [round.mean-differs]
//   then, a voter, if the round can do without it            left out of the round: event `straggler`
//   then, otherwise                                          expelled [round.mean-beyond-repair]
//   no voter, as it is of no membership yet                  named, and expelled after the third time. After the first
//                                                            time only one that is no voter takes part in the rest
//                                                            of the round, then none (faults.h)
//
// Times are counted over rounds, until a commit in which its mean was right.
#include <algorithm>
#include <utility>

#include "core/base/text.h"
#include "core/protocol/agreement/attempt.h"
#include "core/protocol/coordinator/coordinator_parts.h"
#include "core/protocol/coordinator/round.h"
#include "core/protocol/mutants.h"

namespace collab::protocol {

void Round::on_done(Member& member, const wire::Done& done) {
  if (done.term != all_->leadership.term() && !mutant(Mutant::kDoneOfOlderTerm)) return;
  if (!in_attempt(done.attempt, done.round) && !(round_.attempt && mutant(Mutant::kDoneOfOtherAttempt)))
    return;  // of an attempt given up since
  if (!takes_part(*round_.attempt, member.id)) return;
  if (done.slices.size() != round_.attempt->slices.size()) {
    return all_->membership.expel(member.id, "it sent " + std::to_string(done.slices.size()) + " digests for the " +
                                                 std::to_string(round_.attempt->slices.size()) + " slices of round " +
                                                 std::to_string(done.round.value) + " [round.digest-count]");
  }
  if (!member.round.done_) ++round_.done;
  member.round.done_ = done.slices;
}

void Round::finish_attempt() {
  if (round_.done < (mutant(Mutant::kCommitBeforeAllAreDone) ? 1 : round_.here)) return;
  const std::set<SiteId> wrong = sites_with_wrong_mean();
  if (wrong.empty()) return commit();
  average_again(wrong);
}

bool Round::means_are_alike() const {
  const std::vector<Digest>* first = nullptr;
  return std::ranges::all_of(round_.attempt->participants, [&](const wire::Participant& p) {
    if (!p.here) return true;
    const auto& done = all_->members().at(p.site).round.done_;
    if (!done) return true;  // a planted bug
    first = first == nullptr ? &*done : first;
    return *done == *first;
  });
}

std::set<SiteId> Round::sites_with_wrong_mean() const {
  std::set<SiteId> wrong;
  if (means_are_alike()) return wrong;
  for (std::size_t i = 0; i < round_.attempt->slices.size(); ++i) {
    std::map<SiteId, Digest> said;
    for (const wire::Participant& p : round_.attempt->participants) {
      if (p.here && (all_->members().at(p.site).round.done_ || !mutant(Mutant::kCommitBeforeAllAreDone)))
        said[p.site] = (*all_->members().at(p.site).round.done_)[i];
    }
    const Digest right = right_of(said);
    for (const auto& [site, digest] : said) {
      if (digest != right && !mutant(Mutant::kMeansNotCompared)) wrong.insert(site);
    }
  }
  return wrong;
}

// What voters that train report, if there are any. Helpers and new sites may be one peer under many
// names.
Digest Round::right_of(const std::map<SiteId, Digest>& said) const {
  std::map<SiteId, Digest> by_trainers = said;
  std::erase_if(by_trainers, [this](const auto& entry) {
    return all_->members().at(entry.first).helper || !all_->agreed.is_voter(entry.first);
  });
  return most_reported(by_trainers.empty() ? said : by_trainers);
}

// Gives up the attempt and names the sites that differ. The first times that is all; then the round goes on without
// them.
void Round::average_again(const std::set<SiteId>& wrong) {
  const std::string of = std::to_string(round_.attempt->round.value);
  const std::string what = " has a different mean of round " + of + " from " +
                           (round_.here == 2 ? "the lower site, which counts as right if there are two" : "most sites");
  discard_exchange();
  all_->changed = true;
  std::map<SiteId, std::string> newcomers;
  for (const SiteId id : wrong) {
    if (!all_->agreed.is_voter(id)) newcomers.emplace(id, all_->membership.name_of(id));
  }
  all_->exclusions.exclude_newcomers(newcomers);
  for (const SiteId id : wrong) {
    const std::uint32_t times = all_->exclusions.count_mean_repair(id);
    const std::string again = all_->membership.name_of(id) + what + " (" + times_text(times) + ")";
    if (times > kMaxRepeats) {
      all_->exclusions.expel_or_exclude(id, again, "[round.mean-beyond-repair]");
    } else {
      all_->note(Note::Level::kError, "repair",
                 all_->membership.name_of(id) + what + "; another attempt is formed [round.mean-differs]",
                 {{"who", json_quote(all_->membership.name_of(id))}, {"round", of}});
    }
  }
}

void Round::commit() {
  const RoundId committed = number();
  const wire::StartAttempt start = *round_.attempt;
  const std::vector<SiteId> contributors = contributors_of(start);
  std::vector<std::string> members_named;
  std::vector<Digest> mean;
  for (const wire::Participant& p : start.participants) {
    if (!p.here) continue;
    all_->exclusions.had_right_mean(p.site);
    mean = all_->members().at(p.site).round.done_.value_or(std::vector<Digest>{});
    members_named.push_back(all_->membership.name_of(p.site));
  }
  all_->agreed.commit(start, mean);
  const Contributions::Summary said = all_->contributions.committed(start);
  const auto number_or_null = [](const std::optional<double>& value) { return value ? json_number(*value) : "null"; };
  Broadcast all{{},
                wire::Commit{all_->leadership.term(), all_->anchor.record()->run, committed, start.attempt,
                             contributors, all_->period.committed(start)}};
  auto participant = start.participants.begin();  // both are ascending
  for (auto& [id, member] : all_->members()) {
    while (participant != start.participants.end() && participant->site < id) ++participant;
    if (participant != start.participants.end() && participant->site == id && participant->here) {
      all.links.push_back(member.link);
      member.round.ready_.reset();
    } else {
      all_->installer.left_out(member);
    }
  }
  all_->out.emplace_back(std::move(all));
  all_->note(Note::Level::kInfo, "round",
             "round " + std::to_string(committed.value) +
                 (said.names.empty() ? ": no site had anything to contribute, so the anchor stays as it is"
                                     : ": " + join_words(said.names)),
             {{"round", std::to_string(committed.value)},
              {"attempt", std::to_string(start.attempt.value)},
              {"members", json_list(members_named)},
              {"contributors", json_list(said.names)},
              {"spread", number_or_null(said.deltas.spread)},
              {"cosine", number_or_null(said.deltas.cosine)},
              {"seconds", json_number(static_cast<double>((all_->now - round_.started).count()) / 1e6)}});
  all_->anchor.committed(committed, !contributors.empty());
  clear();
}

void Round::skip(const std::string& reason) {
  const RoundId of = number();
  const bool told = std::exchange(last_skipped_, std::pair(of, reason)) == std::pair(of, reason);
  all_->note(told ? Note::Level::kDebug : Note::Level::kWarning, "no-quorum",
             "no attempt at round " + std::to_string(of.value) + ": " + reason +
                 "; the anchor stays as it is, and the sites train on [round.no-quorum]",
             {{"round", std::to_string(of.value)}});
  all_->period.skipped();
  for (auto& [id, member] : all_->members()) {
    if (member.phase() != MemberPhase::kActive || !member.round.ready_) continue;
    all_->send(member, wire::RoundSkipped{all_->leadership.term(), of, reason});
    member.round.ready_.reset();
  }
  begin_again();
}

// The count of attempts goes on, so that a message for an earlier attempt is never taken for one of a later attempt.
void Round::begin_again() {
  const std::uint32_t attempts = round_.attempts;
  clear();
  if (!mutant(Mutant::kAttemptsCountedAnew)) round_.attempts = attempts;
}

}  // namespace collab::protocol
