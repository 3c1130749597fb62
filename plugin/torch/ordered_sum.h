// Sums and products over several sites in one fixed order: first within each site by its own Gloo, then between the
// sites' leaders in ascending site order, with one rounding per step, then back to the site.
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

// The deadline of a collective; each of its steps gets the time that is left.
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

// Identifies a sum between sites; the ranks compare it.
struct SumCall {
  std::string operation;
  std::uint64_t number = 0;  // among the calls of the group; 0: not over the collective hub
};

// The first converts a tensor to a type that Gloo sums; the second puts the sum back. Gloo has no int16, but the lower
// half of an int32 sum is the wrapped int16 sum.
[[nodiscard]] at::Tensor as_gloo_sums(const at::Tensor& flat);
void take_gloo_sum(at::Tensor& flat, const at::Tensor& sum);

// The mean that belongs to a sum. Integers are divided towards zero, as NCCL divides them.
void divide_sum(at::Tensor& sum, std::int64_t ranks);

class OrderedReducer {
 public:
  // `site` is null for a site of one rank, `leaders` at ranks that are not their site's leader. `site_sizes` has each
  // site's number of ranks, in the order of the leaders.
  OrderedReducer(c10::intrusive_ptr<c10d::Backend> site, c10::intrusive_ptr<c10d::Backend> leaders, int site_size,
                 std::vector<int> site_sizes);

  [[nodiscard]] int site_size() const { return site_size_; }

  // `flat` is a contiguous host tensor of one dimension, of a floating type or an integer one that NCCL or Gloo sums;
  // the same length and type at all ranks. Throws c10::Error or what Gloo throws, prefixed by the step's name. `mean`:
  // divides the sum by the number of ranks in it.
  void over_all_sites(const SumCall& sum, at::Tensor& flat, c10d::ReduceOp::RedOpType op, bool mean,
                      const Deadline& deadline);
  void over_this_site(at::Tensor& flat, const c10d::ReduceOp& op, const Deadline& deadline);

 private:
  // These return the number of ranks that took part.
  int between_leaders(at::Tensor& flat, c10d::ReduceOp::RedOpType op, const Deadline& deadline);
  int between_living(const SumCall& sum, at::Tensor& flat, c10d::ReduceOp::RedOpType op, const Deadline& deadline);
  void from_site_leader(const at::Tensor& tensor, const Deadline& deadline);
  // Tells the site's other ranks what failed at their leader, if anything.
  void hear_failure(std::string& failure, const Deadline& deadline);
  at::Tensor gather_leaders(const at::Tensor& piece, const Deadline& deadline);

  c10::intrusive_ptr<c10d::Backend> site_;
  c10::intrusive_ptr<c10d::Backend> leaders_;
  HubBackend* hub_ = nullptr;  // `leaders_` if that is a HubBackend
  int site_size_;
  std::vector<int> site_sizes_;
};

}  // namespace collab::torch_adapter
