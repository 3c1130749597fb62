// Dials a link: looks up its name and tries its addresses in turn, each with all connections at once.
//
// Threads: the progress thread. A look-up has its own thread, which answers through the mailbox. Ownership: none; the
// state of a dial belongs to the link (UcxDial).
#pragma once

#include <string>

#include "transport/ucx/ucx_link.h"

namespace collab {

struct UcxParts;

class UcxDialler {
 public:
  explicit UcxDialler(UcxParts& all) : all_(all) {}

  void dial(LinkId id, const std::string& address, TimePoint deadline);
  // Tries the next address, if there is one.
  void failed(UcxLink& link, const Status& why);

 private:
  void resolved(LinkId id, Result<SocketAddresses> addresses);
  void dial_next_address(UcxLink& link);

  UcxParts& all_;
};

}  // namespace collab
