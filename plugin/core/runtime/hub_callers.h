// Calls of other threads that wait for the loop of a rank's hub link: each is answered once.
//
// Threads: the loop's, and enters() before it starts; the other ends of promises are the callers'. Ownership: plain
// values.
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <optional>
#include <utility>

#include "collab/status.h"
#include "core/protocol/collectives/hub_actions.h"

namespace collab {

class HubCallers {
 public:
  using Done = std::function<void(protocol::HubExchanged)>;

  // ---- entering and leaving
  [[nodiscard]] std::future<Status> enters() { return entering_.emplace().get_future(); }
  void entered() { answer(entering_, Status()); }
  // False: the link is broken or left already, and the caller has its answer.
  [[nodiscard]] bool leaves(std::promise<void> promise) {
    if (std::exchange(ended_, true)) {
      promise.set_value();
      return false;
    }
    leaving_ = std::move(promise);
    return true;
  }
  void left() {
    if (leaving_) std::exchange(leaving_, std::nullopt)->set_value();
  }
  // The link cannot go on. True: a caller waited to be let in, and has been told `why`.
  bool broken(const Status& why) {
    ended_ = true;
    return answer(entering_, why);
  }

  // ---- requests, by the ids that are returned here
  [[nodiscard]] std::uint64_t exchanges(Done done) {
    exchanges_[++last_id_] = std::move(done);
    return last_id_;
  }
  void exchanged(const protocol::HubExchanged& result) {
    if (const auto call = exchanges_.extract(result.id)) call.mapped()(result);
  }
  [[nodiscard]] std::uint64_t resolves(std::promise<Result<std::uint32_t>> promise) {
    resolving_[++last_id_] = std::move(promise);
    return last_id_;
  }
  void resolved(const protocol::SenderResolved& result) {
    auto call = resolving_.extract(result.id);
    if (!call) return;
    call.mapped().set_value(result.status.ok() ? Result<std::uint32_t>(result.from) : result.status);
  }

 private:
  // False: no caller waits.
  static bool answer(std::optional<std::promise<Status>>& call, const Status& status) {
    if (!call) return false;
    std::exchange(call, std::nullopt)->set_value(status);
    return true;
  }

  std::uint64_t last_id_ = 0;
  std::map<std::uint64_t, Done> exchanges_;
  std::map<std::uint64_t, std::promise<Result<std::uint32_t>>> resolving_;
  std::optional<std::promise<Status>> entering_;
  std::optional<std::promise<void>> leaving_;
  bool ended_ = false;  // broken, or left
};

}  // namespace collab
