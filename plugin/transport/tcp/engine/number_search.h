// How many data connections each link has, unless COLLAB_CONNECTIONS says it. Each end searches for the number that
// moves the most. The dialler dials the larger of the two numbers, and begins with the number of the last time.
//
// Threads: the IO thread. Ownership: the numbers found, by the address that was dialled. A link owns its search
// (link/connection_number.h).
#pragma once

#include <string>

#include "transport/tcp/link/found_numbers.h"
#include "transport/tcp/link/link.h"

namespace collab::tcp {

struct EngineParts;

class NumberSearch {
 public:
  explicit NumberSearch(EngineParts& all) : all_(all) {}

  // The number that a link to this address begins with.
  [[nodiscard]] ConnectionNumber first(const std::string& address) const;
  static void attached(TcpLink& link, const std::string& congestion);
  static void control_attached(const TcpLink& link, Connection& control);
  void tick(TcpLink& link, TimePoint now, bool backlogged);
  void on_want(TcpLink& link, std::uint16_t number);
  // The number of data connections that data is divided among.
  [[nodiscard]] static std::size_t in_use(const TcpLink& link) {
    return link.number.fixed() ? link.connections.size() : std::size_t{link.number.found()};
  }

 private:
  EngineParts& all_;
  FoundNumbers remembered_;
};

}  // namespace collab::tcp
