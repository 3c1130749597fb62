// The backends of one world over the threads group: what each rank of it would make.
//
// Threads: one backend a thread. Ownership: the backends share the world's boards.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "collab/torch/backend.h"
#include "tests/torch/threads_group.h"

namespace collab::testing {

// The process groups of one world whose rank r stands at sites[r].
class TestWorld {
 public:
  explicit TestWorld(std::vector<int> sites, bool is_world = true)
      : sites_(std::move(sites)), size_(static_cast<int>(sites_.size())), is_world_(is_world) {
    names_ = sites_;
    std::sort(names_.begin(), names_.end());
    names_.erase(std::unique(names_.begin(), names_.end()), names_.end());
    world_ = std::make_shared<Board>(size_);
    leaders_ = std::make_shared<Board>(static_cast<int>(names_.size()));
    for (const int name : names_) site_[name] = std::make_shared<Board>(static_cast<int>(members(name).size()));
  }

  [[nodiscard]] int size() const { return size_; }
  [[nodiscard]] const std::vector<int>& names() const { return names_; }
  [[nodiscard]] std::vector<int> members(int name) const {
    std::vector<int> ranks;
    for (int rank = 0; rank < size_; ++rank) {
      if (sites_[static_cast<std::size_t>(rank)] == name) ranks.push_back(rank);
    }
    return ranks;
  }

  [[nodiscard]] c10::intrusive_ptr<torch_adapter::CollabBackend> backend(int rank) const {
    torch_adapter::BackendOptions options;
    options.rank = rank;
    options.size = size_;
    options.sites = sites_;
    options.timeout = std::chrono::milliseconds(10'000);
    options.is_world = is_world_;
    options.world = group(world_, rank, size_);
    const int name = sites_[static_cast<std::size_t>(rank)];
    const auto ranks = members(name);
    const auto place = std::find(ranks.begin(), ranks.end(), rank) - ranks.begin();
    if (ranks.size() > 1) options.site = group(site_.at(name), static_cast<int>(place), static_cast<int>(ranks.size()));
    if (place == 0) {
      const auto position = std::find(names_.begin(), names_.end(), name) - names_.begin();
      options.leaders = group(leaders_, static_cast<int>(position), static_cast<int>(names_.size()));
    }
    return c10::make_intrusive<torch_adapter::CollabBackend>(std::move(options));
  }

  // What a sum must be: each site's ranks in rank order (the threads group's own way), then site after site.
  [[nodiscard]] at::Tensor ordered_sum(const std::vector<at::Tensor>& of_ranks) const {
    at::Tensor total;
    for (const int name : names_) {
      at::Tensor site;
      for (const int rank : members(name)) {
        const at::Tensor& own = of_ranks[static_cast<std::size_t>(rank)];
        site = site.defined() ? site + own : own.clone();
      }
      total = total.defined() ? total + site : site;
    }
    return total;
  }

 private:
  static c10::intrusive_ptr<c10d::Backend> group(std::shared_ptr<Board> board, int rank, int size) {
    return c10::make_intrusive<ThreadsGroup>(std::move(board), rank, size);
  }

  std::vector<int> sites_;
  int size_;
  bool is_world_;
  std::vector<int> names_;  // ascending
  std::shared_ptr<Board> world_;
  std::shared_ptr<Board> leaders_;
  std::map<int, std::shared_ptr<Board>> site_;
};

}  // namespace collab::testing
