// Runs a fuzz target without libFuzzer: its seeds, a folder of inputs, and seeded mutations of both. Any compiler,
// the same cases every time; a failure prints the input and the command that runs it alone.
//
//   frame_fuzz_replay CORPUS_DIR MUTATIONS          run all
//   frame_fuzz_replay --one FILE                    run one input
//   frame_fuzz_replay --write-seeds DIR             the seeds as files, for libFuzzer to start from
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "core/base/prng.h"
#include "tests/fuzz/fuzz_target.h"

namespace {

using collab::fuzz::Input;
namespace fs = std::filesystem;

const Input* g_running = nullptr;  // for the crash handler

// Only in a process that is about to die; stdio is good enough.
void on_crash(int signal) {
  std::signal(signal, SIG_DFL);
  if (g_running != nullptr) {
    const std::string path = "fuzz-failure.bin";
    if (std::FILE* file = std::fopen(path.c_str(), "wb"); file != nullptr) {
      std::fwrite(g_running->data(), 1, g_running->size(), file);
      std::fclose(file);
    }
    std::fprintf(stderr, "fuzz: the failing input (%zu bytes) is in %s; run it with --one %s\n", g_running->size(),
                 fs::absolute(path).c_str(), path.c_str());
  }
  std::raise(signal);
}

void run(const Input& input) {
  g_running = &input;
  LLVMFuzzerTestOneInput(input.data(), input.size());
  g_running = nullptr;
}

Input read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return Input((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
}

void mutate(Input& input, collab::Prng& prng) {
  const auto place = [&] { return input.begin() + static_cast<std::ptrdiff_t>(prng.below(input.size() + 1)); };
  const auto byte = [&] { return static_cast<std::uint8_t>(prng.below(256)); };
  constexpr std::uint8_t kEdges[] = {0x00, 0x01, 0x7F, 0x80, 0xFF};
  switch (input.empty() ? 0 : prng.below(6)) {
    case 0: input.insert(place(), byte()); break;
    case 1: input.resize(prng.below(input.size())); break;
    case 2: input[prng.below(input.size())] ^= static_cast<std::uint8_t>(1U << prng.below(8)); break;
    case 3: input[prng.below(input.size())] = kEdges[prng.below(std::size(kEdges))]; break;
    case 4: {  // a run of one edge value: counts and lengths at their extremes
      const std::size_t from = prng.below(input.size());
      const std::size_t count = std::min<std::size_t>(1 + prng.below(8), input.size() - from);
      std::fill_n(input.begin() + static_cast<std::ptrdiff_t>(from), count, kEdges[prng.below(std::size(kEdges))]);
      break;
    }
    default: {  // a part of the input once more
      const std::size_t from = prng.below(input.size());
      const std::size_t count = std::min<std::size_t>(1 + prng.below(32), input.size() - from);
      const Input part(input.begin() + static_cast<std::ptrdiff_t>(from),
                       input.begin() + static_cast<std::ptrdiff_t>(from + count));
      input.insert(place(), part.begin(), part.end());
    }
  }
}

int run_all(const fs::path& corpus, std::uint64_t mutations) {
  std::vector<Input> inputs = collab::fuzz::seed_inputs();
  const std::size_t seeds = inputs.size();
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(corpus)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  for (const fs::path& file : files) inputs.push_back(read_file(file));
  if (inputs.empty()) {
    std::fprintf(stderr, "fuzz: nothing to start from: no seeds, and %s is empty\n", corpus.c_str());
    return 1;
  }
  for (const Input& input : inputs) run(input);
  for (std::uint64_t i = 0; i < mutations; ++i) {
    collab::Prng prng(i);
    Input input = inputs[prng.below(inputs.size())];
    for (std::uint64_t changes = 1 + prng.below(4); changes > 0; --changes) mutate(input, prng);
    run(input);
  }
  std::printf("fuzz: %zu seeds, %zu files, %llu mutations\n", seeds, files.size(),
              static_cast<unsigned long long>(mutations));
  return 0;
}

int write_seeds(const fs::path& folder) {
  fs::create_directories(folder);
  std::size_t number = 0;
  for (const Input& input : collab::fuzz::seed_inputs()) {
    std::ofstream file(folder / ("seed-" + std::to_string(number++)), std::ios::binary);
    file.write(reinterpret_cast<const char*>(input.data()), static_cast<std::streamsize>(input.size()));
    if (!file) {
      std::fprintf(stderr, "fuzz: cannot write to %s\n", folder.c_str());
      return 1;
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) std::signal(signal, on_crash);
  const std::vector<std::string> args(argv + 1, argv + argc);
  if (args.size() == 2 && args[0] == "--one") {
    run(read_file(args[1]));
    return 0;
  }
  if (args.size() == 2 && args[0] == "--write-seeds") return write_seeds(args[1]);
  if (args.size() == 2) return run_all(args[0], std::stoull(args[1]));
  std::fprintf(stderr, "usage: %s CORPUS_DIR MUTATIONS | --one FILE | --write-seeds DIR\n", argv[0]);
  return 2;
}
