#include "collab/torch/backend.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <set>
#include <utility>

#include "torch/hub_backend.h"
#include "torch/ordered_sum.h"
#include "torch/staging.h"
#include "torch/torch_private.h"
#include "torch/work.h"

namespace collab::torch_adapter {
namespace {

thread_local bool in_step = false;

// This rank's position in the group.
struct Place {
  int sites = 1;      // number of sites with ranks in the group
  int site_size = 1;  // ranks at this rank's site
  int site_rank = 0;
  int site_position = 0;  // position of this rank's site in the ascending order of sites
};

Place place_of(const BackendOptions& options) {
  TORCH_CHECK(options.rank >= 0 && options.rank < options.size, "collab: rank ", options.rank, " is not in a group of ",
              options.size, " [ddp.group-rank]");
  TORCH_CHECK(options.sites.size() == static_cast<std::size_t>(options.size), "collab: the site map has ",
              options.sites.size(), " entries, the group has ", options.size, " ranks [ddp.site-map]");
  const int own = options.sites[static_cast<std::size_t>(options.rank)];
  const std::set<int> sites(options.sites.begin(), options.sites.end());
  const auto before_me = options.sites.begin() + options.rank;
  Place place;
  place.sites = static_cast<int>(sites.size());
  place.site_size = static_cast<int>(std::count(options.sites.begin(), options.sites.end(), own));
  place.site_rank = static_cast<int>(std::count(options.sites.begin(), before_me, own));
  place.site_position = static_cast<int>(std::distance(sites.begin(), sites.find(own)));
  return place;
}

void check_group(const char* which, const c10::intrusive_ptr<c10d::Backend>& group, bool needed, int rank, int size) {
  if (!needed) return;
  TORCH_CHECK(group, "collab: the ", which, " group is missing; expected ", size, " ranks [ddp.group-missing]");
  TORCH_CHECK(group->getRank() == rank && group->getSize() == size, "collab: the ", which, " group has rank ",
              group->getRank(), " of ", group->getSize(), ", expected rank ", rank, " of ", size, " [ddp.group-size]");
}

}  // namespace

CollabBackend::CollabBackend(BackendOptions options)
    : c10d::Backend(options.rank, options.size),
      options_(std::move(options)),
      backend_options_(c10::make_intrusive<Options>("collab", options_.timeout)),
      failed_(std::make_shared<std::atomic<bool>>(false)),
      queue_(std::make_unique<WorkQueue>()) {
  const Place place = place_of(options_);
  check_group("world", options_.world, true, rank_, size_);
  if (place.sites > 1) {
    const bool leads = place.site_rank == 0;
    check_group("site", options_.site, place.site_size > 1, place.site_rank, place.site_size);
    check_group("leaders", options_.leaders, leads, place.site_position, place.sites);
    if (place.site_size == 1) options_.site = nullptr;
    if (!leads) options_.leaders = nullptr;
    std::vector<int> site_sizes;
    for (const int site : std::set<int>(options_.sites.begin(), options_.sites.end())) {
      site_sizes.push_back(static_cast<int>(std::count(options_.sites.begin(), options_.sites.end(), site)));
    }
    reducer_ = std::make_unique<OrderedReducer>(options_.site, options_.leaders, place.site_size, site_sizes);
  }
  init();
}

CollabBackend::~CollabBackend() = default;

void CollabBackend::setTimeout(std::chrono::milliseconds timeout) {
  options_.timeout = timeout;
  backend_options_->timeout = timeout;
  options_.world->setTimeout(timeout);
}

void CollabBackend::setSequenceNumberForGroup() { options_.world->setSequenceNumberForGroup(); }
uint64_t CollabBackend::getSequenceNumberForGroup() {
  return options_.world->getSequenceNumberForGroup() + ordered_.load();
}
void CollabBackend::enableCollectivesTiming() { options_.world->enableCollectivesTiming(); }

c10d::ErrorType CollabBackend::getError() {
  return failed_->load() ? c10d::ErrorType::COMM_ERROR : c10d::ErrorType::SUCCESS;
}

void CollabBackend::abort() {
  for (const auto& group : {options_.world, options_.site, options_.leaders}) {
    if (group) group->abort();
  }
}

void CollabBackend::shutdown() {
  queue_->stop();
  for (const auto& group : {options_.world, options_.site, options_.leaders}) {
    if (group) group->shutdown();
  }
}

std::string CollabBackend::describe_rank() const {
  const std::string site = std::to_string(options_.sites[static_cast<std::size_t>(rank_)]);
  return "rank " + std::to_string(rank_) + " of " + std::to_string(size_) + " (site " + site +
         (options_.leaders ? ", its leader)" : ")");
}

void CollabBackend::set_in_step(bool on) { in_step = on; }

void CollabBackend::begins(const char* collective, const Tensors& brought) const {
  if (!in_step || single_site() || !step_watch_) return;
  std::int64_t elements = 0;
  for (const at::Tensor& tensor : brought) elements += tensor.numel();
  step_watch_(collective, elements);
}

std::int64_t CollabBackend::most_at_barrier(std::int64_t mine) {
  const at::Tensor most = at::full({1}, mine, at::kLong);
  if (auto* hub = dynamic_cast<HubBackend*>(options_.world.get())) {
    hub->most_at_barrier(most)->wait();
  } else {
    Tensors tensors{most};
    c10d::AllreduceOptions opts;
    opts.reduceOp = c10d::ReduceOp::MAX;
    opts.timeout = options_.timeout;
    options_.world->allreduce(tensors, opts)->wait();
  }
  return most.item<std::int64_t>();
}

CollabBackend::WorkPtr CollabBackend::post(const char* name, c10d::OpType type, TensorLists results,
                                           std::function<void()> job, bool from_hook) {
  // As with Gloo, which writes raw memory, autograd does not record the job, and tensors keep their version counters.
  auto unrecorded = [body = std::move(job)] {
    const at::AutoDispatchBelowADInplaceOrView guard;
    body();
  };
  auto work = c10::make_intrusive<QueuedWork>(std::string(name) + " at " + describe_rank(), rank_, type,
                                              std::move(results), std::move(unrecorded), from_hook);
  queue_->post(work, [failed = failed_] { failed->store(true); });
  return work;
}

CollabBackend::WorkPtr CollabBackend::unstage(const char* name, c10d::OpType type, WorkPtr inner, Staging staging,
                                              TensorLists results) {
  if (!staging.used()) return inner;
  return post(name, type, std::move(results), [inner = std::move(inner), staging = std::move(staging)]() mutable {
    inner->wait();
    staging.copy_back();
  });
}

CollabBackend::WorkPtr CollabBackend::unstage_point_to_point(c10d::OpType type, WorkPtr inner, Staging staging) {
  if (!staging.used()) return inner;
  return c10::make_intrusive<StagedPointToPoint>(std::move(inner), type,
                                                 [staging = std::move(staging)]() mutable { staging.copy_back(); });
}

}  // namespace collab::torch_adapter
