#include "tools/lab/line.h"

#include <algorithm>
#include <cmath>

namespace collab::lab {

bool Line::push(Time now, Transit&& transit) {
  const std::size_t bytes = transit.packet.bytes.size();
  if (!rate_.unlimited() && !waiting_.empty() && queued_bytes_ + bytes > queue_bytes()) return false;
  if (waiting_.empty()) head_done_ = now + rate_.time_for(bytes);
  queued_bytes_ += bytes;
  waiting_.push_back(std::move(transit));
  return true;
}

Transit Line::pop() {
  Transit first = std::move(waiting_.front());
  waiting_.pop_front();
  queued_bytes_ -= first.packet.bytes.size();
  if (!waiting_.empty()) head_done_ += rate_.time_for(waiting_.front().packet.bytes.size());
  return first;
}

void Line::set_rate(Time now, Rate rate) {
  if (!waiting_.empty() && head_done_ > now) {
    const Time whole = rate_.time_for(waiting_.front().packet.bytes.size());
    const double left = static_cast<double>((head_done_ - now).count()) / static_cast<double>(whole.count());
    const Time whole_now = rate.time_for(waiting_.front().packet.bytes.size());
    head_done_ = now + Time(std::llround(left * static_cast<double>(whole_now.count())));
  }
  rate_ = rate;
}

std::size_t Line::queue_bytes() const {
  const double seconds = std::chrono::duration<double>(queue_).count();
  return std::max(kLeastQueueBytes, static_cast<std::size_t>(rate_.mbit_per_s * 1e6 / 8 * seconds));
}

}  // namespace collab::lab
