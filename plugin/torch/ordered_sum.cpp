#include "torch/ordered_sum.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <exception>
#include <numeric>
#include <string>
#include <utility>

#include "torch/hub_backend.h"

namespace collab::torch_adapter {
namespace {

// Below this a vector is sent whole to all leaders (one exchange); above it each leader sums a share (two exchanges,
// but 2/L of the bytes). Two leaders send the same bytes either way. The choice does not affect the bits.
constexpr std::size_t kWholeBytes = 64 * 1024;

// If less than this is left of a deadline after a failed step, the deadline ended that step.
constexpr std::chrono::milliseconds kTooLate{100};

// Runs `body` and returns its error text; empty: no error.
template <typename Step>
std::string failure_of(const Step& body) {
  try {
    body();
    return "";
  } catch (const c10::Error& e) {
    return e.what_without_backtrace();
  } catch (const std::exception& e) {
    return e.what();
  }
}

template <typename Step>
void named(const char* step, const Step& body) {
  const std::string failure = failure_of(body);
  TORCH_CHECK(failure.empty(), step, ": ", failure, " [ddp.ordered-sum]");
}

// rows[0] op rows[1] op ..., from the left.
at::Tensor combine_rows(const at::Tensor& rows, c10d::ReduceOp::RedOpType op) {
  at::Tensor total = rows[0];
  for (int64_t row = 1; row < rows.size(0); ++row) {
    op == c10d::ReduceOp::PRODUCT ? total.mul_(rows[row]) : total.add_(rows[row]);
  }
  return total;
}

}  // namespace

at::Tensor as_gloo_sums(const at::Tensor& flat) { return flat.scalar_type() == at::kShort ? flat.to(at::kInt) : flat; }

void take_gloo_sum(at::Tensor& flat, const at::Tensor& sum) {
  if (!sum.is_same(flat)) flat.copy_(sum);
}

void divide_sum(at::Tensor& sum, std::int64_t ranks) {
  if (!at::isIntegralType(sum.scalar_type(), /*includeBool=*/false)) {
    sum.div_(ranks);
    return;
  }
  // In 64 bits: int8 cannot hold a divisor of 128 ranks.
  sum.copy_(sum.to(at::kLong).div_(ranks, "trunc"));
}

OrderedReducer::OrderedReducer(c10::intrusive_ptr<c10d::Backend> site, c10::intrusive_ptr<c10d::Backend> leaders,
                               int site_size, std::vector<int> site_sizes)
    : site_(std::move(site)),
      leaders_(std::move(leaders)),
      hub_(dynamic_cast<HubBackend*>(leaders_.get())),
      site_size_(site_size),
      site_sizes_(std::move(site_sizes)) {}

void OrderedReducer::over_this_site(at::Tensor& flat, const c10d::ReduceOp& op, const Deadline& deadline) {
  if (!site_) return;
  named("reducing within the site", [&] {
    std::vector<at::Tensor> tensors{as_gloo_sums(flat)};
    c10d::AllreduceOptions opts;
    opts.reduceOp = op;
    opts.timeout = deadline.left();
    site_->allreduce(tensors, opts)->wait();
    take_gloo_sum(flat, tensors[0]);
  });
}

void OrderedReducer::over_all_sites(const SumCall& sum, at::Tensor& flat, c10d::ReduceOp::RedOpType op, bool mean,
                                    const Deadline& deadline) {
  if (flat.numel() == 0) return;
  try {
    over_this_site(flat, op, deadline);
  } catch (...) {
    const std::exception_ptr why = std::current_exception();
    // If this site has lost a rank, the other sites need not wait for it. If a rank is merely late, the others time out
    // as well.
    if (hub_ != nullptr && deadline.left() > kTooLate) {
      try {
        hub_->pass(sum, flat, deadline);
      } catch (const std::exception&) {  // `why` has the first error
      }
    }
    std::rethrow_exception(why);
  }
  std::string failure;
  if (leaders_) {
    failure = failure_of([&] {
      const int ranks = hub_ != nullptr ? between_living(sum, flat, op, deadline) : between_leaders(flat, op, deadline);
      if (mean) divide_sum(flat, ranks);
    });
  }
  if (site_) {
    named("taking the result from the site's leader", [&] {
      hear_failure(failure, deadline);
      if (failure.empty()) from_site_leader(flat, deadline);
    });
  }
  TORCH_CHECK(failure.empty(), "exchanging with the other sites' leaders: ", failure, " [ddp.ordered-sum]");
}

void OrderedReducer::from_site_leader(const at::Tensor& tensor, const Deadline& deadline) {
  std::vector<at::Tensor> tensors{tensor.view(at::kByte)};  // whatever the type
  c10d::BroadcastOptions opts;
  opts.timeout = deadline.left();
  site_->broadcast(tensors, opts)->wait();
}

// Otherwise the site's other ranks would wait for a failed leader until their time-out.
void OrderedReducer::hear_failure(std::string& failure, const Deadline& deadline) {
  const at::Tensor length = at::full({1}, static_cast<int64_t>(failure.size()), at::kLong);
  from_site_leader(length, deadline);
  failure.resize(static_cast<std::size_t>(length.item<int64_t>()));
  if (failure.empty()) return;
  const at::Tensor text = at::from_blob(failure.data(), {static_cast<int64_t>(failure.size())}, at::kByte);
  from_site_leader(text, deadline);
}

// Gathers rows of bytes: for Gloo this is data movement, whatever the type.
at::Tensor OrderedReducer::gather_leaders(const at::Tensor& piece, const Deadline& deadline) {
  at::Tensor rows = at::empty({leaders_->getSize(), piece.numel()}, piece.options());
  at::Tensor bytes_in = piece.view(at::kByte);
  at::Tensor bytes_out = rows.view(-1).view(at::kByte);
  c10d::AllgatherOptions opts;
  opts.timeout = deadline.left();
  leaders_->_allgather_base(bytes_out, bytes_in, opts)->wait();
  return rows;
}

int OrderedReducer::between_living(const SumCall& sum, at::Tensor& flat, c10d::ReduceOp::RedOpType op,
                                   const Deadline& deadline) {
  const HubBackend::Rows found = hub_->gather_living(sum, flat, deadline);
  std::vector<at::Tensor> there;
  int ranks = 0;
  for (std::size_t site = 0; site < found.living.size(); ++site) {
    if (!found.living[site]) continue;
    there.push_back(found.rows[static_cast<int64_t>(site)]);
    ranks += site_sizes_[site];
  }
  TORCH_CHECK(!there.empty(), kNobodyGave);
  flat.copy_(there[0]);
  for (std::size_t i = 1; i < there.size(); ++i) {
    op == c10d::ReduceOp::PRODUCT ? flat.mul_(there[i]) : flat.add_(there[i]);
  }
  return ranks;
}

int OrderedReducer::between_leaders(at::Tensor& flat, c10d::ReduceOp::RedOpType op, const Deadline& deadline) {
  const int ranks = std::accumulate(site_sizes_.begin(), site_sizes_.end(), 0);
  const int64_t leaders = leaders_->getSize();
  if (leaders == 2 || flat.nbytes() <= kWholeBytes) {
    flat.copy_(combine_rows(gather_leaders(flat, deadline), op));
    return ranks;
  }
  const int64_t share = (flat.numel() + leaders - 1) / leaders;
  at::Tensor padded = at::zeros({leaders, share}, flat.options());
  padded.view(-1).narrow(0, 0, flat.numel()).copy_(flat);
  at::Tensor mine = at::empty_like(padded);
  at::Tensor bytes_in = padded.view(-1).view(at::kByte);
  at::Tensor bytes_out = mine.view(-1).view(at::kByte);
  std::vector<int64_t> even;  // empty: equal splits
  c10d::AllToAllOptions opts;
  opts.timeout = deadline.left();
  leaders_->alltoall_base(bytes_out, bytes_in, even, even, opts)->wait();
  const at::Tensor whole = gather_leaders(combine_rows(mine, op), deadline);
  flat.copy_(whole.view(-1).narrow(0, 0, flat.numel()));
  return ranks;
}

}  // namespace collab::torch_adapter
