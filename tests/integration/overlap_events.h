// What a site's file of events tells of rounds behind the training.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

namespace collab::testing {

struct Behind {
  double stall, overlap;  // seconds
};

inline std::vector<Behind> rounds_behind(const std::string& path) {
  std::ifstream file(path);
  std::vector<Behind> found;
  for (std::string line; std::getline(file, line);) {
    if (line.find("\"exchange_seconds\"") == std::string::npos) continue;
    const auto number = [&](const std::string& name) {
      const std::size_t at = line.find("\"" + name + "\":");
      return at == std::string::npos ? -1 : std::stod(line.substr(at + name.size() + 3));
    };
    const Behind round{number("stall_seconds"), number("overlap_seconds")};
    EXPECT_GE(round.overlap, 0) << line;
    if (round.overlap > 0) found.push_back(round);
  }
  return found;
}

}  // namespace collab::testing
