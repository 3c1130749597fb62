// The backend itself: how a collective is queued and named, point to point, barriers.
#include "torch/hub_backend.h"

#include <c10/util/Exception.h>

#include <sstream>
#include <utility>

#include "core/base/log.h"
#include "torch/torch_private.h"

namespace collab::torch_adapter {

using c10d::OpType;

namespace {

constexpr std::size_t kMostIdleLetters = 32;

}  // namespace

HubBackend::HubBackend(HubBackendOptions options)
    : c10d::Backend(options.rank, static_cast<int>(options.ranks.size())),
      options_(std::move(options)),
      backend_options_(c10::make_intrusive<Options>("collab_hub", options_.timeout)),
      told_(options_.ranks.size(), true),
      queue_(std::make_unique<WorkQueue>()) {
  TORCH_CHECK(rank_ >= 0 && rank_ < size_, "collab: rank ", rank_, " is not in a group of ", size_,
              " [hub.group-rank]");
  TORCH_CHECK(options_.sites.size() == options_.ranks.size(), "collab: ", options_.sites.size(), " sites for ", size_,
              " ranks [hub.site-map]");
  std::vector<RankId> members;
  for (const std::uint32_t rank : options_.ranks) members.emplace_back(rank);
  calls_ = std::make_shared<HubCalls>(options_.hub_link, options_.group, std::move(members),
                                      static_cast<std::size_t>(rank_));
  init();
}

HubBackend::~HubBackend() { shutdown(); }

void HubBackend::setTimeout(std::chrono::milliseconds timeout) {
  options_.timeout = timeout;
  backend_options_->timeout = timeout;
}

void HubBackend::shutdown() {
  queue_->stop();
  calls_->close();  // otherwise a receive without a sender would wait for its time-out
  Letters ended;
  {
    const std::lock_guard lock(letters_mutex_);
    ended.swap(letters_);
  }
  for (auto& [key, queue] : ended) queue->stop();
}

std::string HubBackend::describe_rank() const {
  return "rank " + std::to_string(rank_) + " of " + std::to_string(size_) + " (site " +
         options_.sites[static_cast<std::size_t>(rank_)] + ")";
}

HubCalls::Call HubBackend::call(std::string operation, const at::Tensor& like, const Deadline& deadline) const {
  std::ostringstream shape;
  shape << like.sizes();
  std::string text = shape.str();
  if (text.size() > 200) text = text.substr(0, 200) + "...";
  operation += " of " + std::to_string(like.numel()) + " " + c10::toString(like.scalar_type());
  return {std::move(operation), std::move(text), deadline, number_};
}

HubBackend::WorkPtr HubBackend::post(const std::string& name, OpType type, TensorLists results,
                                     std::function<void()> job) {
  issued_.fetch_add(1);
  // Like Gloo, which writes raw memory: autograd does not record it, and it is no new version of the tensor.
  auto unrecorded = [this, number = count_call(), body = std::move(job)] {
    const at::AutoDispatchBelowADInplaceOrView guard;
    number_ = number;
    body();
  };
  auto work = c10::make_intrusive<QueuedWork>(name + " at " + describe_rank(), rank_, type, std::move(results),
                                              std::move(unrecorded), false);
  queue_->post(work, [] {});
  return work;
}

// ---- barriers ------------------------------------------------------------------------------------------

HubBackend::WorkPtr HubBackend::barrier(const c10d::BarrierOptions& opts) {
  const auto timeout = limit(opts.timeout);
  return post("barrier", OpType::BARRIER, {}, [this, timeout] {
    warn_missing(calls_->barrier({"barrier", "", Deadline(timeout), number_}));
  });
}

void HubBackend::monitoredBarrier(const c10d::BarrierOptions& opts, bool /*wait_all_ranks*/) {
  const auto timeout = limit(opts.timeout);
  // All that did not come are named in any case.
  post("monitored_barrier", OpType::BARRIER, {}, [this, timeout] {
    (void)calls_->gather({"monitored_barrier", "", Deadline(timeout), number_}, {}, wire::Absence::kFails, false, {});
  })->wait();
}

void HubBackend::warn_missing(const HubCalls::Living& living) {
  for (std::size_t i = 0; i < living.size(); ++i) {
    if (living[i] || !told_[i]) continue;
    told_[i] = false;
    log_warning("from now on, sums, means and barriers of this group cover only the living ranks: rank " +
                std::to_string(options_.ranks[i]) + " of " + options_.sites[i] + " is missing [hub.living-only]");
  }
}

// ---- point to point ------------------------------------------------------------------------------------

HubBackend::WorkPtr HubBackend::post_letter(bool sends, int peer, int tag, const at::Tensor& tensor,
                                            std::function<int(const HubCalls::Call& call)> job) {
  const char* name = sends ? "send" : "recv";
  TORCH_CHECK(peer >= -1 && peer < size_ && peer != rank_, "collab: ", name, ": rank ", peer,
              " is not another of a group of ", size_, " [hub.peer]");
  TORCH_CHECK(tag >= 0, "collab: ", name, " with tag ", tag, "; expected one that is not negative [hub.tag]");
  issued_.fetch_add(1);
  auto source = std::make_shared<std::atomic<int>>(-1);
  // Both ends say the same: only the number of bytes must agree.
  auto body = [this, source, tag, bytes = tensor.nbytes(), job = std::move(job)] {
    const at::AutoDispatchBelowADInplaceOrView guard;
    source->store(job({"send and recv with tag " + std::to_string(tag) + " of " + std::to_string(bytes) + " bytes", "",
                       Deadline(options_.timeout)}));
  };
  auto work = c10::make_intrusive<QueuedWork>(std::string(name) + " at " + describe_rank(), rank_,
                                              sends ? OpType::SEND : OpType::RECV, TensorLists{{tensor}},
                                              std::move(body), false);
  work->set_source(source);
  queue_of(sends, peer, tag)->post(work, [] {});
  return work;
}

std::shared_ptr<WorkQueue> HubBackend::queue_of(bool sends, int peer, int tag) {
  Letters idle;  // they end once the lock is gone
  const std::lock_guard lock(letters_mutex_);
  // If each step had its own tag, threads would pile up.
  if (letters_.size() >= kMostIdleLetters) {
    for (auto at = letters_.begin(); at != letters_.end();) {
      const auto next = std::next(at);
      // Another thread that holds it is about to post.
      if (at->second.use_count() == 1 && at->second->idle()) idle.insert(letters_.extract(at));
      at = next;
    }
  }
  std::shared_ptr<WorkQueue>& queue = letters_[{sends, peer, tag}];
  if (!queue) queue = std::make_shared<WorkQueue>();
  return queue;
}

namespace {

const at::Tensor& one_dense(const char* name, const std::vector<at::Tensor>& tensors) {
  TORCH_CHECK(tensors.size() == 1, "collab: ", name, " takes one tensor, got ", tensors.size(), " [hub.one-tensor]");
  TORCH_CHECK(tensors[0].layout() == at::kStrided && tensors[0].is_contiguous(), "collab: ", name,
              " takes a dense, contiguous tensor [hub.dense-tensor]");
  return tensors[0];
}

}  // namespace

HubBackend::WorkPtr HubBackend::send(Tensors& tensors, int destination, int tag) {
  const at::Tensor tensor = one_dense("send", tensors);
  return post_letter(true, destination, tag, tensor, [this, tensor, destination, tag](const HubCalls::Call& call) {
    calls_->send(call, static_cast<std::size_t>(destination), static_cast<std::uint32_t>(tag), bytes_of(tensor));
    return rank_;
  });
}

HubBackend::WorkPtr HubBackend::recv(Tensors& tensors, int source, int tag) {
  const at::Tensor tensor = one_dense("recv", tensors);
  return post_letter(false, source, tag, tensor, [this, tensor, source, tag](const HubCalls::Call& call) {
    calls_->receive(call, static_cast<std::size_t>(source), static_cast<std::uint32_t>(tag), bytes_of(tensor));
    return source;
  });
}

HubBackend::WorkPtr HubBackend::recvAnysource(Tensors& tensors, int tag) {
  const at::Tensor tensor = one_dense("recv", tensors);
  return post_letter(false, -1, tag, tensor, [this, tensor, tag](const HubCalls::Call& call) {
    const std::size_t from = calls_->resolve(call, static_cast<std::uint32_t>(tag));
    calls_->receive(call, from, static_cast<std::uint32_t>(tag), bytes_of(tensor));
    return static_cast<int>(from);
  });
}

}  // namespace collab::torch_adapter
