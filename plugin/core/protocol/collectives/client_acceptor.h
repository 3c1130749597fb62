// This rank as an acceptor of its world's chain of memberships (hub_membership.h). A membership says which ranks are
// gone.
//
// Threads: one caller at a time. Ownership: plain values.
#pragma once

#include "core/wire/messages.h"

namespace collab::protocol {

class ClientAcceptor {
 public:
  [[nodiscard]] bool follows(const wire::Ballot& ballot) const { return ballot == promised_; }
  void remember(wire::Enter& enter) const {
    enter.promised = promised_;
    enter.chosen = chosen_;
    enter.accepted_under = accepted_under_;
    enter.accepted = accepted_;
  }

  [[nodiscard]] bool promise(const wire::Ballot& ballot) {  // false: it has promised a newer ballot
    if (ballot < promised_) return false;
    promised_ = ballot;
    return true;
  }
  [[nodiscard]] bool accept(const wire::AcceptEpoch& message) {
    if (message.ballot != promised_ || message.epoch.number != chosen_.number + 1) return false;
    accepted_under_ = message.ballot;
    accepted_ = message.epoch;
    return true;
  }
  void learn(const wire::Epoch& epoch) {
    if (epoch.number <= chosen_.number) return;
    chosen_ = epoch;
    if (accepted_.number > chosen_.number) return;
    accepted_under_ = {};
    accepted_ = {};
  }

 private:
  wire::Ballot promised_;
  wire::Epoch chosen_;
  wire::Ballot accepted_under_;  // term 0: nothing was accepted after `chosen_`
  wire::Epoch accepted_;
};

}  // namespace collab::protocol
