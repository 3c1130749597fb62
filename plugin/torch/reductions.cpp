// Floating sums, means and products in site order, and means of integers. The world's group does all other reductions.
#include <c10/util/Exception.h>

#include <string>
#include <utility>

#include "collab/torch/backend.h"
#include "torch/hub_backend.h"
#include "torch/ordered_sum.h"
#include "torch/staging.h"
#include "torch/work.h"

namespace collab::torch_adapter {

using c10d::OpType;
using c10d::ReduceOp;

// Tensors to reduce as one flat vector, and how to deliver the result.
struct ReduceJob {
  const char* name = nullptr;
  std::string root;  // names the root in words, if only one rank gets the result
  OpType type = OpType::UNKNOWN;
  ReduceOp op;
  std::chrono::milliseconds timeout{};
  std::vector<at::Tensor> parts;  // in the order of the flat vector; all of one type
  bool in_place = false;          // overwrite a single contiguous part; deliver() is then a no-op
  std::function<void(const at::Tensor& flat)> deliver;
  std::vector<std::vector<at::Tensor>> results;
  bool over_site = false;  // reduce over the site, for a communication hook
};

namespace {

// Joins all parts in one vector. Uses the part's own memory if in_place allows it.
at::Tensor flatten(const ReduceJob& job) {
  if (job.parts.size() == 1 && job.in_place && job.parts[0].is_contiguous()) {
    // A single element is contiguous with any stride; Gloo's bytes need 1.
    return job.parts[0].as_strided({job.parts[0].numel()}, {1});
  }
  std::vector<at::Tensor> flat;
  for (const at::Tensor& part : job.parts) flat.push_back(part.reshape(-1));
  return flat.size() == 1 ? flat[0].clone(at::MemoryFormat::Contiguous) : at::cat(flat);
}

void check_one_type(const char* name, const std::vector<at::Tensor>& tensors) {
  TORCH_CHECK(!tensors.empty(), "collab: ", name, " needs at least one tensor [ddp.reduce-arguments]");
  for (const at::Tensor& tensor : tensors) {
    TORCH_CHECK(tensor.layout() == at::kStrided, "collab: ", name, " takes dense tensors, got layout ", tensor.layout(),
                " [ddp.reduce-arguments]");
    TORCH_CHECK(tensor.scalar_type() == tensors[0].scalar_type(), "collab: ", name, " got tensors of types ",
                tensors[0].scalar_type(), " and ", tensor.scalar_type(), "; they must be alike [ddp.reduce-arguments]");
  }
}

// For a sum, a complex number is two floating ones.
at::Tensor as_real(const at::Tensor& tensor) { return tensor.is_complex() ? at::view_as_real(tensor) : tensor; }

std::vector<at::Tensor> as_real(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> real;
  for (const at::Tensor& tensor : tensors) real.push_back(as_real(tensor));
  return real;
}

}  // namespace

// True if the result depends on the order of the operands, and for some operations that Gloo lacks. All else goes to
// Gloo, including what Gloo refuses, for its error text.
bool CollabBackend::reduced_here(const at::Tensor& tensor, const ReduceOp& op) const {
  if (tensor.layout() != at::kStrided) return false;
  switch (tensor.scalar_type()) {
    case at::kFloat:
    case at::kDouble:
    case at::kHalf:
    case at::kBFloat16:
      return !single_site() && (op == ReduceOp::SUM || op == ReduceOp::AVG || op == ReduceOp::PRODUCT);
    case at::kComplexFloat:
    case at::kComplexDouble: return !single_site() && (op == ReduceOp::SUM || op == ReduceOp::AVG);
    case at::kByte:
    case at::kChar:
    case at::kShort:
    case at::kInt:
    case at::kLong: return op == ReduceOp::AVG;
    case at::kBool:
      TORCH_CHECK(op != ReduceOp::AVG, "collab: a bool tensor cannot be averaged; convert it first, to float32 for ",
                  "instance [ddp.reduce-arguments]");
      return false;
    default: return false;
  }
}

// Communication hooks of DDP, torch's own and users', all-reduce over the default group and divide by its size. They do
// so in the hook or in callbacks of its futures. But gradients stay within a site. So such a sum covers only the site,
// and is scaled so that the hook's division gives the site's mean.
bool CollabBackend::in_communication_hook() const {
  return options_.is_world && !single_site() && CommunicationHookScope::active();
}

// Gloo sums, in the order of issue; the division follows on the worker.
CollabBackend::WorkPtr CollabBackend::post_integer_mean(ReduceJob job) {
  at::Tensor flat = flatten(job);
  Tensors sums{as_gloo_sums(flat)};
  c10d::AllreduceOptions opts;
  opts.timeout = job.timeout;
  WorkPtr inner = options_.world->allreduce(sums, opts);
  auto body = [inner = std::move(inner), sum = sums[0], flat, size = size_,
               deliver = std::move(job.deliver)]() mutable {
    inner->wait();
    take_gloo_sum(flat, sum);
    divide_sum(flat, size);
    deliver(flat);
  };
  return post(job.name, job.type, std::move(job.results), std::move(body));
}

CollabBackend::WorkPtr CollabBackend::post_reduce(ReduceJob job) {
  Staging staging;
  job.parts = staging.inputs(job.parts);
  if (staging.used()) job.in_place = false;
  if (single_site()) return post_integer_mean(std::move(job));
  ordered_.fetch_add(1);
  const char* name = job.name;
  const OpType type = job.type;
  const bool over_site = job.over_site;
  auto results = job.results;
  SumCall sum;
  auto* hub = dynamic_cast<HubBackend*>(options_.world.get());
  if (hub != nullptr && !over_site) {
    sum = {std::string(name) + job.root + " (" + reduction_name(job.op.op_) + ")", hub->count_call()};
  }
  auto body = [this, sum = std::move(sum), job = std::move(job)] {
    const Deadline deadline(job.timeout);
    at::Tensor flat = flatten(job);
    const bool mean = job.op == ReduceOp::AVG;
    if (job.over_site) {
      reducer_->over_this_site(flat, mean ? ReduceOp(ReduceOp::SUM) : job.op, deadline);
      if (mean) {
        divide_sum(flat, reducer_->site_size());
      } else if (job.op == ReduceOp::SUM && at::isFloatingType(flat.scalar_type()) && size_ != reducer_->site_size()) {
        flat.mul_(static_cast<double>(size_) / reducer_->site_size());
      }
    } else {
      reducer_->over_all_sites(sum, flat, mean ? ReduceOp::SUM : job.op.op_, mean, deadline);
    }
    job.deliver(flat);
  };
  return post(name, type, std::move(results), std::move(body), over_site);
}

template <typename Call>
CollabBackend::WorkPtr CollabBackend::forward_in_place(const char* name, OpType type, const Tensors& tensors,
                                                       Call call) {
  Staging staging;
  Tensors host = staging.in_place(tensors);
  WorkPtr inner = call(host);
  return unstage(name, type, std::move(inner), std::move(staging), {tensors});
}

CollabBackend::WorkPtr CollabBackend::post_all_reduce(const char* name, OpType type, const Tensors& tensors,
                                                      const ReduceOp& op, std::chrono::milliseconds timeout,
                                                      bool over_site) {
  check_one_type(name, tensors);
  ReduceJob job;
  job.name = name;
  job.type = type;
  job.op = op;
  job.timeout = limit(timeout);
  job.parts = as_real(tensors);
  job.in_place = true;
  job.deliver = [outputs = job.parts](const at::Tensor& flat) { copy_out(flat, outputs); };
  job.results = {tensors};
  job.over_site = over_site;
  return post_reduce(std::move(job));
}

CollabBackend::WorkPtr CollabBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  const bool over_site = in_communication_hook();
  if (!over_site) begins("all_reduce", tensors);
  TORCH_CHECK(!tensors.empty(), "collab: all_reduce needs a tensor [ddp.reduce-arguments]");
  if (!reduced_here(tensors[0], opts.reduceOp) && !over_site) {
    return forward_in_place("all_reduce", OpType::ALLREDUCE, tensors,
                            [&](Tensors& host) { return options_.world->allreduce(host, opts); });
  }
  TORCH_CHECK(tensors.size() == 1, "collab: all_reduce takes one tensor a rank, got ", tensors.size(),
              " [ddp.reduce-arguments]");
  return post_all_reduce(over_site ? "all_reduce of a communication hook" : "all_reduce", OpType::ALLREDUCE, tensors,
                         opts.reduceOp, opts.timeout, over_site);
}

// Gloo's sparse sum adds the ranks' values in rank order, the same at every rank.
CollabBackend::WorkPtr CollabBackend::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  begins("all_reduce", tensors);
  return forward_in_place("all_reduce", OpType::ALLREDUCE, tensors,
                          [&](Tensors& host) { return options_.world->allreduce_sparse(host, opts); });
}

CollabBackend::WorkPtr CollabBackend::allreduce_coalesced(Tensors& tensors,
                                                          const c10d::AllreduceCoalescedOptions& opts) {
  const bool over_site = in_communication_hook();
  if (!over_site) begins("all_reduce_coalesced", tensors);
  TORCH_CHECK(!tensors.empty(), "collab: all_reduce_coalesced needs at least one tensor [ddp.reduce-arguments]");
  if (!reduced_here(tensors[0], opts.reduceOp) && !over_site) {
    return forward_in_place("all_reduce_coalesced", OpType::ALLREDUCE_COALESCED, tensors,
                            [&](Tensors& host) { return options_.world->allreduce_coalesced(host, opts); });
  }
  return post_all_reduce("all_reduce_coalesced", OpType::ALLREDUCE_COALESCED, tensors, opts.reduceOp, opts.timeout,
                         over_site);
}

CollabBackend::WorkPtr CollabBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& opts) {
  begins("reduce", tensors);
  TORCH_CHECK(!tensors.empty(), "collab: reduce needs a tensor [ddp.reduce-arguments]");
  if (!reduced_here(tensors[0], opts.reduceOp)) {
    return forward_in_place("reduce", OpType::REDUCE, tensors,
                            [&](Tensors& host) { return options_.world->reduce(host, opts); });
  }
  check_one_type("reduce", tensors);
  TORCH_CHECK(tensors.size() == 1, "collab: reduce takes one tensor a rank, got ", tensors.size(),
              " [ddp.reduce-arguments]");
  TORCH_CHECK(opts.rootRank >= 0 && opts.rootRank < size_, "collab: reduce to rank ", opts.rootRank, ", the group has ",
              size_, " [ddp.reduce-arguments]");
  ReduceJob job;
  job.name = "reduce";
  job.root = " to its rank " + std::to_string(opts.rootRank);
  job.type = OpType::REDUCE;
  job.op = opts.reduceOp;
  job.timeout = limit(opts.timeout);
  job.parts = as_real(tensors);
  job.deliver = [root = opts.rootRank == rank_, outputs = job.parts](const at::Tensor& flat) {
    if (root) copy_out(flat, outputs);
  };
  job.results = {tensors};
  return post_reduce(std::move(job));
}

CollabBackend::WorkPtr CollabBackend::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                                     const c10d::ReduceScatterOptions& opts) {
  TORCH_CHECK(outputs.size() == 1 && inputs.size() == 1,
              "collab: reduce_scatter takes one output and one list of inputs, got ", outputs.size(), " and ",
              inputs.size(), " [ddp.reduce-arguments]");
  begins("reduce_scatter", inputs[0]);
  if (!reduced_here(outputs[0], opts.reduceOp)) {
    Staging staging;
    Tensors host_outputs = staging.outputs(outputs);
    TensorLists host_inputs = staging.inputs(inputs);
    WorkPtr inner = options_.world->reduce_scatter(host_outputs, host_inputs, opts);
    return unstage("reduce_scatter", OpType::REDUCE_SCATTER, std::move(inner), std::move(staging), {outputs});
  }
  const Tensors& list = inputs[0];
  check_one_type("reduce_scatter", list);
  TORCH_CHECK(static_cast<int>(list.size()) == size_, "collab: reduce_scatter got ", list.size(), " inputs for ", size_,
              " ranks [ddp.reduce-arguments]");
  const at::Tensor& own = list[static_cast<std::size_t>(rank_)];
  TORCH_CHECK(own.numel() == outputs[0].numel() && own.scalar_type() == outputs[0].scalar_type(),
              "collab: reduce_scatter's output has ", outputs[0].numel(), " elements of ", outputs[0].scalar_type(),
              ", this rank's input has ", own.numel(), " of ", own.scalar_type(), " [ddp.reduce-arguments]");
  ReduceJob job;
  job.name = "reduce_scatter";
  job.type = OpType::REDUCE_SCATTER;
  job.op = opts.reduceOp;
  job.timeout = limit(opts.timeout);
  job.parts = as_real(list);
  int64_t offset = 0;
  for (int rank = 0; rank < rank_; ++rank) offset += job.parts[static_cast<std::size_t>(rank)].numel();
  job.deliver = [offset, output = as_real(outputs[0])](const at::Tensor& flat) {
    copy_out(flat.narrow(0, offset, output.numel()), {output});
  };
  job.results = {outputs};
  return post_reduce(std::move(job));
}

CollabBackend::WorkPtr CollabBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                           const c10d::ReduceScatterOptions& opts) {
  if (!reduced_here(output, opts.reduceOp)) {
    begins("reduce_scatter_tensor", {input});
    Staging staging;
    at::Tensor host_output = staging.output(output);
    at::Tensor host_input = staging.input(input);
    WorkPtr inner = options_.world->_reduce_scatter_base(host_output, host_input, opts);
    return unstage("reduce_scatter_tensor", OpType::_REDUCE_SCATTER_BASE, std::move(inner), std::move(staging),
                   {{output}});
  }
  Tensors outputs{output};
  Tensors inputs{input};
  return reduce_scatter_tensor_coalesced(outputs, inputs, opts);
}

CollabBackend::WorkPtr CollabBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                      const c10d::ReduceScatterOptions& opts) {
  TORCH_CHECK(!outputs.empty() && outputs.size() == inputs.size(), "collab: reduce_scatter_tensor_coalesced got ",
              outputs.size(), " outputs and ", inputs.size(), " inputs [ddp.reduce-arguments]");
  begins("reduce_scatter_tensor", inputs);
  if (!reduced_here(outputs[0], opts.reduceOp)) {
    Staging staging;
    Tensors host_outputs = staging.outputs(outputs);
    Tensors host_inputs = staging.inputs(inputs);
    WorkPtr inner = options_.world->reduce_scatter_tensor_coalesced(host_outputs, host_inputs, opts);
    return unstage("reduce_scatter_tensor_coalesced", OpType::COALESCED, std::move(inner), std::move(staging),
                   {outputs});
  }
  check_one_type("reduce_scatter_tensor", inputs);
  check_one_type("reduce_scatter_tensor", outputs);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    TORCH_CHECK(inputs[i].numel() == outputs[i].numel() * size_ && inputs[i].scalar_type() == outputs[i].scalar_type(),
                "collab: reduce_scatter_tensor got an input of ", inputs[i].numel(), " elements of ",
                inputs[i].scalar_type(), " for an output of ", outputs[i].numel(), " of ", outputs[i].scalar_type(),
                " and ", size_, " ranks [ddp.reduce-arguments]");
  }
  ReduceJob job;
  job.name = "reduce_scatter_tensor";
  job.type = inputs.size() == 1 ? OpType::_REDUCE_SCATTER_BASE : OpType::COALESCED;
  job.op = opts.reduceOp;
  job.timeout = limit(opts.timeout);
  job.parts = as_real(inputs);
  job.deliver = [rank = rank_, size = size_, targets = as_real(outputs)](const at::Tensor& flat) {
    int64_t start = 0;
    for (const at::Tensor& target : targets) {
      copy_out(flat.narrow(0, start + rank * target.numel(), target.numel()), {target});
      start += size * target.numel();
    }
  };
  job.results = {outputs};
  return post_reduce(std::move(job));
}

}  // namespace collab::torch_adapter
