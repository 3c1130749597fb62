// An arena in private memory, of a site of one rank.
//
// Ownership: the caller's.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "core/arena/arena.h"

namespace collab {

inline std::unique_ptr<ArenaWriter> private_arena(std::uint64_t elements, bool outer_state = false) {
  Result<std::unique_ptr<ArenaWriter>> arena = create_arena({.key = {"run", "self", {}},
                                                             .elements = elements,
                                                             .outer_state = outer_state,
                                                             .ranks = 1,
                                                             .shared = false,
                                                             .job = {},
                                                             .places = {}});
  EXPECT_TRUE(arena.ok()) << arena.status().to_string();
  return arena.ok() ? std::move(*arena) : nullptr;
}

}  // namespace collab
