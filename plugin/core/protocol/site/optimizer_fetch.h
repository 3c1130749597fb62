// Fetches one member's optimizer state for a site that joins: which member to ask, what it sends, which is next.
//
//   none --Find--> linking --linked--> asking --it has a copy--> offered --Take--> taking --every byte--> taken
//    ^ ^              | no link          | it has none, keeps silent                 | the link is lost, other bytes,
//    | |              v                  v                        Find               v nothing comes; taken: unfit
//    | +--no member---+------ next ------+                  <------------------ none, told that it is lost
//    +--End, from every state: the source may drop its copy
//
// One member is asked at a time, as a copy costs memory there. The caller reads the description and says whether it
// wants the bytes.
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
  void take();         // takes what was offered
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
    kNone,     // nothing is to be fetched, or the caller decides what is next
    kLinking,  // to the member that is to be asked
    kAsking,   // the member makes its copy
    kOffered,  // the caller has the description
    kTaking,   // the bytes come
    kTaken,    // every byte is here, and the caller looks at them
  };
  // Cleared by End, and when a fetch begins again.
  struct Record {
    Phase phase = Phase::kNone;
    bool begun = false;
    std::vector<SiteId> members{};  // that were not tried yet, the next one last
    SiteId from;
    LinkId link;
    TimePoint until = kNever;    // limit of this phase; while bytes come, for the next ones
    TimePoint give_up = kNever;  // limit of the whole fetch, over all members
    int silent = 0;              // members that did not answer
    wire::OptimizerState offer{};
    std::uint64_t asked = 0;             // how many bytes, from the first
    std::set<std::uint64_t> awaited;     // first byte of each part on its way
    std::vector<std::string> reasons{};  // what each member said, or why it was left
  };

  void begin();
  void ask_next();                               // the next of the members that are left
  void leave_member(const std::string& reason);  // the current member
  void ask_for_parts();
  [[nodiscard]] bool is_copied() const;         // the current member has made its copy
  [[nodiscard]] bool waits_for_member() const;  // to link, to make its copy, or to send it

  SiteParts* all_ = nullptr;
  Record fetch_;
};

}  // namespace collab::protocol
