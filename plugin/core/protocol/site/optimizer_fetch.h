// The optimizer's state of one member, for a site that joins: which member to ask, what comes, which to ask next.
//
//   none --Find--> linking --linked--> asking --it has a copy--> offered --Take--> taking --every byte--> taken
//    ^ ^              | no link          | it has none, keeps silent                 | the link is lost, other bytes,
//    | |              v                  v                        Find               v nothing comes; taken: unfit
//    | +--no member---+------ next ------+                  <------------------ none, told that it is lost
//    +--End, from every state: the source may drop its copy
//
// One member at a time: a copy costs memory there. The caller reads the description and says whether it wants the
// bytes.
//
// Threads: one caller at a time. Ownership: plain values.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "core/protocol/actions.h"

namespace collab::protocol {

struct SiteParts;

class OptimizerFetch {
 public:
  [[nodiscard]] std::string waiting_text() const;
  [[nodiscard]] TimePoint next_deadline() const;

  void find_source();  // the next member that is left
  void take();         // what was offered
  void end();
  void pursue();  // kLinking: dial, or ask
  void link_lost(LinkId link, const std::string& why);
  void on_state(LinkId link, const wire::OptimizerState& state);
  void on_part(const OptimizerPart& event);
  void on_unfit(const OptimizerUnfit& event);
  void on_tick();

 private:
  friend struct SiteParts;
  friend struct Inside;
  enum class Phase : std::uint8_t {
    kNone,     // nothing is to be fetched, or the caller has to say what is next
    kLinking,  // with a member that is to be asked
    kAsking,   // it makes its copy
    kOffered,  // the caller has the description
    kTaking,   // the bytes come
    kTaken,    // every byte is here, and the caller looks at them
  };
  // Cleared by End, and where it is begun again.
  struct Record {
    Phase phase = Phase::kNone;
    bool begun = false;
    std::vector<SiteId> members{};  // that were not tried yet, the next one last
    SiteId from;
    LinkId link;
    TimePoint until = kNever;    // of this phase; while bytes come, of the next ones
    TimePoint give_up = kNever;  // of it all, however many serve what is no good
    int silent = 0;              // members that did not answer
    wire::OptimizerState offer{};
    std::uint64_t asked = 0;             // bytes from the first
    std::set<std::uint64_t> awaited;     // first byte of each part on its way
    std::vector<std::string> reasons{};  // what each member said, or why it was left
  };

  void begin();
  void ask_next();                               // of the members that are left
  void leave_member(const std::string& reason);  // the one under way
  void ask_for_parts();
  [[nodiscard]] bool is_copied() const;         // by the member under way
  [[nodiscard]] bool waits_for_member() const;  // it is linked with, makes its copy, or sends it

  SiteParts* all_ = nullptr;
  Record fetch_;
};

}  // namespace collab::protocol
