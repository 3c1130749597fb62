#include "core/protocol/agreement/acceptor.h"

#include <utility>

#include "core/protocol/agreement/acceptor_id.h"
#include "core/protocol/agreement/attempt.h"
#include "core/protocol/mutants.h"

namespace collab::protocol {
namespace {

constexpr std::size_t kRecentRounds = 4;  // how many commits a report to a leader has

}  // namespace

void Acceptor::begin(const wire::Record& known, std::uint64_t process) {
  id_ = known.acceptor;
  step_ = acceptor_after({}, process).value;
  if (!mutant(Mutant::kTermForgottenAtStart)) term_ = known.promised;
  agreed_ = known.anchor;
  voters_ = known.voters;
  recent_ = known.recent;
  for (const wire::Proposal& proposal : known.proposals) {
    if (!mutant(Mutant::kProposalsForgottenAtStart)) (proposal.settled.value != 0 ? settled_ : attempted_) = proposal;
  }
}

wire::Record Acceptor::record(std::uint32_t generation, Digest fingerprint) const {
  wire::Record record{id_, term_, generation, fingerprint, agreed_, voters_, {}, recent_};
  if (attempted_ && !mutant(Mutant::kAttemptNotReported)) record.proposals.push_back(*attempted_);
  if (settled_ && !mutant(Mutant::kSettledNotReported)) record.proposals.push_back(*settled_);
  return record;
}

// ---- under a term ----------------------------------------------------------------------------------

// After a promise the site follows no older term. It gave up its attempt with an older leader when that leader's link
// was lost. So an attempt that is reported as not accepted will never be accepted.
bool Acceptor::may_promise(TermId term) const { return term > term_ || mutant(Mutant::kPromiseOlderTerm); }

// A leader with enough promises also has its term accepted, along with the attempt that an older leader may have
// committed. Then any quorum that the next leader asks can report it.
bool Acceptor::may_accept(TermId term) const { return term == term_ || mutant(Mutant::kAcceptOfOtherTerm); }

void Acceptor::settle(const wire::Proposal& proposal) {
  if (!mutant(Mutant::kSettledNotKept)) settled_ = proposal;
}

// ---- attempts --------------------------------------------------------------------------------------

bool Acceptor::is_done_with(const wire::Commit& commit) const {
  return is_done() && attempted_->start.run == commit.run && attempted_->start.round == commit.round &&
         attempted_->start.attempt == commit.attempt;
}

void Acceptor::take_part(const wire::StartAttempt& start) {
  voters_are_newer();
  attempted_ = wire::Proposal{start};
}

void Acceptor::accept(const std::vector<Digest>& slices) {
  attempted_->accepted = holds_mean_ = true;
  attempted_->slices = slices;
}

// The coordinator has given up every attempt at this round that it knows, or has decided on one. The site still
// remembers its contribution to the last attempt, because another coordinator may have committed it.
void Acceptor::forget_attempt() {
  if (!attempted_) return;
  attempted_->accepted = holds_mean_ = false;
  attempted_->slices.clear();
}

void Acceptor::drop_attempt() {
  attempted_.reset();
  holds_mean_ = false;
}

void Acceptor::committed(const wire::Past& past) {
  recent_.push_back(past);
  const auto bytes = [this] {
    std::size_t sum = 0;
    for (const wire::Past& each : recent_) {
      for (const std::string& name : each.contributors) sum += name.size();
    }
    return sum;
  };
  while (recent_.size() > kRecentRounds || bytes() > kMaxRecentBytes) recent_.erase(recent_.begin());
}

// ---- agreed values ---------------------------------------------------------------------------------

// Each run is a register of its own. Promises and accepted attempts of the previous run do not count in the new run. A
// memory that changed runs can no longer testify to the previous run.
void Acceptor::agree_on(const wire::Offer& on, std::vector<wire::Voter> list) {
  if (agreed_.run.value != 0 && agreed_.run != on.run && !mutant(Mutant::kRecordOfOtherRun)) {
    if (!mutant(Mutant::kAcceptorInOtherRun)) renounce();
    attempted_.reset();
    settled_.reset();
    recent_.clear();
  }
  agreed_ = on;
  const auto is_past = [this](const std::optional<wire::Proposal>& proposal) {
    return proposal && ((proposal->start.run != agreed_.run && !mutant(Mutant::kRecordOfOtherRun)) ||
                        proposal->start.round <= agreed_.round);
  };
  if (is_past(attempted_)) attempted_.reset();
  if (is_past(settled_)) settled_.reset();
  take_voters(std::move(list));
}

void Acceptor::agree_on_attempt(const wire::Offer& anchor) {
  std::vector<wire::Voter> list = std::exchange(attempted_, std::nullopt)->start.voters;
  agree_on(anchor, mutant(Mutant::kVotersKeptBySite) ? voters_ : std::move(list));
  holds_mean_ = false;
}

// Terms of two registers cannot be compared. Under a new acceptor identity, the site breaks no promise that it gave.
void Acceptor::forget_promises() {
  renounce();
  term_ = {};
}

bool Acceptor::on_member_left(const wire::MemberLeft& left) {
  if ((left.term < term_ && !mutant(Mutant::kMemberLeftOfOlderTerm)) || mutant(Mutant::kMemberLeftIgnored))
    return false;
  member_left_.insert(left.acceptor);
  take_voters(std::move(voters_));
  return true;
}

KnownMembership Acceptor::as_known(const std::vector<wire::Voter>& list) const {
  return {mutant(Mutant::kAnchorWithoutTerm) ? TermId{} : term_, list};
}

void Acceptor::take_voters(std::vector<wire::Voter> list) {
  for (wire::Voter& voter : list) voter.left = voter.left || member_left_.count(voter.acceptor) != 0;
  voters_ = std::move(list);
}

}  // namespace collab::protocol
