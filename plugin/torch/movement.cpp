// Data movement, point to point and barriers, over the world's group, in host memory.
#include <utility>

#include "collab/torch/backend.h"
#include "torch/staging.h"
#include "torch/work.h"

namespace collab::torch_adapter {

using c10d::OpType;

CollabBackend::WorkPtr CollabBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) {
  begins("broadcast", tensors);
  Staging staging;
  Tensors host = staging.in_place(tensors);
  WorkPtr inner = options_.world->broadcast(host, opts);
  return unstage("broadcast", OpType::BROADCAST, std::move(inner), std::move(staging), {tensors});
}

CollabBackend::WorkPtr CollabBackend::allgather(TensorLists& outputs, Tensors& inputs,
                                                const c10d::AllgatherOptions& opts) {
  begins("all_gather", inputs);
  Staging staging;
  TensorLists host_outputs = staging.outputs(outputs);
  Tensors host_inputs = staging.inputs(inputs);
  WorkPtr inner = options_.world->allgather(host_outputs, host_inputs, opts);
  return unstage("all_gather", OpType::ALLGATHER, std::move(inner), std::move(staging), outputs);
}

CollabBackend::WorkPtr CollabBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                      const c10d::AllgatherOptions& opts) {
  begins("all_gather_into_tensor", {input});
  Staging staging;
  at::Tensor host_output = staging.output(output);
  at::Tensor host_input = staging.input(input);
  WorkPtr inner = options_.world->_allgather_base(host_output, host_input, opts);
  return unstage("all_gather_into_tensor", OpType::_ALLGATHER_BASE, std::move(inner), std::move(staging), {{output}});
}

CollabBackend::WorkPtr CollabBackend::allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                                          const c10d::AllgatherOptions& opts) {
  begins("all_gather_coalesced", inputs);
  Staging staging;
  TensorLists host_outputs = staging.outputs(outputs);
  Tensors host_inputs = staging.inputs(inputs);
  WorkPtr inner = options_.world->allgather_coalesced(host_outputs, host_inputs, opts);
  return unstage("all_gather_coalesced", OpType::ALLGATHER_COALESCED, std::move(inner), std::move(staging), outputs);
}

CollabBackend::WorkPtr CollabBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                      const c10d::AllgatherOptions& opts) {
  begins("all_gather_into_tensor_coalesced", inputs);
  Staging staging;
  Tensors host_outputs = staging.outputs(outputs);
  Tensors host_inputs = staging.inputs(inputs);
  WorkPtr inner = options_.world->allgather_into_tensor_coalesced(host_outputs, host_inputs, opts);
  return unstage("all_gather_into_tensor_coalesced", OpType::COALESCED, std::move(inner), std::move(staging),
                 {outputs});
}

CollabBackend::WorkPtr CollabBackend::gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& opts) {
  begins("gather", inputs);
  Staging staging;
  TensorLists host_outputs = staging.outputs(outputs);
  Tensors host_inputs = staging.inputs(inputs);
  WorkPtr inner = options_.world->gather(host_outputs, host_inputs, opts);
  return unstage("gather", OpType::GATHER, std::move(inner), std::move(staging), outputs);
}

CollabBackend::WorkPtr CollabBackend::scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& opts) {
  begins("scatter", outputs);
  Staging staging;
  Tensors host_outputs = staging.outputs(outputs);
  TensorLists host_inputs = staging.inputs(inputs);
  WorkPtr inner = options_.world->scatter(host_outputs, host_inputs, opts);
  return unstage("scatter", OpType::SCATTER, std::move(inner), std::move(staging), {outputs});
}

CollabBackend::WorkPtr CollabBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                    std::vector<int64_t>& output_sizes,
                                                    std::vector<int64_t>& input_sizes,
                                                    const c10d::AllToAllOptions& opts) {
  begins("all_to_all_single", {input});
  Staging staging;
  at::Tensor host_output = staging.output(output);
  at::Tensor host_input = staging.input(input);
  WorkPtr inner = options_.world->alltoall_base(host_output, host_input, output_sizes, input_sizes, opts);
  return unstage("all_to_all_single", OpType::ALLTOALL_BASE, std::move(inner), std::move(staging), {{output}});
}

CollabBackend::WorkPtr CollabBackend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) {
  begins("all_to_all", inputs);
  Staging staging;
  Tensors host_outputs = staging.outputs(outputs);
  Tensors host_inputs = staging.inputs(inputs);
  WorkPtr inner = options_.world->alltoall(host_outputs, host_inputs, opts);
  return unstage("all_to_all", OpType::ALLTOALL, std::move(inner), std::move(staging), {outputs});
}

CollabBackend::WorkPtr CollabBackend::send(Tensors& tensors, int destination, int tag) {
  Staging staging;
  Tensors host = staging.inputs(tensors);
  WorkPtr inner = options_.world->send(host, destination, tag);
  return unstage_point_to_point(OpType::SEND, std::move(inner), std::move(staging));
}

CollabBackend::WorkPtr CollabBackend::recv(Tensors& tensors, int source, int tag) {
  Staging staging;
  Tensors host = staging.outputs(tensors);
  WorkPtr inner = options_.world->recv(host, source, tag);
  return unstage_point_to_point(OpType::RECV, std::move(inner), std::move(staging));
}

CollabBackend::WorkPtr CollabBackend::recvAnysource(Tensors& tensors, int tag) {
  Staging staging;
  Tensors host = staging.outputs(tensors);
  WorkPtr inner = options_.world->recvAnysource(host, tag);
  return unstage_point_to_point(OpType::RECVANYSOURCE, std::move(inner), std::move(staging));
}

CollabBackend::WorkPtr CollabBackend::barrier(const c10d::BarrierOptions& opts) {
  begins("barrier", {});
  if (pre_barrier_) pre_barrier_();
  WorkPtr inner = options_.world->barrier(opts);
  if (single_site()) return inner;
  // Queued behind earlier sums, so that the barrier completes after them.
  return post("barrier", OpType::BARRIER, {}, [inner = std::move(inner)] { inner->wait(); });
}

void CollabBackend::monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) {
  begins("monitored_barrier", {});
  options_.world->monitoredBarrier(opts, wait_all_ranks);
}

}  // namespace collab::torch_adapter
