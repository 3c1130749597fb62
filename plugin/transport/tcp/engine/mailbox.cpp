#include "transport/tcp/engine/mailbox.h"

#include <boost/asio/post.hpp>
#include <utility>

namespace collab::tcp {

void Mailbox::post(Command command) {
  const std::lock_guard lock(mutex_);
  if (shut_) return;
  commands_.push_back(std::move(command));
  if (std::exchange(posted_, true)) return;
  boost::asio::post(io_, look_);
}

void Mailbox::take(std::vector<Command>& commands) {
  const std::lock_guard lock(mutex_);
  posted_ = false;
  commands = std::exchange(commands_, {});  // does not keep a burst's memory
}

void Mailbox::shut() {
  const std::lock_guard lock(mutex_);
  shut_ = true;
}

}  // namespace collab::tcp
