// What a promise waits for: one durable write of a record, beside the period between two rounds.
#include <filesystem>

#include "core/runtime/storage/record_store.h"
#include "tests/bench/bench.h"

int main(int argc, char** argv) {
  using namespace collab;
  constexpr double kPeriodSeconds = 10;
  constexpr std::size_t kWrites = 200;
  const std::string folder = bench::argument(argc, argv, "--folder", ".") + "/record-bench";
  Result<RecordStore> store = RecordStore::open(
      folder, {.run = "bench", .site = "bench", .generation = 1, .rendezvous = "bench", .model = {1, 2}});
  if (!store.ok() || !store->durable()) {
    std::fprintf(stderr, "no record can be kept in %s\n", folder.c_str());
    return 2;
  }
  const std::vector<std::byte> body(1024, std::byte{7});
  std::vector<double> seconds;
  bool ok = true;
  for (std::size_t i = 0; i < kWrites; ++i) {
    seconds.push_back(bench::seconds_of([&] { ok = store->write(body).ok() && ok; }));
  }
  ok = store->remove().ok() && ok;
  std::filesystem::remove_all(folder);
  if (!ok) {
    std::fprintf(stderr, "a record could not be written in %s\n", folder.c_str());
    return 2;
  }
  std::sort(seconds.begin(), seconds.end());
  const double median = bench::median_interval(seconds).median;
  bench::Report report("a record of 1 kB, made durable");
  report.add_figure("median", 1e3 * median, "ms", 0);
  report.add_figure("of 100 the slowest but one", 1e3 * seconds[seconds.size() * 98 / 100], "ms", 0);
  report.add_figure("median, of a period of 10 s", median / kPeriodSeconds, "", 0.01);
  return bench::finish(report, argc, argv);
}
