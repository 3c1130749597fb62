// A rank's part in a broadcast, the n-th call and step of its group.
#pragma once

#include <cstdint>

#include "core/wire/messages.h"

namespace collab::testing {

inline wire::Contribute in_broadcast(GroupId group, std::uint64_t number, bool wants) {
  wire::Contribute contribute;
  contribute.group = group;
  contribute.step = number;
  contribute.call = number;
  contribute.operation = "broadcast";
  contribute.wants = wants;
  return contribute;
}

}  // namespace collab::testing
