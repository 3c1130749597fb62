// Finds how many data connections each link has, unless COLLAB_CONNECTIONS fixes the number. Each end searches for the
// number with the best throughput. The dialler dials the larger of the two numbers, and starts from the last one found.
//
// Threads: the IO thread. Ownership: owns the numbers found, by dialled address. A link owns its search
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

  // The number that a link to this address starts with.
  [[nodiscard]] ConnectionNumber first(const std::string& address) const;
  static void attached(TcpLink& link, const std::string& congestion);
  static void control_attached(const TcpLink& link, Connection& control);
  void tick(TcpLink& link, TimePoint now, bool backlogged);
  void on_want(TcpLink& link, std::uint16_t number);
  // The number of data connections that carry data.
  [[nodiscard]] static std::size_t in_use(const TcpLink& link) {
    return link.number.fixed() ? link.connections.size() : std::size_t{link.number.found()};
  }

 private:
  EngineParts& all_;
  FoundNumbers remembered_;
};

}  // namespace collab::tcp
