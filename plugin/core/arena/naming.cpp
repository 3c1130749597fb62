#include "core/arena/naming.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "core/base/digest.h"
#include "core/base/random.h"
#include "core/base/text.h"

namespace collab {

std::vector<ArenaPlace> default_arena_places() {
  const char* const tmpdir = std::getenv("TMPDIR");
  return {{"/dev/shm"}, {tmpdir != nullptr && *tmpdir != '\0' ? tmpdir : "/tmp"}};
}

namespace arena {
namespace {

constexpr std::string_view kSuffix = ".arena";

std::string stem(const ArenaKey& key) {
  return site_prefix(key) + hexadecimal(key.fingerprint.lo ^ key.fingerprint.hi);
}

}  // namespace

std::string name_prefix() { return "collab-" + std::to_string(::geteuid()) + "-"; }

std::string site_prefix(const ArenaKey& key) {
  // The length keeps ("ab", "c") and ("a", "bc") apart.
  const std::string text = std::to_string(key.run.size()) + ":" + key.run + key.site;
  return name_prefix() + hexadecimal(hash64(std::as_bytes(std::span(text)))) + "-";
}

std::string file_name(const ArenaKey& key) { return stem(key) + std::string(kSuffix); }

std::string chance_name(const ArenaKey& key) {
  return stem(key) + "-" + hexadecimal(random_bits()) + std::string(kSuffix);
}

std::vector<std::string> named_for(const ArenaKey& key, const std::vector<ArenaPlace>& places) {
  return list_arenas(places, stem(key));
}

std::vector<std::string> list_arenas(const std::vector<ArenaPlace>& places, const std::string& prefix) {
  std::vector<std::string> paths;
  for (const ArenaPlace& place : places) {
    std::error_code error;
    for (std::filesystem::directory_iterator it(place.folder, error), end; !error && it != end; it.increment(error)) {
      const std::string name = it->path().filename().string();
      if (name.starts_with(prefix) && name.ends_with(kSuffix)) paths.push_back(it->path().string());
    }
  }
  std::sort(paths.begin(), paths.end());
  paths.erase(std::unique(paths.begin(), paths.end()), paths.end());
  return paths;
}

std::string human_bytes(std::uint64_t bytes) {
  std::array<char, 32> text{};
  const double value = static_cast<double>(bytes);
  if (bytes >= (std::uint64_t{1} << 30)) {
    std::snprintf(text.data(), text.size(), "%.2f GiB", value / (1 << 30));
  } else {
    std::snprintf(text.data(), text.size(), "%.2f MiB", value / (1 << 20));
  }
  return text.data();
}

}  // namespace arena
}  // namespace collab
