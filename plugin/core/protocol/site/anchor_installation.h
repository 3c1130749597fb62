// Puts the swarm's anchor in place: keeps it if it is here already, else fetches it from members that hold it.
//
//   none --InstallAnchor--> keeps ----------in place----> done: this site is active
//                           |   ^                          ^
//                other bytes|   +--it is here already      | in place
//                           v                              |
//                        receives --a source is lost or wrong: go on with the others; all are: once more
//
//   Both end if the coordinator is lost, or another anchor must be put in place. A site that cannot be dialled, and
//   that reaches no holder of the anchor, gives up after the grace.
//
// Threads: one caller at a time. Ownership: plain values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "core/protocol/actions.h"

namespace collab::protocol {

struct SiteParts;

class AnchorInstallation {
 public:
  [[nodiscard]] std::string waiting_text(TimePoint at) const;
  [[nodiscard]] TimePoint next_deadline() const;

  void on_install_anchor(const wire::InstallAnchor& install);
  void on_in_place(const AnchorInPlace& event);
  void on_source_wrong(const AnchorSourceWrong& event);
  void on_anchor_moved(SiteId source, const wire::AnchorMoved& moved);
  void link_lost(SiteId source, LinkId link);
  void on_tick();
  void pursue();  // dials sources and fetches from them
  void drop();    // an anchor that no part expects any more must not come into place

 private:
  friend struct SiteParts;
  friend struct Inside;
  struct Record {
    wire::InstallAnchor install;
    bool keeps = false;                    // nothing to fetch
    std::map<SiteId, LinkId> over;         // the sources in use, and their links
    std::set<SiteId> useless;              // sources that sent other bytes, or hold another anchor by now
    bool overtaken = false;                // a source holds another anchor by now
    int tries = 0;                         // failed transfers in a row, without progress in between
    std::uint64_t here = 0;                // elements in place, as last heard
    std::uint64_t here_then = 0;           // the same at the last try
    TimePoint unreachable_since = kNever;  // no link to any source, or to a site that may yet become one
    TimePoint give_up = kNever;
  };

  [[nodiscard]] bool names_us(const wire::InstallAnchor& install) const;
  [[nodiscard]] bool receives(const wire::InstallAnchor& install) const;  // whether that very anchor is under way
  [[nodiscard]] bool is_held(const Digest& digest) const;
  [[nodiscard]] std::string sources_text() const;
  void begin(const wire::InstallAnchor& install);
  void receive();
  void give_up_source(SiteId source);
  void settle_sources();                      // goes on with the sources that are left
  void begin_again(const std::string& what);  // the transfer, from all sources
  void done();
  // ---- where this site cannot be dialled
  [[nodiscard]] bool reaches() const;  // linked with a source of the anchor, or may be before long
  [[nodiscard]] TimePoint unreachable_until() const;
  [[nodiscard]] std::string unreachable_text(TimePoint at) const;
  void unreachable(const std::string& what);
  void on_unreachable_tick();

  SiteParts* all_ = nullptr;
  std::optional<Record> taking_;
  bool overwritten_ = false;  // a fetch may have overwritten part of the anchor that this site held
};

}  // namespace collab::protocol
