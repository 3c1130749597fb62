// The knobs in force from these variables and options.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "collab/config.h"

namespace collab {

using Pairs = std::vector<std::pair<std::string, std::string>>;

inline Config config_of(const Pairs& environment, const Pairs& options = {}) {
  auto loaded = load_config(environment, options);
  EXPECT_TRUE(loaded.ok()) << loaded.status().message();
  return loaded.ok() ? loaded->config : Config{};
}

}  // namespace collab
