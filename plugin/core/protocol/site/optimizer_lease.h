// A copy of this site's optimiser state, lent to sites that join: when one is needed, who has it, when it can go.
//
// Pure. Threads: one caller at a time. Ownership: its own state; never a byte of the copy.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "collab/clock.h"
#include "collab/types.h"
#include "core/wire/messages.h"

namespace collab::protocol {

struct LoanAsked {
  LinkId from;
  wire::FetchOptimizer asked;
};
struct LoanMade {  // the copy that was wanted; no bytes: there is none, because of `reason`
  std::uint64_t bytes = 0;
  Digest digest;
  std::string description;
  std::string reason;
};
struct LoanOver {  // the link is gone
  LinkId link;
};
struct LoanPartSent {  // it left; its place is free
  LinkId link;
};
struct LoanTick {};
using LoanEvent = std::variant<LoanAsked, LoanMade, LoanOver, LoanPartSent, LoanTick>;

struct MakeCopy {};  // between two steps; answered by LoanMade
struct DropCopy {};  // or do not make it any more
struct TellBorrower {
  LinkId to;
  wire::OptimizerState message;
};
struct SendPart {
  LinkId to;
  wire::FetchOptimizer part;
};
struct RefuseBorrower {  // it breaks the rules: close its link
  LinkId link;
  std::string why;
};
using LoanAction = std::variant<MakeCopy, DropCopy, TellBorrower, SendPart, RefuseBorrower>;

class OptimizerLoan {
 public:
  // How long a copy is waited for, and how long it is kept for a borrower of whom nothing is heard.
  explicit OptimizerLoan(Duration limit) : limit_(limit) {}

  [[nodiscard]] std::vector<LoanAction> step(TimePoint now, const LoanEvent& event);
  [[nodiscard]] TimePoint next_deadline() const;
  [[nodiscard]] bool holds_copy() const { return held_.snapshot != 0; }

 private:
  struct Borrower {
    TimePoint heard{};
    std::uint32_t on_their_way = 0;  // parts
  };

  void on(const LoanAsked& event);
  void on(const LoanMade& event);
  void on(const LoanOver& event);
  void on(const LoanPartSent& event);
  void on(const LoanTick&);
  void ask_for_copy(LinkId from);
  void give_back(LinkId link);
  void tell_none(LinkId to, std::string reason);

  Duration limit_;
  std::map<LinkId, Borrower> borrowers_;  // who waits for the copy, or takes it
  bool wanted_ = false;
  wire::OptimizerState held_;  // snapshot 0: no copy is held
  std::uint64_t snapshots_ = 0;
  // Of the step under way.
  TimePoint now_{};
  std::vector<LoanAction> out_;
};

}  // namespace collab::protocol
