// How many data connections each link has, unless COLLAB_CONNECTIONS says it: the number that moves the most is
// searched for at each end, the dialler dials the larger of the two, and begins where it was the last time.
//
// Threads: the IO thread. Ownership: what was found, by the address that was dialled; a link's own search is the
// link's (link/connection_number.h).
#pragma once

#include <string>

#include "transport/tcp/link/found_numbers.h"
#include "transport/tcp/link/link.h"

namespace collab::tcp {

struct EngineParts;

class NumberSearch {
 public:
  explicit NumberSearch(EngineParts& all) : all_(all) {}

  // To begin with, of a link to this address.
  [[nodiscard]] ConnectionNumber first(const std::string& address) const;
  static void attached(TcpLink& link, const std::string& congestion);
  static void control_attached(const TcpLink& link, Connection& control);
  void tick(TcpLink& link, TimePoint now, bool backlogged);
  void on_want(TcpLink& link, std::uint16_t number);
  // Among how many of its data connections data is divided.
  [[nodiscard]] static std::size_t in_use(const TcpLink& link) {
    return link.number.fixed() ? link.connections.size() : std::size_t{link.number.found()};
  }

 private:
  EngineParts& all_;
  FoundNumbers remembered_;
};

}  // namespace collab::tcp
