// What a script waits for at the end of a round behind the training: 25 M parameters moved by the copy, and mixed with
// it, against a memcpy of as many bytes.
#include <cstring>

#include "core/runtime/tensors/host_vector.h"
#include "core/runtime/tensors/parameter_change.h"
#include "tests/bench/bench.h"

int main(int argc, char** argv) {
  using namespace collab;
  constexpr std::size_t kElements = 25'000'000;
  constexpr std::size_t kPairs = 20;
  constexpr double kMost = 1.3;
  HostVector parameters(std::vector<float>(kElements, 1.0F));
  const std::vector<float> copy(kElements, 1e-3F);
  std::vector<float> target(kElements);
  const auto plain = [&] { std::memcpy(target.data(), copy.data(), kElements * sizeof(float)); };
  bool ok = true;
  const auto merges = [&](ParameterChange change, ElementRange range = kWholeVector) {
    return [&, change, range] { ok = merge_copy(parameters, change, copy, {}, range).ok() && ok; };
  };
  bench::Report report("a merge of 25 M parameters");
  report.add("moved, against memcpy", bench::interleave(kPairs, plain, merges(ParameterChange::kMoved)), kMost);
  report.add("mixed, against memcpy", bench::interleave(kPairs, plain, merges(ParameterChange::kMixed)), kMost);
  report.add("taken, against memcpy", bench::interleave(kPairs, plain, merges(ParameterChange::kTakeCopy)), kMost);
  report.add("moved, one of four fragments",
             bench::interleave(kPairs, plain, merges(ParameterChange::kMoved, {kElements / 4, kElements / 2})),
             kMost / 4);
  if (!ok) return 2;
  return bench::finish(report, argc, argv);
}
