// Bugs planted in the agreement, one at a time, to prove that the tests find them. Only tests define COLLAB_MUTANTS.
// Everywhere else a hook is a constant, and the compiler removes it. The table in tests/sim/mutants.cpp says what each
// mutant breaks and which test finds it.
//
// Hooks are in sources, never in headers: one program links code compiled with hooks and code compiled without.
//
// Threads: one; the planted mutant is a global of the test. Ownership: none.
#pragma once

#include <cstdint>

namespace collab::protocol {

enum class Mutant : std::uint8_t {
  // Terms.
  kPromiseOlderTerm,
  kWelcomeOfOlderTerm,
  kStartAttemptOfOlderTerm,
  kCommitOfOlderTerm,
  kMemberLeftOfOlderTerm,
  kAcceptOfOtherTerm,
  kDoneOfOlderTerm,
  kDoneOfOtherAttempt,
  kDoneOfSkippedAttempt,
  kSourceNotAskedAgain,
  kTermNotExceeded,
  kNewerTermIgnored,
  kTermForgottenAtStart,
  kAttemptsNumberedAlike,
  kAttemptsCountedAnew,
  // Promises, and what a leader concludes from them.
  kAttemptNotReported,
  kSettledNotReported,
  kProposalsForgottenAtStart,
  kReportOfJoin,
  kPromiseOfOlderTermCounts,
  kNobodyRulesOut,
  kUnacceptedIsSettled,
  kNewestByAttempt,
  kProposalOfOtherRun,
  kLaterRunIsNewer,
  kOlderAnchorLeads,
  kNextMembershipNotAsked,
  kNobodyDoubts,
  kNothingIsDisproved,
  kLaterRunOfVoterIgnored,
  kSettledIsPassedOver,
  kFounderStays,
  // Accept, and settled attempts.
  kAcceptSkipped,
  kAcceptWithoutProposal,
  kSettledNotKept,
  kSettledNotCommitted,
  kGivenUpNotSettled,
  // Quorums.
  kPromiseWithoutRecords,
  kHalfAccepts,
  kLateApplicantCounts,
  kLateMemberCounts,
  kForgottenCounts,
  // Memories.
  kPromiseBeforeDurable,
  kAcceptedBeforeDurable,
  kDoneBeforeDurable,
  kLeaveBeforeDurable,
  kAcceptorAfterFailedWrite,
  kAcceptorAfterLeave,
  kAcceptorInOtherRun,
  kRecordOfOtherRun,
  // Rounds.
  kCommitBeforeAllAreDone,
  kMeansNotCompared,
  kStatesNotCompared,
  kReadyNotCompared,
  kStartIgnoredInSilence,
  kStandstillIgnored,
  kLostOwnerCounts,
  kVotersKeptByLeader,
  kVotersKeptBySite,
  kVotersWithoutAnchor,
  kAnchorWithoutMembership,
  kAnchorWithoutTerm,
  // After a loss.
  kContributedTwice,
  kCountedUnknown,
  kCountedYes,
  kCountedNo,
  kCountedInOtherRun,
  kCountedByName,
  kFragmentsCountTogether,
  kFragmentIsTheNext,
  kHeldForEver,
  kHistoryOfOtherRun,
  kRepeatedMeanNotCompared,
  kRepeatedToOtherAttempt,
  kRepeatedWithoutMean,
  // Leaving, and ways out.
  kMemberLeftIgnored,
  kLeaverIsVoter,
  kSameRunName,
  // World collectives.
  kResultStandsAtOnce,
  kHeldIsDecidedAfresh,
  kHeldNotTold,
  kCompletedNotTold,
  kOneAcceptsMembership,
  kReportedMembershipIgnored,
  kGoneIsLetIn,
  kWorldForgottenWithGone,
  kMembershipNotTold,
  kLeaverHasNotPromised,
  kMinorityNotTold,
  kCount,
};

#ifdef COLLAB_MUTANTS
[[nodiscard]] bool mutant(Mutant which);  // whether this mutant is planted
#else
[[nodiscard]] consteval bool mutant(Mutant /*which*/) { return false; }
#endif

}  // namespace collab::protocol
