#include "transport/tcp/tls/tcp_keys.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/log.h"
#include "transport/tcp/tls/tcp_token.h"

namespace collab::tcp {
namespace {

constexpr Duration kLookAgain = std::chrono::seconds(1);
constexpr Duration kLookLimit = std::chrono::milliseconds(200);
constexpr std::string_view kSpace = " \t\r\v\f";
constexpr std::size_t kLongestToken = 4096;
constexpr std::size_t kMostTokens = 2;

// Once for each process and file.
void warn_if_exposed(const std::string& file) {
  struct stat info {};
  if (::stat(file.c_str(), &info) != 0 || !S_ISREG(info.st_mode) || (info.st_mode & 077) == 0) return;
  static std::mutex mutex;
  static auto* const warned = new std::set<std::string>;
  const std::lock_guard lock(mutex);
  if (!warned->insert(file).second) return;
  std::array<char, 8> mode{};
  std::snprintf(mode.data(), mode.size(), "%04o", static_cast<unsigned>(info.st_mode & 07777));
  log_warning("COLLAB_TOKEN_FILE: others on this machine can read " + file + " or change it (mode " + mode.data() +
              "), and with it join the swarm: chmod 600 " + file + " [token.readable]");
}

std::string trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return std::string(text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin));
}

Result<std::string> text_of(const std::string& path) {
  const auto unreadable = [&] {
    return invalid_argument("COLLAB_TOKEN_FILE: " + path + " cannot be read: " + std::strerror(errno) +
                            " [token.unreadable]");
  };
  std::ifstream file(path, std::ios::binary);
  if (!file) return unreadable();
  std::string text(kMostTokens * (kLongestToken + 2) + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) return unreadable();
  text.resize(static_cast<std::size_t>(file.gcount()));
  warn_if_exposed(path);
  return text;
}

Status check_line(const std::string& what, const std::string& token) {
  if (token.size() > kLongestToken) return invalid_argument(what + " is too long for a token [token.too-long]");
  if (token.find_first_of(kSpace) != std::string::npos) {
    return invalid_argument(
        what + " holds more than one word in a line; expected one token, as `collab token` makes it [token.words]");
  }
  if (token.size() >= kShortestToken) return {};
  return invalid_argument(what + " holds " + std::to_string(token.size()) +
                          " characters; expected a token as `collab token` makes it: one shorter than " +
                          std::to_string(kShortestToken) + " could be guessed [token.short]");
}

Result<Tokens> tokens_in(const std::string& path) {
  const Result<std::string> text = text_of(path);
  if (!text.ok()) return text.status();
  const std::string what = "COLLAB_TOKEN_FILE: " + path;
  std::vector<std::string> tokens;
  std::istringstream lines(*text);
  for (std::string line; std::getline(lines, line);) {
    std::string token = trimmed(line);
    if (token.empty()) continue;
    COLLAB_RETURN_IF_ERROR(check_line(what, token));
    tokens.push_back(std::move(token));
  }
  if (tokens.empty()) return invalid_argument(what + " is empty; make a token with `collab token` [token.empty]");
  if (tokens.size() > kMostTokens) {
    return invalid_argument(what + " holds " + std::to_string(tokens.size()) +
                            " tokens; expected one, or two while the first replaces the second [token.too-many]");
  }
  tokens.resize(kMostTokens);
  return Tokens{std::move(tokens[0]), std::move(tokens[1])};
}

// Null: in the clear.
Result<std::shared_ptr<const TlsContext>> make_context(const TcpOptions& options) {
  Result<Tokens> tokens = read_tokens(options);
  if (!tokens.ok()) return tokens.status();
  const bool files = !options.tls_cert.empty() || !options.tls_key.empty() || !options.tls_ca.empty();
  if (files && !tokens->spoken.empty()) {
    return invalid_argument(
        "COLLAB_TOKEN and COLLAB_TLS_CERT are both set; use the token or certificates [token.and-certificate]");
  }
  if (!files && tokens->spoken.empty()) return std::shared_ptr<const TlsContext>();
  TlsSettings settings{std::move(tokens->spoken), options.tls_cert, options.tls_key, options.tls_ca};
  settings.older_token = std::move(tokens->older);
  return TlsContext::make(settings);
}

}  // namespace

Result<Tokens> read_tokens(const TcpOptions& options) {
  if (options.token_file.empty()) return Tokens{trimmed(options.token), ""};
  if (!options.token.empty()) {
    return invalid_argument("COLLAB_TOKEN and COLLAB_TOKEN_FILE are both set; set one of them [token.and-file]");
  }
  return tokens_in(options.token_file);
}

Result<std::shared_ptr<TlsKeys>> TlsKeys::make(const TcpOptions& options) {
  std::shared_ptr<TlsKeys> keys(new TlsKeys);
  keys->options_.token_file = options.token_file;
  keys->looked_ = keys->clock_.now();
  (void)keys->file_changed();  // before the file is read, so that a later write counts as a change
  Result<std::shared_ptr<const TlsContext>> context = make_context(options);
  if (!context.ok()) return context.status();
  if (*context == nullptr) return std::shared_ptr<TlsKeys>();
  keys->context_ = std::move(*context);
  return keys;
}

std::shared_ptr<const TlsContext> TlsKeys::current() {
  std::unique_lock lock(mutex_);
  if (options_.token_file.empty() || looking_ || clock_.now() < looked_ + kLookAgain) return context_;
  looked_ = clock_.now();
  looking_ = look_in_background();
  looked_at_.wait_for(lock, kLookLimit, [this] { return !looking_; });
  return context_;
}

bool TlsKeys::look_in_background() {
  try {
    std::thread([self = shared_from_this()] { self->look(); }).detach();
    return true;
  } catch (const std::system_error&) {
    return false;  // no thread to be had; the next try is in a second
  }
}

void TlsKeys::look() {
  std::shared_ptr<const TlsContext> fresh = read_if_changed();
  const std::lock_guard lock(mutex_);
  if (fresh != nullptr) context_ = std::move(fresh);
  looking_ = false;
  looked_at_.notify_all();
}

std::shared_ptr<const TlsContext> TlsKeys::read_if_changed() {
  if (!file_changed()) return nullptr;
  Result<std::shared_ptr<const TlsContext>> context = make_context(options_);
  if (context.ok()) {
    log_info("COLLAB_TOKEN_FILE: " + options_.token_file + " has changed; connections now use its new contents");
    return *std::move(context);
  }
  log_warning("COLLAB_TOKEN_FILE has changed, but its new contents cannot be used, so the old ones still apply: " +
              context.status().message() + " [token.file-unfit]");
  return nullptr;
}

bool TlsKeys::file_changed() {
  struct stat now {};
  if (::stat(options_.token_file.c_str(), &now) != 0) now = {};  // reading the file will report the error
  const auto same = [&](const struct stat& before) {
    return now.st_mtim.tv_sec == before.st_mtim.tv_sec && now.st_mtim.tv_nsec == before.st_mtim.tv_nsec &&
           now.st_ino == before.st_ino && now.st_size == before.st_size;
  };
  return !same(std::exchange(seen_, now));
}

}  // namespace collab::tcp
