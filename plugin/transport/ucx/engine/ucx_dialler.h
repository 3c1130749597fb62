// How a link is dialled: its name is looked up, and its addresses are tried in turn, all connections of one at once.
//
// Threads: the progress thread; a look-up on a thread of its own, which answers by the mailbox. Ownership: none; what a
// dial goes through is the link's (UcxDial).
#pragma once

#include <string>

#include "transport/ucx/ucx_link.h"

namespace collab {

struct UcxParts;

class UcxDialler {
 public:
  explicit UcxDialler(UcxParts& all) : all_(all) {}

  void dial(LinkId id, const std::string& address, TimePoint deadline);
  // The next address, if there is one.
  void failed(UcxLink& link, const Status& why);

 private:
  void resolved(LinkId id, Result<SocketAddresses> addresses);
  void dial_next_address(UcxLink& link);

  UcxParts& all_;
};

}  // namespace collab
