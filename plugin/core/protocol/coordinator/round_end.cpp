// The end of an attempt: what follows from `Done`.
//
//   Done of another term, attempt or site                    ignored
//   Done with another number of digests than slices          its sender is expelled [round.digest-count]
//   Done, for the first time or again                        kept; until all participants that are here have said it,
//                                                            nothing follows
//   all are done, every digest alike                         commit(): `Commit` to them; the anchor is the next one
//   all are done, a site has another digest of a slice       the attempt is given up, nothing of its exchange stands,
//                                                            and another one is formed
//
// Which digest is right, and what becomes of a site with another one: digest_check.h.
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
  const std::set<SiteId> wrong = all_->digests.sites_with_wrong_mean(*round_.attempt);
  if (wrong.empty()) return commit();
  const wire::StartAttempt attempt = *round_.attempt;
  discard_exchange();
  all_->changed = true;
  all_->digests.repair_means(attempt, wrong);
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
