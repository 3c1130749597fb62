// Reductions over the collective hub: each rank gets the parts of the living ranks and combines them in rank order.
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/protocol/actions.h"
#include "torch/hub_backend.h"
#include "torch/staging.h"

namespace collab::torch_adapter {

using c10d::OpType;
using c10d::ReduceOp;

const char* reduction_name(ReduceOp::RedOpType op) {
  switch (op) {
    case ReduceOp::SUM: return "sum";
    case ReduceOp::AVG: return "mean";
    case ReduceOp::PRODUCT: return "product";
    case ReduceOp::MIN: return "min";
    case ReduceOp::MAX: return "max";
    case ReduceOp::BAND: return "band";
    case ReduceOp::BOR: return "bor";
    case ReduceOp::BXOR: return "bxor";
    default: break;
  }
  TORCH_CHECK(false, "collab: neither Gloo nor collab knows this reduction [hub.reduce-arguments]");
}

namespace {

using Tensors = HubBackend::Tensors;

// Accepts what Gloo accepts, and nothing else.
void check_reduction(const std::string& name, const at::Tensor& tensor, ReduceOp::RedOpType op) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
    case at::kDouble:
    case at::kHalf:
    case at::kBFloat16:
      TORCH_CHECK(op != ReduceOp::BAND && op != ReduceOp::BOR && op != ReduceOp::BXOR, "collab: ", name,
                  ": cannot use ", reduction_name(op), " with a non-integral dtype [hub.reduce-arguments]");
      return;
    case at::kBool:
      TORCH_CHECK(op != ReduceOp::AVG, "collab: ", name,
                  ": a bool tensor cannot be averaged; convert it first [hub.reduce-arguments]");
      return;
    case at::kChar:
    case at::kByte:
    case at::kInt:
    case at::kLong: return;
    default:
      TORCH_CHECK(false, "collab: ", name, ": invalid scalar type ", tensor.scalar_type(), " [hub.reduce-arguments]");
  }
}

void combine_into(at::Tensor& total, const at::Tensor& row, ReduceOp::RedOpType op) {
  switch (op) {
    case ReduceOp::SUM:
    case ReduceOp::AVG: total.add_(row); return;
    case ReduceOp::PRODUCT: total.mul_(row); return;
    case ReduceOp::MIN: at::minimum_out(total, total, row); return;
    case ReduceOp::MAX: at::maximum_out(total, total, row); return;
    case ReduceOp::BAND: total.bitwise_and_(row); return;
    case ReduceOp::BOR: total.bitwise_or_(row); return;
    case ReduceOp::BXOR: total.bitwise_xor_(row); return;
    default: TORCH_CHECK(false, "collab: unknown reduction [hub.reduce-arguments]");
  }
}

}  // namespace

HubBackend::Rows HubBackend::living_rows(const HubCalls::Call& step, const at::Tensor& flat) {
  Rows found{at::empty({size_, flat.numel()}, flat.options()), {}};
  const HubCalls::Bytes target = bytes_of(found.rows);
  found.living = calls_->gather(step, bytes_of(flat), wire::Absence::kProceeds, true,
                                [&](std::size_t from, std::size_t offset, HubCalls::ConstBytes part) {
                                  if (part.empty()) return;
                                  std::memcpy(target.data() + from * flat.nbytes() + offset, part.data(), part.size());
                                });
  warn_missing(found.living);
  return found;
}

HubBackend::Rows HubBackend::gather_living(const SumCall& sum, const at::Tensor& flat, const Deadline& deadline) {
  HubCalls::Call step = call(sum.operation, flat, deadline);
  step.number = sum.number;
  return living_rows(step, flat);
}

void HubBackend::pass(const SumCall& sum, const at::Tensor& flat, const Deadline& deadline) {
  HubCalls::Call step = call(sum.operation, flat, deadline);
  step.number = sum.number;
  calls_->pass(step, flat.nbytes());
}

void HubBackend::combine(const HubCalls::Call& step, at::Tensor& flat, ReduceOp::RedOpType op) {
  const auto [rows, living] = living_rows(step, flat);
  // Gloo treats a bool as a byte.
  const at::Tensor values = flat.scalar_type() == at::kBool ? rows.view(at::kByte) : rows;
  at::Tensor total;
  int64_t there = 0;
  for (int64_t row = 0; row < size_; ++row) {
    if (!living[static_cast<std::size_t>(row)]) continue;
    ++there;
    if (total.defined()) {
      combine_into(total, values[row], op);
    } else {
      total = values[row].clone();
    }
  }
  TORCH_CHECK(there > 0, kNobodyGave);
  if (op == ReduceOp::AVG) divide_sum(total, there);
  if (flat.numel() > 0) std::memcpy(flat.data_ptr(), total.data_ptr(), flat.nbytes());
}

HubBackend::WorkPtr HubBackend::post_reduce(const std::string& name, OpType type, Tensors parts, const ReduceOp& op,
                                            std::chrono::milliseconds timeout, TensorLists results,
                                            std::function<void(const at::Tensor& flat)> deliver) {
  TORCH_CHECK(!parts.empty(), "collab: ", name, " needs a tensor [hub.reduce-arguments]");
  for (const at::Tensor& part : parts) {
    TORCH_CHECK(part.layout() == at::kStrided, "collab: ", name, " takes dense tensors, got layout ", part.layout(),
                " [hub.reduce-arguments]");
    TORCH_CHECK(part.scalar_type() == parts[0].scalar_type(), "collab: ", name, " got tensors of types ",
                parts[0].scalar_type(), " and ", part.scalar_type(), "; they must be alike [hub.reduce-arguments]");
  }
  check_reduction(name, parts[0], op.op_);
  return post(
      name, type, std::move(results),
      [this, name, parts = std::move(parts), kind = op.op_, timeout = limit(timeout), deliver = std::move(deliver)] {
        Tensors flat;
        for (const at::Tensor& part : parts) flat.push_back(part.reshape(-1));
        at::Tensor all = flat.size() == 1 ? flat[0].clone(at::MemoryFormat::Contiguous) : at::cat(flat);
        combine(call(name + " (" + reduction_name(kind) + ")", all, Deadline(timeout)), all, kind);
        deliver(all);
      });
}

HubBackend::WorkPtr HubBackend::most_at_barrier(const at::Tensor& value) {
  return post("barrier", OpType::BARRIER, {}, [this, flat = value, timeout = options_.timeout]() mutable {
    // Tells the coordinator not to wait for these sites to reach a round of their own.
    const std::string name = std::string(protocol::kStandsStill) + "steps since the last round";
    combine({name, "", Deadline(timeout), number_}, flat, ReduceOp::MAX);
  });
}

HubBackend::WorkPtr HubBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  TORCH_CHECK(tensors.size() == 1, "collab: all_reduce takes one tensor a rank, got ", tensors.size(),
              " [hub.reduce-arguments]");
  if (tensors[0].layout() == at::kSparse) return allreduce_sparse(tensors, opts);  // torch calls this for sparse too
  return post_reduce("all_reduce", OpType::ALLREDUCE, tensors, opts.reduceOp, opts.timeout, {tensors},
                     [tensors](const at::Tensor& flat) { copy_out(flat, tensors); });
}

HubBackend::WorkPtr HubBackend::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) {
  return post_reduce("all_reduce_coalesced", OpType::ALLREDUCE_COALESCED, tensors, opts.reduceOp, opts.timeout,
                     {tensors}, [tensors](const at::Tensor& flat) { copy_out(flat, tensors); });
}

HubBackend::WorkPtr HubBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& opts) {
  TORCH_CHECK(tensors.size() == 1, "collab: reduce takes one tensor a rank, got ", tensors.size(),
              " [hub.reduce-arguments]");
  const bool root = opts.rootRank == rank_;
  return post_reduce("reduce to its rank " + std::to_string(opts.rootRank), OpType::REDUCE, tensors, opts.reduceOp,
                     opts.timeout, {tensors}, [tensors, root](const at::Tensor& flat) {
                       if (root) copy_out(flat, tensors);
                     });
}

HubBackend::WorkPtr HubBackend::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                               const c10d::ReduceScatterOptions& opts) {
  TORCH_CHECK(outputs.size() == 1 && inputs.size() == 1 && inputs[0].size() == options_.ranks.size(),
              "collab: reduce_scatter takes one output and a list of ", size_, " inputs [hub.reduce-arguments]");
  const auto mine = static_cast<std::size_t>(rank_);
  TORCH_CHECK(inputs[0][mine].numel() == outputs[0].numel(), "collab: reduce_scatter's output has ", outputs[0].numel(),
              " elements, this rank's input ", inputs[0][mine].numel(), " [hub.reduce-arguments]");
  int64_t offset = 0;
  for (std::size_t i = 0; i < mine; ++i) offset += inputs[0][i].numel();
  return post_reduce(
      "reduce_scatter", OpType::REDUCE_SCATTER, inputs[0], opts.reduceOp, opts.timeout, {outputs},
      [outputs, offset](const at::Tensor& flat) { copy_out(flat.narrow(0, offset, outputs[0].numel()), outputs); });
}

HubBackend::WorkPtr HubBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                     const c10d::ReduceScatterOptions& opts) {
  Tensors outputs{output};
  Tensors inputs{input};
  return reduce_scatter_tensor_coalesced(outputs, inputs, opts);
}

HubBackend::WorkPtr HubBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                const c10d::ReduceScatterOptions& opts) {
  TORCH_CHECK(outputs.size() == inputs.size(), "collab: reduce_scatter_tensor got ", outputs.size(), " outputs and ",
              inputs.size(), " inputs [hub.reduce-arguments]");
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    TORCH_CHECK(inputs[i].numel() == outputs[i].numel() * size_, "collab: reduce_scatter_tensor got an input of ",
                inputs[i].numel(), " elements for an output of ", outputs[i].numel(), " and ", size_,
                " ranks [hub.reduce-arguments]");
  }
  return post_reduce("reduce_scatter_tensor", OpType::COALESCED, inputs, opts.reduceOp, opts.timeout, {outputs},
                     [outputs, rank = rank_, size = size_](const at::Tensor& flat) {
                       int64_t start = 0;
                       for (const at::Tensor& target : outputs) {
                         copy_out(flat.narrow(0, start + rank * target.numel(), target.numel()), {target});
                         start += size * target.numel();
                       }
                     });
}

// Ranks have different numbers of entries: exchanges the numbers first, then rows padded to the longest.
void HubBackend::sum_sparse(const at::Tensor& tensor, const Deadline& deadline) {
  const at::Tensor mine = tensor.coalesce();
  const at::Tensor indices = mine.indices().t().contiguous();  // one row per entry
  const at::Tensor values = mine.values().contiguous();
  std::vector<std::int64_t> counts(static_cast<std::size_t>(size_), 0);
  const std::int64_t count = indices.size(0);
  std::int64_t most = 0;
  HubCalls::Living living =
      calls_->gather(call("sizes of a sparse all_reduce", tensor, deadline), std::as_bytes(std::span(&count, 1)),
                     wire::Absence::kProceeds, true, [&](std::size_t from, std::size_t, HubCalls::ConstBytes part) {
                       std::memcpy(&counts[from], part.data(), sizeof(std::int64_t));
                       most = std::max(most, counts[from]);
                     });
  if (most == 0) return;
  const auto gather_padded = [&](const at::Tensor& entries) {
    std::vector<int64_t> shape = entries.sizes().vec();
    shape[0] = most;
    const at::Tensor padded = at::zeros(shape, entries.options());
    if (count > 0) padded.narrow(0, 0, count).copy_(entries);
    const Rows found = gather_living({"entries of a sparse all_reduce", number_}, padded.view(-1), deadline);
    for (std::size_t i = 0; i < living.size(); ++i) living[i] = living[i] && found.living[i];
    shape.insert(shape.begin(), size_);
    return found.rows.view(shape);
  };
  const at::Tensor all_indices = gather_padded(indices);
  const at::Tensor all_values = gather_padded(values);
  at::Tensor total;
  for (int64_t rank = 0; rank < size_; ++rank) {
    if (!living[static_cast<std::size_t>(rank)]) continue;
    const int64_t entries = counts[static_cast<std::size_t>(rank)];
    const at::Tensor part = at::sparse_coo_tensor(all_indices[rank].narrow(0, 0, entries).t().contiguous(),
                                                  all_values[rank].narrow(0, 0, entries), tensor.sizes());
    total = total.defined() ? total + part : part;
  }
  at::Tensor(tensor).copy_(total.coalesce());
}

HubBackend::WorkPtr HubBackend::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  TORCH_CHECK(tensors.size() == 1 && tensors[0].layout() == at::kSparse && opts.reduceOp == ReduceOp::SUM,
              "collab: all_reduce takes one sparse tensor a rank, and only sums it [hub.reduce-arguments]");
  return post("all_reduce", OpType::_ALLREDUCE_SPARSE, {tensors},
              [this, tensor = tensors[0], timeout = limit(opts.timeout)] { sum_sparse(tensor, Deadline(timeout)); });
}

}  // namespace collab::torch_adapter
