// Sums and products over several sites with one order for all: within the site by its own Gloo, then between the
// sites' leaders in ascending site order, one rounding after another, then back to the site.
//
// Every rank ends with the same bits, and so does every run: neither arrival order nor the length of the vector
// chooses the association. Over the collective hub, sites whose leader is gone or has lost a rank are left out, and a
// mean is over the ranks of the others. Half and bfloat16 are rounded after each addition, as Gloo does.
//
// Threads: one thread at a time (the backend's worker). Ownership: shares the two Gloo backends.
#pragma once

#include <algorithm>
#include <chrono>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

namespace collab::torch_adapter {

// The moment a collective must be done by; each of its steps gets what is left.
class Deadline {
 public:
  explicit Deadline(std::chrono::milliseconds limit) : at_(std::chrono::steady_clock::now() + limit) {}
  [[nodiscard]] std::chrono::milliseconds left() const {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(at_ - std::chrono::steady_clock::now());
    return std::max(left, std::chrono::milliseconds(1));
  }

 private:
  std::chrono::steady_clock::time_point at_;
};

class HubBackend;

// What the ranks compare of a sum between sites.
struct SumCall {
  std::string operation;
  std::uint64_t number = 0;  // among the calls of the group; 0: not over the collective hub
};

// What Gloo sums in the tensor's place, and the sum back into the tensor. Gloo has no int16; the lower half of a sum of
// int32 is what the sum of int16 wraps to.
[[nodiscard]] at::Tensor as_gloo_sums(const at::Tensor& flat);
void take_gloo_sum(at::Tensor& flat, const at::Tensor& sum);

// The mean that belongs to a sum. Integers are divided towards zero, as NCCL divides them.
void divide_sum(at::Tensor& sum, std::int64_t ranks);

class OrderedReducer {
 public:
  // `site` is null for a site of one rank, `leaders` at ranks that are not their site's leader. `site_sizes` has the
  // ranks at each site, in the order of the leaders.
  OrderedReducer(c10::intrusive_ptr<c10d::Backend> site, c10::intrusive_ptr<c10d::Backend> leaders, int site_size,
                 std::vector<int> site_sizes);

  [[nodiscard]] int site_size() const { return site_size_; }

  // `flat` is a contiguous host tensor of one dimension, of a floating type or an integer one that NCCL or Gloo sums;
  // the same length and type at all ranks. Throws c10::Error or what Gloo throws, the step named in front. `mean`: the
  // sum divided by the number of ranks in it.
  void over_all_sites(const SumCall& sum, at::Tensor& flat, c10d::ReduceOp::RedOpType op, bool mean,
                      const Deadline& deadline);
  void over_this_site(at::Tensor& flat, const c10d::ReduceOp& op, const Deadline& deadline);

 private:
  // How many ranks took part.
  int between_leaders(at::Tensor& flat, c10d::ReduceOp::RedOpType op, const Deadline& deadline);
  int between_living(const SumCall& sum, at::Tensor& flat, c10d::ReduceOp::RedOpType op, const Deadline& deadline);
  void from_site_leader(const at::Tensor& tensor, const Deadline& deadline);
  // What has failed at the site's leader, if anything, becomes known at its other ranks.
  void hear_failure(std::string& failure, const Deadline& deadline);
  at::Tensor gather_leaders(const at::Tensor& piece, const Deadline& deadline);

  c10::intrusive_ptr<c10d::Backend> site_;
  c10::intrusive_ptr<c10d::Backend> leaders_;
  HubBackend* hub_ = nullptr;  // `leaders_`, when it is one
  int site_size_;
  std::vector<int> site_sizes_;
};

}  // namespace collab::torch_adapter
