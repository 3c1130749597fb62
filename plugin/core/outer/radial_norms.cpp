#include "core/outer/radial_norms.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <utility>

#include "core/base/float_environment.h"
#include "core/base/little_endian.h"
#include "core/outer/outer.h"

namespace collab {
namespace {

void put(std::span<std::byte>& out, double number) {
  store_little(out, std::bit_cast<std::uint64_t>(number));
  out = out.subspan(sizeof number);
}

[[nodiscard]] double number_at(std::span<const std::byte> bytes, std::size_t index) {
  return std::bit_cast<double>(load_little<std::uint64_t>(bytes.subspan(index * sizeof(double))));
}

[[nodiscard]] std::span<const float> within(std::span<const float> vector, std::uint64_t begin, ElementRange part) {
  return vector.subspan(part.begin - begin, part.size());
}

}  // namespace

RadialNorms::RadialNorms(std::span<const ElementRange> tensors, ElementRange range, std::vector<float> shares)
    : shares_(std::move(shares)) {
  for (const ElementRange& tensor : tensors) {
    if (const ElementRange here = common(tensor, range); here.size() > 0) tensors_.push_back(here);
  }
}

template <typename F>
void RadialNorms::each_part(ElementRange chunk, F f) const {
  const auto before = [&](const ElementRange& tensor) { return tensor.end <= chunk.begin; };
  for (auto tensor = std::ranges::partition_point(tensors_, before);
       tensor != tensors_.end() && tensor->begin < chunk.end; ++tensor) {
    f(*tensor, common(*tensor, chunk));
  }
}

std::size_t RadialNorms::size(ElementRange chunk) const {
  std::size_t numbers = 0;
  each_part(chunk, [&](ElementRange tensor, ElementRange part) { numbers += part == tensor ? 2 : shares_.size() + 1; });
  return numbers * sizeof(double);
}

void RadialNorms::measure(ElementRange chunk, std::span<const float> delta, std::vector<double>& squares) const {
  each_part(chunk,
            [&](ElementRange, ElementRange part) { squares.push_back(square_of(within(delta, chunk.begin, part))); });
}

double RadialNorms::mean_of_norms(std::span<const double> squares) const {
  double mean = 0;
  for (std::size_t i = 0; i < shares_.size(); ++i) mean += static_cast<double>(shares_[i]) * std::sqrt(squares[i]);
  return mean;
}

void RadialNorms::write(ElementRange chunk, std::span<const double> squares, std::span<const float> mean,
                        std::span<std::byte> out) const {
  COLLAB_CHECK(out.size() == size(chunk), "the norms of a chunk have a size of their own");
  const FloatEnvironment ieee;
  const std::size_t parts = squares.size() / shares_.size();
  std::size_t number = 0;
  each_part(chunk, [&](ElementRange tensor, ElementRange part) {
    std::vector<double> of_sites;
    for (std::size_t i = 0; i < shares_.size(); ++i) of_sites.push_back(squares[i * parts + number]);
    ++number;
    const double of_mean = square_of(within(mean, chunk.begin, part));
    if (part == tensor) {
      put(out, mean_of_norms(of_sites));
      put(out, std::sqrt(of_mean));
    } else {
      for (const double each : of_sites) put(out, each);
      put(out, of_mean);
    }
  });
}

Status RadialNorms::take(ElementRange chunk, std::span<const std::byte> bytes) {
  if (bytes.size() != size(chunk)) {
    return corrupt("expected " + std::to_string(size(chunk)) + " bytes of norms, got " + std::to_string(bytes.size()));
  }
  OfChunk taken{chunk, {}};
  for (std::size_t i = 0; i < bytes.size() / sizeof(double); ++i) {
    const double number = number_at(bytes, i);
    if (!(std::isfinite(number) && number >= 0)) {
      return corrupt("expected norms, finite and not negative, got " + std::to_string(number));
    }
    taken.numbers.push_back(number);
  }
  taken_[chunk.begin] = std::move(taken);
  return {};
}

std::vector<RadialNorms::Factor> RadialNorms::factors() const {
  const FloatEnvironment ieee;
  std::vector<Factor> factors;
  std::vector<double> sums;  // for the tensor whose parts are being added
  for (const auto& [begin, taken] : taken_) {
    std::span<const double> numbers = taken.numbers;
    each_part(taken.chunk, [&](ElementRange tensor, ElementRange part) {
      if (part == tensor) {
        factors.push_back({tensor, radial_factor(numbers[0], numbers[1], shares_.size())});
        numbers = numbers.subspan(2);
        return;
      }
      if (part.begin == tensor.begin) sums.assign(shares_.size() + 1, 0);
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += numbers[i];
      numbers = numbers.subspan(sums.size());
      if (part.end != tensor.end) return;
      factors.push_back({tensor, radial_factor(mean_of_norms(sums), std::sqrt(sums.back()), shares_.size())});
    });
  }
  return factors;
}

void multiply(std::span<const RadialNorms::Factor> factors, std::uint64_t begin, std::span<float> vector) {
  const ElementRange all{begin, begin + vector.size()};
  const auto before = [&](const RadialNorms::Factor& each) { return each.range.end <= begin; };
  for (auto each = std::ranges::partition_point(factors, before); each != factors.end() && each->range.begin < all.end;
       ++each) {
    const ElementRange part = common(each->range, all);
    multiply(vector.subspan(part.begin - begin, part.size()), each->factor);
  }
}

double norm_with(std::span<const RadialNorms::Factor> factors, std::uint64_t begin, std::span<const float> vector) {
  const FloatEnvironment ieee;
  const ElementRange all{begin, begin + vector.size()};
  double square = 0;
  std::uint64_t at = begin;
  for (const RadialNorms::Factor& each : factors) {
    const ElementRange part = common(each.range, all);
    if (part.size() == 0) continue;
    square += square_of(within(vector, begin, {at, part.begin}));
    const auto factor = static_cast<double>(each.factor);
    square += factor * factor * square_of(within(vector, begin, part));
    at = part.end;
  }
  return std::sqrt(square + square_of(within(vector, begin, {at, all.end})));
}

}  // namespace collab
