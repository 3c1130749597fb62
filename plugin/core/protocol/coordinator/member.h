// A site that was let in, and which part may change which of its fields. For MemberContact, MemberAnchor and
// MemberRound the compiler enforces this (private fields, and one friend that writes; the simulator's Inside only
// reads). For the rest of Member it is a convention:
//
//   part of a member                                  changed only by
//   whether it is a member                            Membership: add(), remove() (membership.cpp)
//   Member: name, link, address, ...                  no part: it stays as Membership::add() got it
//   Member: the Join it came with                     no part: Membership::add() drops what is no longer needed
//   MemberContact: heard, suspect, unverified         Membership
//   MemberAnchor: its state (`phase`), sources, ...   AnchorInstaller (anchor_installer.cpp)
//   MemberRound: Ready, Done, rates, times            Round (round.cpp, round_attempt.cpp, round_end.cpp)
//
// Other parts ask one of these three. The table lists a member's states, and the functions of AnchorInstaller that
// change them:
//
//   state       what happens                                                        then
//   -           Join is let in (Membership::add)                                    joined
//   joined      it trained when it joined, with another anchor (welcome); or it     stale
//               missed a commit and is sent it (repeat_commit)
//   joined      InstallAnchor is sent (offer, install)                              installing
//   installing  AnchorInstalled: it holds the anchor (on_installed)                 active
//   installing  its last source is lost (lost), its digest differs (on_installed),  joined
//               or a newer anchor is agreed on (left_out)
//   installing  it holds another anchor, as its parameters move (installed_another) stale
//   installing  it holds another than it brought, and others hold the swarm's       joined
//               (installed_another)
//   active      a round is committed without it (left_out)                          stale; joined if it is ready by now
//   active      its anchor differs from the others' (install_again)                 installing; joined without a source
//   active      a joiner whose only source it was is gone: it is asked again        installing
//               (went_without)
//   installing  the swarm's digest turns out to be another (digest_changed)         installing; joined without a source
//   stale       Ready: its parameters stand still (wait)                            joined
//   stale       it was sent the commit, and has applied it (on_installed)           active
//   joined,     AnchorInstalled with the swarm's digest: it held it, or lost        active
//   stale       its last source when it had all of it (on_installed)
//   any         another anchor is chosen (all_wait)                                 joined
//
// In every state, a Leave, a closed link, silence longer than the grace, or a broken rule removes the member.
//
// Threads: one caller at a time. Ownership: plain values.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/protocol/agreement/agreed_membership.h"
#include "core/protocol/formatting.h"
#include "core/wire/messages.h"

namespace collab::protocol {

enum class MemberPhase : std::uint8_t {
  kJoined,      // waits until the swarm has an anchor whose digest is known
  kInstalling,  // was offered the anchor; has not reported it in place yet
  kActive,      // holds the anchor; rounds wait for it
  kStale,       // a round was committed without it, and it trains on; it takes the anchor at its next trigger
};

// Whether the member is heard, and can be dialled.
class MemberContact {
 public:
  explicit MemberContact(TimePoint now) : last_heard_(now) {}
  [[nodiscard]] TimePoint last_heard() const { return last_heard_; }
  [[nodiscard]] bool suspect() const { return suspect_; }
  // The coordinator did not get through to its address; other sites may.
  [[nodiscard]] bool unverified() const { return unverified_; }

 private:
  friend class Membership;
  friend struct Inside;
  TimePoint last_heard_;
  bool suspect_ = false;
  bool unverified_ = false;
};

// How far the member is with the swarm's anchor.
class MemberAnchor {
 public:
  MemberAnchor(AcceptorId acceptor, RunId run) : acceptor_(acceptor), run_(run) {}
  [[nodiscard]] MemberPhase phase() const { return phase_; }
  // The member is to take the anchor, or is taking it.
  [[nodiscard]] bool comes() const { return phase_ == MemberPhase::kJoined || phase_ == MemberPhase::kInstalling; }
  [[nodiscard]] TimePoint progressed_at() const { return progressed_at_; }
  [[nodiscard]] bool has_progressed() const { return progress_ > 0; }
  [[nodiscard]] AcceptorId acceptor() const { return acceptor_; }
  [[nodiscard]] RunId run() const { return run_; }
  [[nodiscard]] bool recommitted() const { return recommitted_; }
  [[nodiscard]] const std::optional<wire::AnchorInstalled>& holds() const { return holds_; }
  [[nodiscard]] const std::optional<wire::Offer>& renamed_from() const { return renamed_from_; }

 private:
  friend class AnchorInstaller;
  friend struct Inside;
  MemberPhase phase_ = MemberPhase::kJoined;
  std::vector<SiteId> sources_;                 // kInstalling: where it was told to take the anchor from
  TimePoint installing_since_ = kNever;         // kInstalling
  std::uint64_t progress_ = 0;                  // of its fetch, as last reported
  TimePoint progressed_at_{};                   // when progress_ grew last, or an anchor was offered to it
  bool overtaken_ = false;                      // a newer anchor exists than the one offered to it
  TimePoint unreachable_since_ = kNever;        // kJoined: neither it nor any holder of the anchor can dial the other
  AcceptorId acceptor_;                         // the site's acceptor in run_
  RunId run_;                                   // the run that acceptor_ is of; 0: none yet
  bool foretold_ = false;                       // acceptor_ was assigned, but not confirmed by the site yet
  bool greeted_ = false;                        // its 'join' event was reported
  bool told_not_used_ = false;                  // it was told that the state it had loaded is not used
  bool recommitted_ = false;                    // it was sent a commit that it had missed
  std::optional<wire::AnchorInstalled> holds_;  // the anchor that it last reported in place
  std::optional<wire::Offer> renamed_from_;     // its own name for an anchor that it should hold under the swarm's name
};

// What the member has reported for the next round.
class MemberRound {
 public:
  [[nodiscard]] const std::optional<wire::Ready>& ready() const { return ready_; }
  [[nodiscard]] std::uint64_t samples() const { return ready_ ? ready_->samples : 0; }
  [[nodiscard]] const std::optional<std::vector<Digest>>& done() const { return done_; }  // of the attempt in flight
  // The last measurements. A rate, a time or a loss that it could not measure lately keeps its earlier value.
  [[nodiscard]] const wire::Measured& measured() const { return measured_; }

 private:
  friend class Round;
  friend struct Inside;
  std::optional<wire::Ready> ready_;
  AttemptId since_{};  // as in wire::Participant; 0: from its next attempt on
  std::optional<std::vector<Digest>> done_;
  wire::Measured measured_;
};

struct Member {
  const SiteId id;
  const LinkId link;
  const std::string name;
  const std::string address;
  const bool helper;           // trains nothing; another member's Ready begins a round, which then needs it too
  const bool early;            // it was here before the term began
  const std::uint64_t ticket;  // the order of admission
  const wire::Join join;       // as sent, without settings, model, and the record's lists
  MemberContact contact;
  MemberAnchor anchor;
  MemberRound round{};

  [[nodiscard]] MemberPhase phase() const { return anchor.phase(); }
  // As far as the coordinator knows. Also true while it still tries the address.
  [[nodiscard]] bool dialable() const { return !address.empty() && !contact.unverified(); }
  // The anchor it holds, or joined with.
  [[nodiscard]] wire::Offer brought() const {
    const auto& holds = anchor.holds();
    return holds ? wire::Offer{holds->run, holds->round, holds->digest} : join.offer;
  }
};

using Members = std::map<SiteId, Member>;

[[nodiscard]] inline wire::Voter voter_of(const Member& member) {
  return {member.id, member.name, member.anchor.acceptor()};
}
[[nodiscard]] inline Presence presence_of(const wire::Voter& voter, const Member& member) {
  return AgreedMembership::presence_of(voter, member.anchor.acceptor(), member.early);
}

}  // namespace collab::protocol
