// Parameters that are plain float32 in this process' own memory.
//
// Threads: one caller at a time. Ownership: its values.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "collab/session.h"

namespace collab {

class HostVector final : public ParameterVector {
 public:
  explicit HostVector(std::vector<float> values) : values_(std::move(values)) {}
  [[nodiscard]] std::uint64_t size() const override { return values_.size(); }
  [[nodiscard]] std::span<float> view(std::uint64_t offset, std::uint64_t count) override {
    return std::span(values_).subspan(offset, count);
  }
  Status read(std::uint64_t offset, std::span<float> out) override {
    std::copy_n(values_.begin() + static_cast<std::ptrdiff_t>(offset), out.size(), out.begin());
    return {};
  }
  Status write(std::uint64_t offset, std::span<const float> in) override {
    std::copy(in.begin(), in.end(), values_.begin() + static_cast<std::ptrdiff_t>(offset));
    return {};
  }
  std::vector<float>& values() { return values_; }

 private:
  std::vector<float> values_;
};

}  // namespace collab
