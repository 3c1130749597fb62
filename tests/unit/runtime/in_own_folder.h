// A test with a folder of its own: not there when it begins, and removed with all in it once its members are gone.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>

namespace collab::testing {

class InOwnFolder : public ::testing::Test {
 protected:
  InOwnFolder() {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    std::string name = std::string(info->test_suite_name()) + "-" + info->name();
    std::ranges::replace(name, '/', '-');  // of a test with a parameter: one folder, not one in another
    folder_ = ::testing::TempDir() + "collab-" + std::to_string(::getpid()) + "-" + name;
  }
  ~InOwnFolder() override { std::filesystem::remove_all(folder_); }

  std::string folder_;
};

}  // namespace collab::testing
