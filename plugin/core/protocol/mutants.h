// Bugs planted in the agreement, one at a time, so that tests can show that they are found. Only tests define
// COLLAB_MUTANTS: everywhere else a hook is a constant, and nothing of it is compiled. The table of what each one
// breaks and what finds it is tests/sim/mutants.cpp.
//
// Hooks are in sources and never in headers: what is compiled with them and what is not is linked into one program.
//
// Threads: one; the planted one is a global of the test. Ownership: none.
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
  // Promises, and what is taken from them.
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
  // Accept, and what is settled.
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
[[nodiscard]] bool mutant(Mutant which);  // whether it is the one that is planted
#else
[[nodiscard]] consteval bool mutant(Mutant /*which*/) { return false; }
#endif

}  // namespace collab::protocol
