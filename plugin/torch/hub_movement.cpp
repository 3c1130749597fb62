// Data movement over the collective hub: bytes, whatever the type.
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "torch/hub_backend.h"

namespace collab::torch_adapter {

using c10d::OpType;

namespace {

using Tensors = HubBackend::Tensors;

// The tensor's own memory if it is dense; otherwise a copy.
at::Tensor flat_of(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.layout() == at::kStrided, "collab: expected a dense tensor, got layout ", tensor.layout(),
              " [hub.move-arguments]");
  if (tensor.numel() == 0) return at::empty({0}, tensor.options());
  if (!tensor.is_non_overlapping_and_dense()) return tensor.contiguous().view(-1);
  return at::from_blob(
      tensor.data_ptr(), {tensor.numel()}, [keep = tensor](void*) {}, tensor.options());
}

void take_back(const at::Tensor& tensor, const at::Tensor& flat) {
  if (flat.numel() > 0 && flat.data_ptr() != tensor.data_ptr()) at::Tensor(tensor).copy_(flat.view(tensor.sizes()));
}

void check_count(const char* name, const char* what, std::size_t came, std::size_t expected) {
  TORCH_CHECK(came == expected, "collab: ", name, " takes ", expected, " ", what, ", got ", came,
              " [hub.move-arguments]");
}

void check_alike(const char* name, const Tensors& list, const at::Tensor& like) {
  for (const at::Tensor& tensor : list) {
    TORCH_CHECK(tensor.scalar_type() == like.scalar_type() && tensor.numel() == like.numel(), "collab: ", name,
                " takes tensors of ", like.numel(), " elements of ", like.scalar_type(), ", got one of ",
                tensor.numel(), " of ", tensor.scalar_type(), " [hub.move-arguments]");
  }
}

// Copies a row of elements to `target`, in its shape.
void copy_row(const at::Tensor& target, const at::Tensor& row) { at::Tensor(target).copy_(row.view(target.sizes())); }

at::Tensor packed(const Tensors& tensors) {
  int64_t bytes = 0;
  for (const at::Tensor& tensor : tensors) bytes += static_cast<int64_t>(tensor.nbytes());
  at::Tensor all = at::empty({bytes}, at::TensorOptions(at::kByte));
  std::byte* to = static_cast<std::byte*>(all.data_ptr());
  for (const at::Tensor& tensor : tensors) {
    const at::Tensor source = tensor.contiguous();
    if (source.nbytes() > 0) std::memcpy(to, source.data_ptr(), source.nbytes());
    to += source.nbytes();
  }
  return all;
}

void unpack(const at::Tensor& all, const Tensors& tensors) {
  auto* from = static_cast<std::byte*>(all.data_ptr());
  for (const at::Tensor& tensor : tensors) {
    const at::Tensor part = at::empty(tensor.sizes(), tensor.options().memory_format(at::MemoryFormat::Contiguous));
    if (part.nbytes() > 0) std::memcpy(part.data_ptr(), from, part.nbytes());
    at::Tensor(tensor).copy_(part);
    from += part.nbytes();
  }
}

// The memory of each rank's part of dimension 0.
std::vector<HubCalls::Bytes> parts_of(const char* name, const at::Tensor& tensor, const std::vector<int64_t>& sizes,
                                      std::size_t ranks) {
  const int64_t rows = tensor.dim() == 0 ? 0 : tensor.size(0);
  if (sizes.empty()) {
    TORCH_CHECK(rows % static_cast<int64_t>(ranks) == 0, "collab: ", name, ": dimension 0 of ", rows,
                " does not divide evenly by ", ranks, " ranks [hub.move-arguments]");
  } else {
    int64_t total = 0;
    for (const int64_t size : sizes) {
      TORCH_CHECK(size >= 0, "collab: ", name, ": a split has ", size,
                  " rows; expected none or more [hub.move-arguments]");
      total += size;
    }
    TORCH_CHECK(sizes.size() == ranks && total == rows, "collab: ", name, ": ", sizes.size(), " splits of ", total,
                " rows for ", ranks, " ranks and ", rows, " rows [hub.move-arguments]");
  }
  const std::size_t row_bytes = rows == 0 ? 0 : tensor.nbytes() / static_cast<std::size_t>(rows);
  std::vector<HubCalls::Bytes> parts;
  HubCalls::Bytes rest = bytes_of(tensor);
  for (std::size_t i = 0; i < ranks; ++i) {
    const int64_t mine = sizes.empty() ? rows / static_cast<int64_t>(ranks) : sizes[i];
    const std::size_t bytes = static_cast<std::size_t>(mine) * row_bytes;
    parts.push_back(rest.first(bytes));
    rest = rest.subspan(bytes);
  }
  return parts;
}

// The largest of the ranks' numbers.
std::uint64_t longest_of_all(HubCalls& calls, const HubCalls::Call& step, std::uint64_t mine) {
  std::uint64_t longest = mine;
  (void)calls.gather(step, std::as_bytes(std::span(&mine, 1)), wire::Absence::kFails, true,
                     [&](std::size_t, std::size_t, HubCalls::ConstBytes part) {
                       std::uint64_t theirs = 0;
                       std::memcpy(&theirs, part.data(), sizeof theirs);
                       longest = std::max(longest, theirs);
                     });
  return longest;
}

}  // namespace

std::vector<at::Tensor> HubBackend::gather_rows(const std::string& operation, const at::Tensor& mine, bool wants,
                                                const Deadline& deadline) {
  const at::Tensor source = mine.contiguous();
  at::Tensor rows = at::empty({wants ? size_ : 0, source.numel()}, source.options());
  const HubCalls::Bytes target = bytes_of(rows);
  (void)calls_->gather(call(operation, mine, deadline), bytes_of(source), wire::Absence::kFails, wants,
                       [&](std::size_t from, std::size_t offset, HubCalls::ConstBytes part) {
                         if (part.empty()) return;
                         std::memcpy(target.data() + from * source.nbytes() + offset, part.data(), part.size());
                       });
  Tensors found;
  for (int64_t row = 0; row < rows.size(0); ++row) found.push_back(rows[row]);
  return found;
}

HubBackend::WorkPtr HubBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) {
  check_count("broadcast", "tensor a rank", tensors.size(), 1);
  TORCH_CHECK(opts.rootRank >= 0 && opts.rootRank < size_, "collab: broadcast from rank ", opts.rootRank,
              ", the group has ", size_, " [hub.move-arguments]");
  return post("broadcast", OpType::BROADCAST, {tensors},
              [this, tensor = tensors[0], root = opts.rootRank, timeout = limit(opts.timeout)] {
                const at::Tensor flat = flat_of(tensor);
                calls_->broadcast(call("broadcast from its rank " + std::to_string(root), tensor, Deadline(timeout)),
                                  static_cast<std::size_t>(root), bytes_of(flat));
                if (root != rank_) take_back(tensor, flat);
              });
}

HubBackend::WorkPtr HubBackend::allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) {
  check_count("all_gather", "input", inputs.size(), 1);
  check_count("all_gather", "list of outputs", outputs.size(), 1);
  check_count("all_gather", "outputs", outputs[0].size(), options_.ranks.size());
  check_alike("all_gather", outputs[0], inputs[0]);
  return post("all_gather", OpType::ALLGATHER, outputs,
              [this, targets = outputs[0], input = inputs[0], timeout = limit(opts.timeout)] {
                const Tensors rows = gather_rows("all_gather", input, true, Deadline(timeout));
                for (std::size_t i = 0; i < rows.size(); ++i) copy_row(targets[i], rows[i]);
              });
}

HubBackend::WorkPtr HubBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                const c10d::AllgatherOptions& opts) {
  Tensors outputs{output};
  Tensors inputs{input};
  return allgather_into_tensor_coalesced(outputs, inputs, opts);
}

HubBackend::WorkPtr HubBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                const c10d::AllgatherOptions& opts) {
  check_count("all_gather_into_tensor", "outputs", outputs.size(), inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    TORCH_CHECK(outputs[i].numel() == inputs[i].numel() * size_ && outputs[i].is_contiguous() &&
                    outputs[i].scalar_type() == inputs[i].scalar_type(),
                "collab: all_gather_into_tensor takes a contiguous output of ", inputs[i].numel() * size_,
                " elements of ", inputs[i].scalar_type(), ", got ", outputs[i].numel(), " of ",
                outputs[i].scalar_type(), " [hub.move-arguments]");
  }
  return post("all_gather_into_tensor", OpType::_ALLGATHER_BASE, {outputs},
              [this, outputs, inputs, timeout = limit(opts.timeout)] {
                const Deadline deadline(timeout);
                for (std::size_t i = 0; i < inputs.size(); ++i) {
                  const Tensors rows = gather_rows("all_gather_into_tensor", inputs[i], true, deadline);
                  const at::Tensor target = outputs[i].view({size_, -1});
                  if (inputs[i].numel() == 0) continue;
                  for (std::size_t row = 0; row < rows.size(); ++row) {
                    target[static_cast<int64_t>(row)].copy_(rows[row]);
                  }
                }
              });
}

HubBackend::WorkPtr HubBackend::allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                                    const c10d::AllgatherOptions& opts) {
  check_count("all_gather_coalesced", "lists of outputs", outputs.size(), options_.ranks.size());
  for (const Tensors& list : outputs) {
    check_count("all_gather_coalesced", "outputs a rank", list.size(), inputs.size());
    for (std::size_t i = 0; i < inputs.size(); ++i) check_alike("all_gather_coalesced", {list[i]}, inputs[i]);
  }
  return post("all_gather_coalesced", OpType::ALLGATHER_COALESCED, outputs,
              [this, outputs, inputs, timeout = limit(opts.timeout)] {
                const Tensors rows = gather_rows("all_gather_coalesced", packed(inputs), true, Deadline(timeout));
                for (std::size_t i = 0; i < rows.size(); ++i) unpack(rows[i], outputs[i]);
              });
}

HubBackend::WorkPtr HubBackend::gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& opts) {
  check_count("gather", "input", inputs.size(), 1);
  const bool root = opts.rootRank == rank_;
  check_count("gather", "list of outputs here", outputs.size(), root ? 1 : 0);
  if (root) {
    check_count("gather", "outputs", outputs[0].size(), options_.ranks.size());
    check_alike("gather", outputs[0], inputs[0]);
  }
  const std::string operation = "gather to its rank " + std::to_string(opts.rootRank);
  return post("gather", OpType::GATHER, outputs,
              [this, outputs, input = inputs[0], root, operation, timeout = limit(opts.timeout)] {
                const Tensors rows = gather_rows(operation, input, root, Deadline(timeout));
                for (std::size_t i = 0; i < rows.size(); ++i) copy_row(outputs[0][i], rows[i]);
              });
}

HubBackend::WorkPtr HubBackend::scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& opts) {
  check_count("scatter", "output", outputs.size(), 1);
  const bool root = opts.rootRank == rank_;
  check_count("scatter", "list of inputs here", inputs.size(), root ? 1 : 0);
  if (root) {
    check_count("scatter", "inputs", inputs[0].size(), options_.ranks.size());
    check_alike("scatter", inputs[0], outputs[0]);
  }
  return post("scatter", OpType::SCATTER, {outputs},
              [this, output = outputs[0], inputs, from = opts.rootRank, timeout = limit(opts.timeout)] {
                Tensors sources;
                std::vector<HubCalls::ConstBytes> parts;
                if (from == rank_) {
                  for (const at::Tensor& input : inputs[0]) sources.push_back(input.contiguous());
                }
                for (const at::Tensor& source : sources) parts.emplace_back(bytes_of(source));
                const at::Tensor flat = at::empty({output.numel()}, output.options());
                calls_->scatter(call("scatter from its rank " + std::to_string(from), output, Deadline(timeout)),
                                static_cast<std::size_t>(from), parts, bytes_of(flat));
                copy_row(output, flat);
              });
}

HubBackend::WorkPtr HubBackend::alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_sizes,
                                              std::vector<int64_t>& input_sizes, const c10d::AllToAllOptions& opts) {
  TORCH_CHECK(output.is_contiguous() && input.is_contiguous() && output.scalar_type() == input.scalar_type(),
              "collab: all_to_all_single takes contiguous tensors of one type [hub.move-arguments]");
  auto in = parts_of("all_to_all_single", input, input_sizes, options_.ranks.size());
  auto out = parts_of("all_to_all_single", output, output_sizes, options_.ranks.size());
  const bool even = input_sizes.empty() && output_sizes.empty();
  return post("all_to_all_single", OpType::ALLTOALL_BASE, {{output}},
              [this, output, input, in, out, even, timeout = limit(opts.timeout)] {
                const Deadline deadline(timeout);
                const std::string type = c10::toString(input.scalar_type());
                std::uint64_t longest = 0;
                for (const auto& part : in) longest = std::max<std::uint64_t>(longest, part.size());
                if (!even) {
                  const HubCalls::Call sizes{"sizes of all_to_all_single of " + type, "", deadline, number_};
                  longest = longest_of_all(*calls_, sizes, longest);
                }
                calls_->all_to_all({"all_to_all_single of " + type, "", deadline, number_}, {in.begin(), in.end()}, out,
                                   longest);
              });
}

HubBackend::WorkPtr HubBackend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) {
  check_count("all_to_all", "inputs", inputs.size(), options_.ranks.size());
  check_count("all_to_all", "outputs", outputs.size(), options_.ranks.size());
  return post("all_to_all", OpType::ALLTOALL, {outputs}, [this, outputs, inputs, timeout = limit(opts.timeout)] {
    const Deadline deadline(timeout);
    Tensors sources;
    Tensors targets;
    std::vector<HubCalls::ConstBytes> in;
    std::vector<HubCalls::Bytes> out;
    std::uint64_t longest = 0;
    for (const at::Tensor& input : inputs) sources.push_back(input.contiguous());
    for (const at::Tensor& output : outputs) targets.push_back(at::empty({output.numel()}, output.options()));
    for (const at::Tensor& source : sources) {
      in.emplace_back(bytes_of(source));
      longest = std::max<std::uint64_t>(longest, source.nbytes());
    }
    for (const at::Tensor& target : targets) out.push_back(bytes_of(target));
    longest = longest_of_all(*calls_, {"sizes of all_to_all", "", deadline, number_}, longest);
    calls_->all_to_all({"all_to_all", "", deadline, number_}, in, out, longest);
    for (std::size_t i = 0; i < targets.size(); ++i) copy_row(outputs[i], targets[i]);
  });
}

}  // namespace collab::torch_adapter
