#include "tests/sim/mutants.h"

#include <algorithm>

#include "tests/unit/protocol/agreement_world.h"

namespace collab::sim {
namespace {

const MutantRow* planted = nullptr;

constexpr std::string_view kLosses = "crash,coordinator,last-words,store,split,flip-mean,one-way,disk";

constexpr MutantRow kTable[] = {
    {.mutant = Mutant::kPromiseOlderTerm,
     .name = "promise-older-term",
     .breaks = "A site promises a term that is no newer than the one it follows",
     .finder = Finder::kUnit,
     .test = "SiteAcceptor.OneItHasPromisedItFollowsAndNoOlder"},
    {.mutant = Mutant::kWelcomeOfOlderTerm,
     .name = "welcome-of-older-term",
     .breaks = "A site is let in by a leader of an older term than it has promised, and follows that one",
     .finder = Finder::kUnit,
     .test = "SiteAcceptor.OneItHasPromisedItFollowsAndNoOlder"},
    {.mutant = Mutant::kStartAttemptOfOlderTerm,
     .name = "form-of-older-term",
     .breaks = "A site takes part in an attempt of an older term",
     .finder = Finder::kUnit,
     .test = "SiteRound.OlderOrForeignFormsAreIgnored"},
    {.mutant = Mutant::kCommitOfOlderTerm,
     .name = "commit-of-older-term",
     .breaks = "A site applies a commit that comes under an older term",
     .finder = Finder::kNobody,
     .why = "A link carries the messages of one term: a site follows the term of its Welcome, and promises another "
            "only on a new link"},
    {.mutant = Mutant::kMemberLeftOfOlderTerm,
     .name = "parted-of-older-term",
     .breaks = "A site takes an older leader's word about who has left",
     .finder = Finder::kUnit,
     .test = "SiteAcceptor.AnOlderTermsWordOfThatCountsForNothing"},
    {.mutant = Mutant::kAcceptOfOtherTerm,
     .name = "accept-of-other-term",
     .breaks = "A site accepts what is settled under a term that it has not promised",
     .finder = Finder::kUnit,
     .test = "SiteAcceptor.NothingIsAcceptedUnderATermThatWasNotPromised"},
    {.mutant = Mutant::kDoneOfOlderTerm,
     .name = "done-of-older-term",
     .breaks = "A leader counts a Done of an older term",
     .finder = Finder::kUnit,
     .test = "Round.DoneOfAnotherAttemptOrTermDoesNotCount"},
    {.mutant = Mutant::kDoneOfOtherAttempt,
     .name = "done-of-other-attempt",
     .breaks = "A leader counts a Done of another attempt for the one in flight",
     .seed = 100},
    {.mutant = Mutant::kTermNotExceeded,
     .name = "term-not-exceeded",
     .breaks = "A candidate asks for a term that some have promised already",
     .seed = 10},
    {.mutant = Mutant::kNewerTermIgnored,
     .name = "newer-term-ignored",
     .breaks = "A leader does not step down when it hears of a newer term",
     .finder = Finder::kUnit,
     .test = "Lead.ANewerTermEndsItsOwn"},
    {.mutant = Mutant::kTermForgottenAtStart,
     .name = "term-forgotten-at-start",
     .breaks = "A site that starts again does not know what it has promised",
     .seed = 165},
    {.mutant = Mutant::kAttemptsNumberedAlike,
     .name = "attempts-numbered-alike",
     .breaks = "Two terms number their attempts alike",
     .seed = 3},
    {.mutant = Mutant::kAttemptsCountedAnew,
     .name = "attempts-counted-anew",
     .breaks = "After a recess attempts at the same round are counted from one again",
     .seed = 24},
    {.mutant = Mutant::kAttemptNotReported,
     .name = "attempt-not-reported",
     .breaks = "The newest attempt is not in the record",
     .seed = 4},
    {.mutant = Mutant::kSettledNotReported,
     .name = "settled-not-reported",
     .breaks = "What was accepted from a successor is not in the record",
     .finder = Finder::kUnit,
     .test = "SiteAcceptor.ItReportsItsOwnAttemptAndTheSettledOne"},
    {.mutant = Mutant::kProposalsForgottenAtStart,
     .name = "proposals-forgotten-at-start",
     .breaks = "A site that starts again does not know what it has accepted",
     .seed = 10},
    {.mutant = Mutant::kReportOfJoin,
     .name = "report-of-join",
     .breaks = "What a site knows is taken from its Join, not from its promise",
     .finder = Finder::kMissed,
     .why = "A Promise tells more than the Join where Accept came between them on one link"},
    {.mutant = Mutant::kPromiseOfOlderTermCounts,
     .name = "promise-of-older-term-counts",
     .breaks = "A candidate counts a promise of the term before",
     .finder = Finder::kUnit,
     .test = "Election.WhatWasPromisedUnderAnotherTermDoesNotCount"},
    {.mutant = Mutant::kNobodyRulesOut,
     .name = "nobody-rules-out",
     .breaks = "A participant that has not accepted an attempt does not rule it out",
     .finder = Finder::kUnit,
     .test = "Election.OneThatHasNeverHeardOfItRulesItOutToo"},
    {.mutant = Mutant::kUnacceptedIsSettled,
     .name = "unaccepted-is-settled",
     .breaks = "An attempt is settled that nobody who promised has accepted",
     .finder = Finder::kNobody,
     .why = "Participants that promise share a memory with the membership: one that has not accepted is among them and "
            "rules the attempt out"},
    {.mutant = Mutant::kNewestByAttempt,
     .name = "newest-by-attempt",
     .breaks = "Of two attempts the higher number is newer, whatever it was settled under since",
     .finder = Finder::kUnit,
     .test = "Election.TheNewestAttemptCounts"},
    {.mutant = Mutant::kProposalOfOtherRun,
     .name = "proposal-of-other-run",
     .breaks = "Attempts of another run count for the round after the anchor",
     .finder = Finder::kUnit,
     .test = "Election.AttemptsAtOtherRoundsAreOldNews"},
    {.mutant = Mutant::kLaterRunIsNewer,
     .name = "later-run-is-newer",
     .breaks = "Of two swarms the later run stays, though the other has agreed on more rounds",
     .seed = 113,
     .sites = 3,
     .faults = kLosses,
     .candidates = 2,
     .rounds = 8},
    {.mutant = Mutant::kOlderAnchorLeads,
     .name = "older-anchor-leads",
     .breaks = "A candidate leads from an older anchor than some who are here know of",
     .finder = Finder::kUnit,
     .test = "TwoSwarms.OfEquallyManyRoundsTheLaterRun"},
    {.mutant = Mutant::kNextMembershipNotAsked,
     .name = "next-membership-not-asked",
     .breaks = "The membership of the attempt that is settled is not asked",
     .finder = Finder::kUnit,
     .test = "Election.TheMembershipThatTheSettledAttemptNamesIsAskedAsWell"},
    {.mutant = Mutant::kAcceptSkipped,
     .name = "accept-skipped",
     .breaks = "A candidate leads as soon as it has the promises: nothing is accepted",
     .seed = 45},
    {.mutant = Mutant::kAcceptWithoutProposal,
     .name = "accept-without-proposal",
     .breaks = "What is settled is not in the Accept",
     .finder = Finder::kUnit,
     .test = "Election.WhatAPredecessorWasAboutToCommitStaysThoughSomebodyHadNotAcceptedIt"},
    {.mutant = Mutant::kSettledNotKept,
     .name = "settled-not-kept",
     .breaks = "A site says that it has accepted what is settled, and does not remember it",
     .finder = Finder::kUnit,
     .test = "SiteAcceptor.ItReportsItsOwnAttemptAndTheSettledOne"},
    {.mutant = Mutant::kSettledNotCommitted,
     .name = "settled-not-committed",
     .breaks = "What is settled is accepted, and then not committed",
     .seed = 4},
    {.mutant = Mutant::kGivenUpNotSettled,
     .name = "given-up-not-settled",
     .breaks = "An attempt that may have been committed is given up",
     .seed = 4},
    {.mutant = Mutant::kPromiseWithoutRecords,
     .name = "promise-without-records",
     .breaks = "A voter that has lost its record counts as one that has it",
     .seed = 10},
    {.mutant = Mutant::kHalfAccepts,
     .name = "half-accepts",
     .breaks = "Exactly half of a membership is enough to accept",
     .seed = 5},
    {.mutant = Mutant::kLateApplicantCounts,
     .name = "late-applicant-counts",
     .breaks = "A voter that comes without its record during an election is no reason to begin anew",
     .finder = Finder::kUnit,
     .test = "Recovering.OneThatComesDuringAnElectionMakesItBeginAnew"},
    {.mutant = Mutant::kLateMemberCounts,
     .name = "late-member-counts",
     .breaks = "A voter that comes without its record counts under a term that was begun before",
     .finder = Finder::kUnit,
     .test = "Renewal.ItDoesNotCountUnderATermThatBeganBeforeItCame"},
    {.mutant = Mutant::kForgottenCounts,
     .name = "forgotten-counts",
     .breaks = "Sites that are forgotten count as if they were here",
     .finder = Finder::kHistory,
     .seed = 13},
    {.mutant = Mutant::kPromiseBeforeDurable,
     .name = "promise-before-durable",
     .breaks = "A promise is said before it is durable",
     .finder = Finder::kExplorer,
     .schedule = "14D.35r",
     .start = Start::kSplit},
    {.mutant = Mutant::kAcceptedBeforeDurable,
     .name = "accepted-before-durable",
     .breaks = "Accepted is said before it is durable",
     .finder = Finder::kUnit,
     .test = "SiteAcceptor.WhatASuccessorSettledIsAcceptedOnceThatIsDurable"},
    {.mutant = Mutant::kDoneBeforeDurable,
     .name = "done-before-durable",
     .breaks = "Done is said before it is durable",
     .finder = Finder::kExplorer,
     .schedule = "52r",
     .start = Start::kSplit},
    {.mutant = Mutant::kLeaveBeforeDurable,
     .name = "leave-before-durable",
     .breaks = "Leave is said before the end of the memory is durable",
     .finder = Finder::kUnit,
     .test = "SiteAcceptor.WhoLeavesIsNoWitnessAnyMoreBeforeItSaysSo"},
    {.mutant = Mutant::kAcceptorAfterFailedWrite,
     .name = "acceptor-after-failed-write",
     .breaks = "The memory goes on under its name after a write has failed",
     .finder = Finder::kUnit,
     .test = "SiteAcceptor.AWriteNobodyWaitsForMayFailToo"},
    {.mutant = Mutant::kAcceptorAfterLeave,
     .name = "acceptor-after-leave",
     .breaks = "The memory goes on under its name after its site has left",
     .finder = Finder::kUnit,
     .test = "SiteAcceptor.WhoLeavesIsNoWitnessAnyMoreBeforeItSaysSo"},
    {.mutant = Mutant::kAcceptorInOtherRun,
     .name = "acceptor-in-other-run",
     .breaks = "The memory goes on under its name after its site has gone over to another run",
     .finder = Finder::kUnit,
     .test = "Forget.AMinorityGoesOnAsAnotherRunOnceTheMissingAreForgotten"},
    {.mutant = Mutant::kRecordOfOtherRun,
     .name = "record-of-other-run",
     .breaks = "What was accepted in another run stays in the record",
     .finder = Finder::kUnit,
     .test = "SiteAcceptor.InAnotherRunItIsAnotherAcceptor"},
    {.mutant = Mutant::kCommitBeforeAllAreDone,
     .name = "commit-before-all-are-done",
     .breaks = "An attempt is committed when the first participant is done",
     .seed = 1},
    {.mutant = Mutant::kMeansNotCompared,
     .name = "means-not-compared",
     .breaks = "An attempt is committed though its participants have different means",
     .seed = 4},
    {.mutant = Mutant::kStatesNotCompared,
     .name = "states-not-compared",
     .breaks = "A round is formed among sites with different anchors",
     .seed = 4},
    {.mutant = Mutant::kReadyNotCompared,
     .name = "ready-not-compared",
     .breaks = "An attempt goes on though a site has trained on since it said Ready",
     .finder = Finder::kExplorer,
     .schedule = "44r.82r"},
    {.mutant = Mutant::kLostOwnerCounts,
     .name = "lost-owner-counts",
     .breaks = "The delta of a participant that owned slices counts after it was lost",
     .finder = Finder::kExplorer,
     .schedule = "40q",
     .start = Start::kSplit},
    {.mutant = Mutant::kVotersKeptByLeader,
     .name = "voters-kept-by-leader",
     .breaks = "A leader goes on with the membership before, after a commit",
     .seed = 3},
    {.mutant = Mutant::kVotersKeptBySite,
     .name = "voters-kept-by-site",
     .breaks = "A site keeps the membership before, after a commit",
     .seed = 16},
    {.mutant = Mutant::kVotersWithoutAnchor,
     .name = "voters-without-anchor",
     .breaks = "Members that do not hold the anchor yet are in the next membership",
     .finder = Finder::kMissed,
     .why = "Nobody looks at who was added to a membership before it held the anchor"},
    {.mutant = Mutant::kAnchorWithoutMembership,
     .name = "anchor-without-membership",
     .breaks = "The anchor is kept without the membership as of it",
     .finder = Finder::kMissed,
     .why = "The record has the membership too; a site that has lost that alone is too seldom needed"},
    {.mutant = Mutant::kAnchorWithoutTerm,
     .name = "anchor-without-term",
     .breaks = "The membership kept with an anchor does not say which term who knows it has promised",
     .finder = Finder::kUnit,
     .test = "Succession.WhoKnowsAMembershipHasPromisedItsLeadersTerm*"},
    {.mutant = Mutant::kContributedTwice,
     .name = "contributed-twice",
     .breaks = "A site contributes to another attempt before it knows whether an earlier one counted",
     .finder = Finder::kUnit,
     .test = "SiteRound.WhatMayYetBeCommittedIsNotContributedAgain"},
    {.mutant = Mutant::kCountedUnknown,
     .name = "counted-unknown",
     .breaks = "A returner is told that nobody knows whether its contribution counted",
     .finder = Finder::kUnit,
     .test = "CoordinatorJoin.AJoinerIsServedOnceTheRoundIsCommitted"},
    {.mutant = Mutant::kCountedYes,
     .name = "counted-yes",
     .breaks = "A returner is told that its contribution counted",
     .seed = 35},
    {.mutant = Mutant::kCountedNo,
     .name = "counted-no",
     .breaks = "A returner is told that its contribution did not count",
     .seed = 16},
    {.mutant = Mutant::kCountedInOtherRun,
     .name = "counted-in-other-run",
     .breaks = "Whether a contribution counted is looked up under another run",
     .seed = 16},
    {.mutant = Mutant::kHistoryOfOtherRun,
     .name = "history-of-other-run",
     .breaks = "Rounds after the anchor from which another run begins stay in the history",
     .finder = Finder::kUnit,
     .test = "LeadWithoutTheMean.ForAGraceThenTheyGoOnAsAnotherRun"},
    {.mutant = Mutant::kRepeatedMeanNotCompared,
     .name = "repeated-mean-not-compared",
     .breaks = "A commit is told again to a site with another mean",
     .finder = Finder::kUnit,
     .test = "Lead.WhoHasAnotherMeanThanWasCommittedTakesTheAnchor"},
    {.mutant = Mutant::kRepeatedToOtherAttempt,
     .name = "repeated-to-other-attempt",
     .breaks = "A commit is told again to a site that was done with another attempt",
     .seed = 35},
    {.mutant = Mutant::kRepeatedWithoutMean,
     .name = "repeated-without-mean",
     .breaks = "A commit is told again to a site that does not hold the mean any more",
     .seed = 4},
    {.mutant = Mutant::kMemberLeftIgnored,
     .name = "parted-ignored",
     .breaks = "Sites do not note who has left",
     .finder = Finder::kUnit,
     .test = "SiteAcceptor.WhoHasLeftIsMarkedInItsMembership"},
    {.mutant = Mutant::kLeaverIsVoter,
     .name = "leaver-is-voter",
     .breaks = "A leader goes on counting who has left as a voter that is missing",
     .finder = Finder::kUnit,
     .test = "CoordinatorGeneration.OneAheadWaitsUntilTheOthersComeThere"},
    {.mutant = Mutant::kSameRunName,
     .name = "same-run-name",
     .breaks = "Those who go on without a quorum do so under the same run's name",
     .seed = 2},
    {.mutant = Mutant::kPromiseOlderTerm,
     .with = Mutant::kTermNotExceeded,
     .name = "term-promised-twice",
     .breaks = "A candidate asks for a term that is promised, and sites promise it again",
     .finder = Finder::kHistory,
     .seed = 7},
    {.mutant = Mutant::kWelcomeOfOlderTerm,
     .with = Mutant::kNewerTermIgnored,
     .name = "older-term-followed",
     .breaks = "A leader lets sites in that have promised a newer term, and they follow it",
     .seed = 24,
     .sites = 3,
     .faults = kLosses,
     .candidates = 2,
     .rounds = 8},
};

SwarmOptions options_of(const MutantRow& row, std::uint64_t seed) {
  SwarmOptions options;
  options.seed = seed;
  options.sites = row.sites;
  options.candidates = row.candidates;
  options.rounds = row.rounds;
  options.faults = *faults_from_text(std::string(row.faults));
  return options;
}

std::vector<std::string> run_history(std::uint32_t sites, std::uint64_t seed) {
  protocol::AgreementWorld world(seed, sites, 2);
  for (std::uint32_t i = 0; i < 3'000 * sites && world.invariants().broken().empty(); ++i) world.step();
  return world.invariants().broken();
}

std::uint32_t sites_of(const MutantRow& row) { return row.sites == 0 ? 3 : row.sites; }

}  // namespace

std::span<const MutantRow> mutant_table() { return kTable; }

const MutantRow* row_named(std::string_view name) {
  const auto* found = std::ranges::find(kTable, name, &MutantRow::name);
  return found == std::end(kTable) ? nullptr : found;
}

void plant(const MutantRow* row) { planted = row; }

std::vector<std::string> run_row(const MutantRow& row, std::uint64_t seed) {
  if (row.finder == Finder::kExplorer) return replay(row.start, *schedule_from(std::string(row.schedule)));
  if (row.finder == Finder::kHistory) return run_history(sites_of(row), seed);
  return run_swarm(options_of(row, seed)).failures;
}

std::optional<std::string> explore_row(std::uint64_t states, const std::string& kinds) {
  for (const char* start : {"split", "agreed", "joining", "fresh"}) {
    ExploreOptions options;
    options.start = *start_from(start);
    options.kinds = kinds;
    options.most_states = states;
    Explorer explorer(options);
    if (explorer.run()) continue;
    const Explorer::Failure& found = explorer.failures().front();
    return std::string(start) + " " + text_of(found.schedule) + " after " + std::to_string(explorer.states()) +
           " states: " + found.wrong.front();
  }
  return std::nullopt;
}

std::string replay_row(const MutantRow& row, std::uint64_t seed) {
  return "collab_sim_mutants --mutant " + std::string(row.name) + " --seed " + std::to_string(seed);
}

}  // namespace collab::sim

namespace collab::protocol {

bool mutant(Mutant which) {
  return sim::planted != nullptr && (sim::planted->mutant == which || sim::planted->with == which);
}

}  // namespace collab::protocol
