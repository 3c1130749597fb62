#include "tools/page/leaderboard.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <sstream>

#include "core/base/text.h"

namespace collab::page {
namespace {

constexpr std::string_view kHeading = "collab leaderboard 1";
constexpr std::size_t kMaxLines = 10'000;  // the most lines to read

Status unfit(const std::string& path, const std::string& what) {
  return invalid_argument("--leaderboard " + path + ": " + what + "; name another file [page.leaderboard-unfit]");
}

std::uint64_t sum(std::uint64_t a, std::uint64_t b) {
  return a + std::min(b, std::numeric_limits<std::uint64_t>::max() - a);
}

}  // namespace

Result<Leaderboard> Leaderboard::open(const std::string& path) {
  Leaderboard board;
  board.path_ = path;
  if (path.empty() || ::access(path.c_str(), F_OK) != 0) return board;
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line) || line != kHeading) {
    return unfit(path, "expected a file that begins with '" + std::string(kHeading) + "', or none");
  }
  for (std::size_t number = 2; std::getline(file, line); ++number) {
    std::istringstream words(line);
    Contributed of;
    if (number > kMaxLines || !(words >> of.samples >> of.rounds) || words.get() != ' ' ||
        !std::getline(words, of.name) || of.name.empty() || !is_printable(of.name)) {
      return unfit(path, "line " + std::to_string(number) + ": expected SAMPLES ROUNDS NAME");
    }
    board.before_[of.name] = of;
  }
  return board;
}

const std::vector<Contributed>& Leaderboard::with(const std::vector<Contributed>& counted) {
  if (counted == counted_ && !all_.empty()) return all_;
  changed_ = changed_ || counted != counted_;
  counted_ = counted;
  std::map<std::string, Contributed> all = before_;
  for (const Contributed& of : counted) {
    Contributed& total = all[of.name];
    total = {of.name, sum(total.samples, of.samples), sum(total.rounds, of.rounds)};
  }
  all_.clear();
  for (const auto& [name, of] : all) all_.push_back(of);
  std::ranges::stable_sort(all_, std::ranges::greater(), &Contributed::samples);
  if (all_.size() > kMaxNames) all_.resize(kMaxNames);
  return all_;
}

Status Leaderboard::save() {
  if (path_.empty() || !changed_) return {};
  std::string text = std::string(kHeading) + "\n";
  for (const Contributed& of : all_) {
    text += std::to_string(of.samples) + " " + std::to_string(of.rounds) + " " + of.name + "\n";
  }
  const std::string fresh = path_ + ".new";
  const int file = ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
  const int not_open = errno;
  errno = ENOSPC;  // for a partial write, which does not set errno
  const bool written = file >= 0 && ::write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
                       ::fsync(file) == 0 && ::rename(fresh.c_str(), path_.c_str()) == 0;
  const int why = file < 0 ? not_open : errno;
  if (file >= 0) ::close(file);
  if (!written) {
    return unavailable("--leaderboard " + path_ + " cannot be written: " + std::strerror(why) +
                       " [page.leaderboard-not-written]");
  }
  changed_ = false;
  return {};
}

}  // namespace collab::page
