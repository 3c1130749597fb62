#include "transport/ucx/ucx_api.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#ifndef COLLAB_UCX_BUILD_LIBRARY
#define COLLAB_UCX_BUILD_LIBRARY ""
#endif

namespace collab {
namespace {

constexpr unsigned kOldestMinor = 13;  // the oldest UCX 1.x that supports all that we use

// Settings that keep UCX from disturbing the user's process, choose where its messages go, and suit links between
// sites.
constexpr std::array<std::pair<const char*, const char*>, 12> kGuestSettings{{
    {"UCX_ERROR_SIGNALS", ""},  // no handlers for SIGSEGV and its kin
    {"UCX_HANDLE_ERRORS", "none"},
    {"UCX_DEBUG_SIGNO", "0"},       // nor for SIGHUP
    {"UCX_MEM_EVENTS", "n"},        // no hooks in malloc, mmap and munmap
    {"UCX_VFS_ENABLE", "n"},        // no thread that serves a file system
    {"UCX_LOG_FILE", "stderr"},     // the user's stdout stays the user's
    {"UCX_TCP_CM_REUSEADDR", "y"},  // a port can be listened on again at once after a restart
    // Lets links that must detect a failed peer use shared memory: their TCP connection detects it.
    {"UCX_MM_ERROR_HANDLING", "y"},
    // Long segments save system calls. They replace TCP's one-sided writes: UCX 1.13 aborts the process if an endpoint
    // closes during such a write.
    {"UCX_TCP_TX_SEG_SIZE", "256K"},
    {"UCX_TCP_RX_SEG_SIZE", "256K"},
    {"UCX_TCP_PUT_ENABLE", "n"},
    {"UCX_WARN_UNUSED_ENV_VARS", "n"},  // some versions of UCX do not know every setting above
}};

std::mutex& environment_mutex() {
  static std::mutex mutex;
  return mutex;
}

struct Overlay {
  std::vector<std::string> added;
  std::vector<char*> array;
};

// Never freed, as another thread may still read one: a few hundred bytes for each environment seen.
std::vector<std::unique_ptr<Overlay>>& overlays() {
  static auto& all = *new std::vector<std::unique_ptr<Overlay>>();
  return all;
}

template <typename Function>
bool resolve(void* library, const char* name, Function& function) {
  void* symbol = dlsym(library, name);
  static_assert(sizeof(symbol) == sizeof(function));
  std::memcpy(&function, &symbol, sizeof(symbol));
  return symbol != nullptr;
}

// The name of the first function that is missing, or null.
const char* resolve_all(void* library, UcxApi& api) {
#define COLLAB_UCX_RESOLVE(prefix, name) \
  if (!resolve(library, #prefix #name, api.name)) return #prefix #name
  COLLAB_UCX_RESOLVE(ucp_, get_version);
  COLLAB_UCX_RESOLVE(ucp_, config_read);
  COLLAB_UCX_RESOLVE(ucp_, config_modify);
  COLLAB_UCX_RESOLVE(ucp_, config_release);
  COLLAB_UCX_RESOLVE(ucp_, init_version);
  COLLAB_UCX_RESOLVE(ucp_, cleanup);
  COLLAB_UCX_RESOLVE(ucp_, worker_create);
  COLLAB_UCX_RESOLVE(ucp_, worker_query);
  COLLAB_UCX_RESOLVE(ucp_, worker_destroy);
  COLLAB_UCX_RESOLVE(ucp_, worker_progress);
  COLLAB_UCX_RESOLVE(ucp_, worker_get_efd);
  COLLAB_UCX_RESOLVE(ucp_, worker_arm);
  COLLAB_UCX_RESOLVE(ucp_, worker_set_am_recv_handler);
  COLLAB_UCX_RESOLVE(ucp_, listener_create);
  COLLAB_UCX_RESOLVE(ucp_, listener_query);
  COLLAB_UCX_RESOLVE(ucp_, listener_destroy);
  COLLAB_UCX_RESOLVE(ucp_, conn_request_query);
  COLLAB_UCX_RESOLVE(ucp_, listener_reject);
  COLLAB_UCX_RESOLVE(ucp_, ep_create);
  COLLAB_UCX_RESOLVE(ucp_, ep_close_nbx);
  COLLAB_UCX_RESOLVE(ucp_, am_send_nbx);
  COLLAB_UCX_RESOLVE(ucp_, am_recv_data_nbx);
  COLLAB_UCX_RESOLVE(ucp_, request_free);
  COLLAB_UCX_RESOLVE(ucs_, status_string);
#undef COLLAB_UCX_RESOLVE
  return nullptr;
}

// Returns why the library at `path` is unusable, or fills in `api` and returns an empty string.
std::string try_library(const std::string& path, UcxApi& api) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = dlerror();
    return why != nullptr ? why : path + ": dlopen failed";
  }
  // Never unloaded: UCX starts threads and does not support unloading.
  if (const char* missing = resolve_all(library, api); missing != nullptr) {
    return path + ": has no function " + missing + "; UCX 1." + std::to_string(kOldestMinor) + " or newer is needed";
  }
  unsigned major = 0, minor = 0, release = 0;
  api.get_version(&major, &minor, &release);
  api.version = std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(release);
  if (major != 1 || minor < kOldestMinor) {
    return path + ": is UCX " + api.version + ", expected 1." + std::to_string(kOldestMinor) + " or newer 1.x";
  }
  void* symbol = nullptr;
  std::memcpy(&symbol, &api.get_version, sizeof(symbol));
  Dl_info info{};
  api.path = dladdr(symbol, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : path;
  return {};
}

std::vector<std::string> candidates(const std::string& library_dir) {
  if (const char* forced = std::getenv("COLLAB_UCX_LIBRARY"); forced != nullptr && *forced != '\0') return {forced};
  std::vector<std::string> paths;
  if (!library_dir.empty()) paths.push_back(library_dir + "/libucp.so.0");
  if (const std::string built = COLLAB_UCX_BUILD_LIBRARY; !built.empty()) paths.push_back(built);
  paths.emplace_back("libucp.so.0");
  return paths;
}

}  // namespace

GuestEnvironment::GuestEnvironment() : lock_(environment_mutex()), saved_(environ) {
  auto ours = std::make_unique<Overlay>();
  for (const auto& [name, value] : kGuestSettings) {
    if (std::getenv(name) == nullptr) ours->added.push_back(std::string(name) + "=" + value);
  }
  for (char** entry = saved_; entry != nullptr && *entry != nullptr; ++entry) ours->array.push_back(*entry);
  for (auto& entry : ours->added) ours->array.push_back(entry.data());
  ours->array.push_back(nullptr);
  // Compares the user's entries by address: entries of an older array may be freed.
  const Overlay* last = overlays().empty() ? nullptr : overlays().back().get();
  const auto theirs = static_cast<std::ptrdiff_t>(ours->array.size() - ours->added.size() - 1);
  const bool met_before = last != nullptr && last->added == ours->added && last->array.size() == ours->array.size() &&
                          std::equal(ours->array.begin(), ours->array.begin() + theirs, last->array.begin());
  if (!met_before) overlays().push_back(std::move(ours));
  environ = overlays().back()->array.data();
}

GuestEnvironment::~GuestEnvironment() {
  const Overlay& ours = *overlays().back();
  if (environ == ours.array.data()) {
    environ = saved_;
    return;
  }
  // Another thread has set a variable meanwhile: keep its array, and remove our settings from it.
  for (const auto& entry : ours.added) unsetenv(entry.substr(0, entry.find('=')).c_str());
}

Result<const UcxApi*> load_ucx(const std::string& library_dir) {
  static std::mutex mutex;
  static std::unique_ptr<UcxApi> loaded;
  const std::lock_guard lock(mutex);
  if (loaded != nullptr) return static_cast<const UcxApi*>(loaded.get());
  const GuestEnvironment guest;
  std::string reasons;
  for (const auto& path : candidates(library_dir)) {
    auto api = std::make_unique<UcxApi>();
    std::string why = try_library(path, *api);
    if (why.empty()) {
      loaded = std::move(api);
      return static_cast<const UcxApi*>(loaded.get());
    }
    reasons += (reasons.empty() ? "" : "; ") + why;
  }
  return unavailable("UCX does not load (" + reasons +
                     "); `pip install \"torch-collab[ucx]\"` or your system's libucx brings it, or set "
                     "COLLAB_UCX_LIBRARY to the path of libucp.so.0 [ucx.not-loaded]");
}

}  // namespace collab
